package wasm_test

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"flag"
	"maps"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/stretchr/testify/require"
	"github.com/tetratelabs/wazero"
	"github.com/tetratelabs/wazero/api"
	"github.com/tetratelabs/wazero/experimental"
	"github.com/tetratelabs/wazero/sys"

	"github.com/doona-dp/doona/internal/testing/stattest"
	"github.com/doona-dp/doona/wasm"
	"github.com/doona-dp/doona/wasm/postlink"
	"github.com/doona-dp/doona/wire/task"
)

// With -ran the tests run doona.wasm with all its functions and add the runtime functions that ran to ran.txt. Run all
// tests with -tags long: functions that run in no test are emptied.
var rewriteRan = flag.Bool("ran", false, "write ran.txt")

// trace collects the names of runtime functions that ran, if -ran is given.
var trace = struct {
	sync.Mutex
	names map[string]bool
}{names: map[string]bool{}}

// traced returns a context in which compiled modules add the runtime functions that run to trace.
func traced(ctx context.Context) context.Context {
	return experimental.WithFunctionListenerFactory(ctx, experimental.FunctionListenerFactoryFunc(
		func(f api.FunctionDefinition) experimental.FunctionListener {
			name, noted := f.Name(), false
			if !postlink.Traced(name) {
				return nil
			}
			return experimental.FunctionListenerFunc(func(context.Context, api.Module, api.FunctionDefinition,
				[]uint64, experimental.StackIterator) {
				if !noted {
					noted = true
					trace.Lock()
					trace.names[name] = true
					trace.Unlock()
				}
			})
		}))
}

// writeRan adds the traced names to ran.txt. It keeps the names there, as some functions run only in some test runs.
// For another toolchain, empty ran.txt first.
func writeRan() error {
	old, err := os.ReadFile(filepath.Join("postlink", "ran.txt"))
	if err != nil {
		return err
	}
	for _, name := range strings.Fields(string(old)) {
		trace.names[name] = true
	}
	names := slices.Sorted(maps.Keys(trace.names))
	return os.WriteFile(filepath.Join("postlink", "ran.txt"), []byte(strings.Join(names, "\n")+"\n"), 0o644)
}

// TestDamagedTasks: doona.wasm refuses damaged tasks with an error. No damaged task may stop the module.
func TestDamagedTasks(t *testing.T) {
	n := 500
	if stattest.Long {
		n = 100_000
	}
	module, accepted := start(t, wasm.Browser), 0
	for _, c := range fuzzcases(t, n) {
		handle, result := module.call("open", c.canonical)
		require.Equal(t, c.accept, handle >= 0, "%x: %s", c.canonical, result)
		if c.accept {
			accepted++
		}
	}
	require.Positive(t, accepted)
}

// fuzzcase is a damaged task, and whether it is valid nevertheless.
type fuzzcase struct {
	canonical []byte
	accept    bool
}

// fuzzcases returns damaged tasks. n is the number of all damaged documents, of which tasks are some.
func fuzzcases(t *testing.T, n int) (all []fuzzcase) {
	out, err := exec.Command("go", "run", "./fuzzcases", "-n", strconv.Itoa(n), "-seed",
		strconv.FormatUint(rand.Uint64(), 10)).Output()
	require.NoError(t, err)
	for line := range bytes.Lines(out) {
		var c struct {
			Kind, Bytes string
			Accept      bool
		}
		require.NoError(t, json.Unmarshal(line, &c))
		if c.Kind == "task" {
			canonical, err := base64.StdEncoding.DecodeString(c.Bytes)
			require.NoError(t, err)
			all = append(all, fuzzcase{canonical, c.Accept})
		}
	}
	return all
}

// TestSoak opens every task of the vectors and randomizes values repeatedly, while memory fills and the clock stops,
// runs and jumps. It fails if doona.wasm needs an emptied function.
func TestSoak(t *testing.T) {
	reports := 20_000
	if stattest.Long {
		reports = 1_000_000
	}
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	r := rand.New(rand.NewPCG(seed, 0))
	module, now := startClock(t)
	tasks := soakTasks(t)
	handles := make([]uint64, len(tasks))
	for i := range reports {
		j := i % len(tasks)
		if i < len(tasks) || r.IntN(2000) == 0 {
			handle, result := module.call("open", tasks[j].canonical)
			require.GreaterOrEqual(t, handle, int32(0), "%s", result)
			handles[j] = uint64(handle)
		}
		x := tasks[j].values[r.IntN(len(tasks[j].values))]
		status, result := module.call("randomize", value(x...), handles[j])
		require.Zero(t, status, "%s", result)
		*now += leaps[r.IntN(len(leaps))] * time.Duration(r.IntN(1000))
	}
}

// TestGrowth checks how much memory a task and a report take, against the limits in docs/wasm.md.
func TestGrowth(t *testing.T) {
	const mostOpened, mostReport, reports = 4_000_000, 30_000, 200
	opened, report := uint32(0), uint32(0)
	for _, s := range soakTasks(t) {
		module := start(t, wasm.Browser)
		size := module.module.Memory().Size
		begin := size()
		handle, result := module.call("open", s.canonical)
		require.GreaterOrEqual(t, handle, int32(0), "%s", result)
		filled := size()
		for i := range reports {
			status, result := module.call("randomize", value(s.values[i%len(s.values)]...), uint64(handle))
			require.Zero(t, status, "%s", result)
		}
		opened, report = max(opened, filled-begin), max(report, (size()-filled)/reports)
	}
	t.Logf("at most %d bytes a task and %d a report", opened, report)
	require.LessOrEqual(t, opened, uint32(mostOpened))
	require.LessOrEqual(t, report, uint32(mostReport))
	require.Positive(t, report)
}

// leaps are the units of the clock's jumps. Each jump is 0 to 999 of one unit.
var leaps = []time.Duration{0, time.Microsecond, 10 * time.Microsecond, time.Millisecond, 3600 * time.Millisecond}

func startClock(t *testing.T) (*instance, *time.Duration) {
	now := new(time.Duration)
	*now = time.Second // the Go runtime refuses a clock at 0
	config := wazero.NewModuleConfig().WithRandSource(source()).
		WithNanotime(func() int64 { return int64(*now) }, sys.ClockResolution(1000))
	return startWith(t, wasm.Browser, config), now
}

type soakTask struct {
	name      string
	canonical []byte
	values    [][]float64
}

// soakTasks returns the tasks in the vectors that the module accepts, for all protocols, with values for them.
func soakTasks(t *testing.T) (all []soakTask) {
	files, err := filepath.Glob(filepath.Join(vectorDir, "*.json"))
	require.NoError(t, err)
	for _, path := range files {
		text, err := os.ReadFile(path)
		require.NoError(t, err)
		if !strings.Contains(string(text), `"slotsEnd"`) {
			continue
		}
		var vectors []struct {
			Name, Unproven, Task string
			Reports              []struct{ Value []float64 }
		}
		require.NoError(t, json.Unmarshal(text, &vectors))
		for _, v := range vectors {
			if v.Unproven != "" {
				continue
			}
			s := soakTask{name: v.Name, canonical: unhex(t, v.Task)}
			for _, report := range v.Reports {
				s.values = append(s.values, report.Value)
			}
			parsed, err := task.Parse(s.canonical)
			require.NoError(t, err)
			if parsed.Query == task.Strings { // texts of any length, as a page may post them
				for n := range int(parsed.Input.Bins) + utf8.UTFMax + 1 {
					s.values = append(s.values, slices.Repeat([]float64{'a'}, n))
				}
			}
			all = append(all, s)
		}
	}
	require.Greater(t, len(all), 10)
	return all
}
