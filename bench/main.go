// Command bench measures the product on this machine, beside peers and limits measured in the
// same run.
//
//	go run ./bench [--json] [--rows GLOB]
//
// To add rows, write a function of [Group]'s form and list it in groups. Progress goes to
// standard error; with --json the last line of standard output is one JSON object.
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
	"slices"
	"strings"
	"text/tabwriter"
)

// groups are all measurements, in the order in which they run.
var groups = []Group{downloads, imports, native, node, chromium, firstReport, hostPage, ingest, relayNoise,
	relayNoiseCPU, mixing, noiseError, edgeWorker, calculations, analyzing, endToEnd,
	endToEnd6, growing}

func main() {
	asJSON := flag.Bool("json", false, "print one JSON object as the last line of standard output")
	rows := flag.String("rows", "",
		"measure only rows whose names match this pattern; * stands for any text without a slash, ** for any")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if flag.NArg() > 0 {
		fmt.Fprintf(os.Stderr, "bench: unexpected argument %q\n", flag.Arg(0))
		os.Exit(2)
	}
	if err := run(ctx, *rows, *asJSON); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, pattern string, asJSON bool) error {
	selected := slices.DeleteFunc(slices.Clone(groups),
		func(g Group) bool { return !slices.ContainsFunc(g.Names, matcher(pattern)) })
	if len(selected) == 0 {
		return fmt.Errorf("no row matches %q: the rows are\n  %s", pattern, strings.Join(names(), "\n  "))
	}
	setup := &Setup{wanted: matcher(pattern)}
	defer setup.Close()
	rows := []Row{}
	for _, g := range selected {
		got, err := g.Run(ctx, setup)
		if err != nil {
			return err
		}
		rows = append(rows, slices.DeleteFunc(got, func(r Row) bool { return !matcher(pattern)(r.Name) })...)
	}
	result := map[string]any{"machine": machine(), "rows": rows}
	if !asJSON {
		return table(os.Stdout, rows)
	}
	return json.NewEncoder(os.Stdout).Encode(result)
}

func names() (all []string) {
	for _, g := range groups {
		all = append(all, g.Names...)
	}
	return all
}

// matcher returns whether a name matches a pattern: an exact name, a glob by path.Match, or one
// whose last part ** stands for any number of parts.
func matcher(pattern string) func(string) bool {
	return func(name string) bool {
		if prefix, ok := strings.CutSuffix(pattern, "**"); ok || pattern == "" {
			return strings.HasPrefix(name, prefix)
		}
		// One star at the end is what people type for "all below".
		if prefix, ok := strings.CutSuffix(pattern, "/*"); ok && strings.HasPrefix(name, prefix+"/") {
			return true
		}
		matched, err := path.Match(pattern, name)
		return err == nil && matched
	}
}

// machine describes where the figures were measured.
func machine() map[string]any {
	cpu := "unknown"
	info, err := os.ReadFile("/proc/cpuinfo")
	if err == nil {
		for line := range strings.Lines(string(info)) {
			if name, value, ok := strings.Cut(line, ":"); ok && strings.TrimSpace(name) == "model name" {
				cpu = strings.TrimSpace(value)
				break
			}
		}
	}
	return map[string]any{"cpu": cpu, "cores": runtime.NumCPU(), "os": runtime.GOOS, "arch": runtime.GOARCH,
		"go": runtime.Version()}
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
