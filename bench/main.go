// Command bench measures Doona's speed and size on this machine. The same run measures peers (other software) and
// limits (the best possible value), to compare with.
//
//	go run ./bench [--json] [--rows GLOB] [--full] [--write FOLDER] [--alarm FILE]
//
// To add rows, declare a [Group] and list it in groups. Bench prints progress to standard error. With --json the
// last line of standard output is one JSON object.
package main

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"
	"text/tabwriter"
	"time"
)

// groups lists all measurements in the order in which they run.
var groups = []Group{downloads, imports, native, node, chromium, firstReport, arrives, hostPage, ingest, setIngest,
	relayNoise, relayNoiseCPU, mixing, noiseError, edgeWorker, calculations, analyzing, endToEnd,
	endToEnd6, manySlots, growing, accuracy, servers, junk}

// options holds the command-line flags.
type options struct {
	json, full         bool
	rows, write, alarm string
}

func main() {
	var o options
	flag.BoolVar(&o.json, "json", false, "print one JSON object as the last line of standard output")
	flag.StringVar(&o.rows, "rows", "",
		"measure only rows whose names match this pattern; * stands for text without a slash, a final ** for any text")
	flag.BoolVar(&o.full, "full", false, "also measure the rows that take minutes: client/arrives, e2e/1e6, e2e/correlated")
	flag.StringVar(&o.write, "write", "",
		"write benchmarks.md and benchmarks.json to this folder, such as docs; other rows stay unchanged")
	flag.StringVar(&o.alarm, "alarm", "",
		"fail if a ratio is over 10 % below that in this file (docs/benchmarks.json) in three runs; not with --write")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if flag.NArg() > 0 || o.write != "" && o.alarm != "" {
		fmt.Fprintln(os.Stderr, "bench: bad arguments: want only flags, and not both --write and --alarm")
		os.Exit(2)
	}
	if err := run(ctx, o); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, o options) error {
	if o.alarm != "" {
		return watch(ctx, o, func(name string) ([]Row, error) { return measure(ctx, name, true) })
	}
	result := &Result{Machine: machine(ctx)}
	var err error
	if result.Rows, err = measure(ctx, o.rows, o.full); err != nil {
		return err
	}
	if o.write != "" {
		if err := result.write(o.write); err != nil {
			return err
		}
	}
	return result.print(os.Stdout, o.json)
}

// Result holds the rows of a run and describes the machine. Scripts read its JSON form: do not change the fields.
type Result struct {
	Machine map[string]any `json:"machine"`
	Rows    []Row          `json:"rows"`
}

func (r *Result) print(to io.Writer, asJSON bool) error {
	if !asJSON {
		return table(to, r.Rows)
	}
	return json.NewEncoder(to).Encode(r)
}

// measure measures the rows whose names match a pattern. Without a pattern it measures all rows, but those of long
// groups only if full is set.
func measure(ctx context.Context, pattern string, full bool) ([]Row, error) {
	wanted := matcher(pattern)
	selected := slices.DeleteFunc(slices.Clone(groups), func(g Group) bool {
		return g.Long && !full && pattern == "" || !slices.ContainsFunc(g.Names, wanted)
	})
	if len(selected) == 0 {
		return nil, fmt.Errorf("no row matches %q: the rows are\n  %s", pattern, strings.Join(names(), "\n  "))
	}
	setup := &Setup{wanted: wanted}
	defer setup.Close()
	rows := []Row{}
	for _, g := range selected {
		got, err := g.Run(ctx, setup)
		if err != nil {
			return nil, err
		}
		rows = append(rows, slices.DeleteFunc(got, func(r Row) bool { return !wanted(r.Name) })...)
	}
	return rows, nil
}

func names() (all []string) {
	for _, g := range groups {
		all = append(all, g.Names...)
	}
	return all
}

// matcher returns a function that reports whether a name matches the pattern. A pattern is an exact name or a glob for
// path.Match. A final ** stands for any text, slashes included. The empty pattern matches every name.
func matcher(pattern string) func(string) bool {
	return func(name string) bool {
		if prefix, ok := strings.CutSuffix(pattern, "**"); ok || pattern == "" {
			return strings.HasPrefix(name, prefix)
		}
		// People type one star at the end and mean all names below, so it may match slashes.
		if prefix, ok := strings.CutSuffix(pattern, "/*"); ok && strings.HasPrefix(name, prefix+"/") {
			return true
		}
		matched, err := path.Match(pattern, name)
		return err == nil && matched
	}
}

// machine describes the machine, its software and its load averages now.
func machine(ctx context.Context) map[string]any {
	m := map[string]any{"cpu": "unknown", "cores": runtime.NumCPU(), "os": runtime.GOOS, "arch": runtime.GOARCH,
		"go": runtime.Version()}
	if info, err := os.ReadFile("/proc/cpuinfo"); err == nil {
		for line := range strings.Lines(string(info)) {
			if name, value, ok := strings.Cut(line, ":"); ok && strings.TrimSpace(name) == "model name" {
				m["cpu"] = strings.TrimSpace(value)
				break
			}
		}
	}
	if load, err := os.ReadFile("/proc/loadavg"); err == nil {
		m["load"] = strings.Join(strings.Fields(string(load))[:3], " ")
	}
	for name, of := range map[string][]string{"commit": {"git", "rev-parse", "--short", "HEAD"},
		"node": {"node", "--version"}} {
		if out, err := command(ctx, of[0], of[1:]...); err == nil {
			m[name] = strings.TrimSpace(out)
		}
	}
	if build, ok := debug.ReadBuildInfo(); ok {
		for _, d := range build.Deps {
			if d.Path == "github.com/cloudflare/circl" {
				m["circl"] = d.Version
			}
		}
	}
	m["date"] = time.Now().UTC().Format(time.DateOnly)
	return m
}

func table(w io.Writer, rows []Row) error {
	out := tabwriter.NewWriter(w, 0, 4, 2, ' ', 0)
	fmt.Fprintln(out, "row\tours\tunit\tpeer\tratio\tlimit\tratio\truns\tmin\tmax")
	for _, r := range rows {
		fmt.Fprintf(out, "%s\t%s\t%s\t%s\t%s\t%s\t%s\t%d\t%s\t%s\n", r.Name, cell(r.Ours), r.Unit,
			cell(r.Peer), cell(r.PeerRatio), cell(r.Limit), cell(r.LimitRatio), r.Runs, cell(r.Min), cell(r.Max))
	}
	return out.Flush()
}

func cell(v *float64) string {
	if v == nil {
		return "-"
	}
	if *v == float64(int64(*v)) {
		return fmt.Sprintf("%.0f", *v)
	}
	return fmt.Sprintf("%.4g", *v)
}
