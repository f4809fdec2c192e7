package clitest

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/doona-dp/doona/internal/testing/stattest"
)

// Limits of a run. CPU time and not the clock is measured, so other processes cannot make a run late. They can make it
// use more CPU time, by sharing caches and cores. So a run above quick is repeated, its best run counts, and only slow
// fails.
const (
	quick   = time.Second
	slow    = 3 * quick
	repeats = 3
	most    = 500 << 20 // bytes of memory
)

// guard runs a command that ends for certain: it may use $0 seconds of CPU time, and 2 GB of memory.
const guard = `ulimit -t $0; ulimit -d 2097152; exec "$@"`

const (
	guarded = "20" // s of a run
	slowly  = "60" // s of a run that may be slow
	working = "2"  // s of a run that only does the work that the user asks for
)

// bench runs variations of command lines.
type bench struct {
	Examples
	dir      string
	cases    []variation
	seen     map[string]bool
	answers  *regexp.Regexp
	slow     *regexp.Regexp
	mu       sync.Mutex
	answered map[string]bool // By command and flag.
	slowest  []string
}

// pattern compiles a regular expression. An empty one matches no text.
func pattern(expression string) *regexp.Regexp {
	return regexp.MustCompile(cmp.Or(expression, `$^\w`))
}

func newBench(t *testing.T, e Examples) *bench {
	b := &bench{Examples: e, dir: t.TempDir(), seen: map[string]bool{}, answered: map[string]bool{}}
	b.answers, b.slow = pattern(e.Answers), pattern(e.Slow)
	given := filepath.Join(b.dir, "given")
	require.NoError(t, os.Mkdir(given, 0o700))
	setup := exec.CommandContext(t.Context(), "sh", "-ec", e.Setup)
	setup.Dir = given
	out, err := setup.CombinedOutput()
	require.NoError(t, err, "%s", out)
	return b
}

func (b *bench) add(v variation) {
	if line := strings.Join(v.words, " "); !b.seen[line] {
		b.seen[line] = true
		b.cases = append(b.cases, v)
	}
}

// run runs all variations, and fails the test for each that is wrong.
func (b *bench) run(t *testing.T) {
	require.True(t, slices.ContainsFunc(b.cases, func(v variation) bool {
		return v.flags != nil && !b.slow.MatchString(v.String())
	}), "no number is varied in a line that must be quick")
	var running sync.WaitGroup
	slots := make(chan struct{}, runtime.GOMAXPROCS(0))
	for i, v := range b.cases {
		slots <- struct{}{}
		running.Go(func() {
			dir := filepath.Join(b.dir, fmt.Sprint(i))
			if fault := b.try(t.Context(), dir, v); fault != "" {
				t.Errorf("%s: %s", v, fault)
			}
			os.RemoveAll(dir)
			<-slots
		})
	}
	running.Wait()
	slices.Sort(b.slowest)
	t.Logf("%d command lines; more than %v of CPU time:\n%s", len(b.cases), quick, strings.Join(b.slowest, "\n"))
	if stattest.Long {
		for _, v := range b.cases {
			for _, flag := range v.flags {
				require.True(t, b.answered[v.command()+flag], "%s: no line answers for --%s", v.command(), flag)
			}
		}
	}
}

// command returns the words of a variation before its first flag: the program and its command.
func (v variation) command() string {
	before, _, _ := strings.Cut(v.line, " --")
	return before
}

// outcome is what a run printed and cost.
type outcome struct {
	status         int
	stdout, stderr string
	cpu            time.Duration
	memory         int64
}

// try runs a variation and returns what is wrong with the outcome.
func (b *bench) try(ctx context.Context, dir string, v variation) string {
	var best outcome
	for i := range repeats {
		if err := os.MkdirAll(dir, 0o700); err != nil {
			return err.Error()
		}
		o, err := measure(ctx, dir, v, b.seconds(v))
		if err != nil {
			return err.Error()
		}
		if i == 0 || o.cpu < best.cpu {
			best = o
		}
		if best.cpu <= quick || b.works(v) || b.slow.MatchString(v.String()) {
			break
		}
		os.RemoveAll(dir)
	}
	fault := b.judge(v, best)
	b.mu.Lock()
	defer b.mu.Unlock()
	if fault == "" && (best.status == 0 || b.answers.MatchString(best.stderr)) {
		for _, flag := range slices.Concat(v.flags, v.gives) {
			b.answered[v.command()+flag] = true
		}
	}
	if best.cpu > quick {
		b.slowest = append(b.slowest, fmt.Sprintf("%5.1f s %4d MB %s", best.cpu.Seconds(), best.memory>>20, v))
	}
	return fault
}

// works reports whether a variation asks for an amount of work.
func (b *bench) works(v variation) bool {
	return slices.ContainsFunc(v.flags, func(flag string) bool { return slices.Contains(b.Work, flag) })
}

// seconds returns how much CPU time a variation may use before it is stopped.
func (b *bench) seconds(v variation) string {
	switch {
	case b.works(v):
		return working
	case b.slow.MatchString(v.String()):
		return slowly
	}
	return guarded
}

// measure runs a variation in a folder, for some seconds of CPU time. It stops a server once the server serves.
func measure(ctx context.Context, dir string, v variation, seconds string) (o outcome, err error) {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Minute) // A server that never says that it serves.
	defer cancel()
	cmd := exec.CommandContext(ctx, "sh", append([]string{"-c", guard, seconds}, v.words...)...)
	cmd.Dir = dir
	var stdout, stderr watched
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	var served atomic.Bool
	_, until, serves := strings.Cut(v.line, until)
	if serves {
		pattern := regexp.MustCompile(until)
		stop := func(text []byte) {
			// A second signal would kill a server that drains.
			if pattern.Match(text) && served.CompareAndSwap(false, true) {
				cmd.Process.Signal(syscall.SIGTERM)
			}
		}
		stdout.each, stderr.each = stop, stop
	}
	if err := cmd.Run(); cmd.ProcessState == nil {
		return o, err
	}
	state := cmd.ProcessState
	if serves && state.Success() && !served.Load() {
		return o, errors.New("the server ends before it serves")
	}
	o = outcome{state.ExitCode(), string(stdout.text), string(stderr.text), state.UserTime() + state.SystemTime(), 0}
	// Linux also counts the memory of this test process, until exec. Some platforms do not have the field.
	if usage := reflect.Indirect(reflect.ValueOf(state.SysUsage())); usage.Kind() == reflect.Struct {
		if field := usage.FieldByName("Maxrss"); field.IsValid() {
			o.memory = field.Int() << 10
		}
	}
	return o, nil
}

// watched keeps what is written to it, and calls each with all of it after each write.
type watched struct {
	text []byte
	each func(text []byte)
}

func (w *watched) Write(p []byte) (int, error) {
	w.text = append(w.text, p...)
	if w.each != nil {
		w.each(w.text)
	}
	return len(p), nil
}

var (
	panicked  = regexp.MustCompile(`(?m)^(panic:|fatal error:|runtime: |goroutine \d+ |SIG[A-Z]+:)`)
	noNumber  = regexp.MustCompile(`(^|[^\w.-])([+-]?Inf|NaN)\b`)
	inPlace   = regexp.MustCompile(`line \d+, column \d+: invalid character`)          // no JSON
	saysRange = regexp.MustCompile(`(?s)want (no|.*\d)|(\[|line )\d+(:|, column )\d+`) // or the place in a file
)

// judge returns what is wrong with an outcome, or "".
func (b *bench) judge(v variation, o outcome) string {
	said := strings.TrimSpace(o.stderr)
	if len(said) > 800 {
		said = said[:800]
	}
	switch {
	case panicked.MatchString(o.stderr):
		return "panic: " + said
	case b.works(v) && o.status < 0 && o.memory < most:
		return ""
	case o.status < 0 || o.cpu > slow && !b.slow.MatchString(v.String()):
		return fmt.Sprintf("%.1f s of CPU time; status %d: %s", o.cpu.Seconds(), o.status, said)
	case o.memory > most:
		return fmt.Sprintf("%d MB", o.memory>>20)
	case o.status == 0 || o.status == 1 && b.answers.MatchString(o.stderr):
		if m := noNumber.FindString(o.stdout); m != "" {
			return fmt.Sprintf("prints %q: %.500s", m, o.stdout)
		}
		return ""
	case v.flags == nil:
		return fmt.Sprintf("the line itself fails with status %d: %s", o.status, said)
	}
	for _, flag := range v.flags {
		// A flag --max-dummies is a key max_dummies of a file, and a flag --param is in a task's params.
		name := strings.ReplaceAll(regexp.QuoteMeta(flag), "_", "[-_]")
		names := regexp.MustCompile(`\b` + name + `s?\b`)
		named := names.MatchString(o.stderr) || v.note != "" && inPlace.MatchString(o.stderr)
		if named && saysRange.MatchString(o.stderr) {
			return ""
		}
	}
	return fmt.Sprintf("status %d, want an error that names a varied flag and its range: %s", o.status, said)
}
