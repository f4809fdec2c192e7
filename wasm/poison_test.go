package wasm_test

import (
	"context"
	"encoding/hex"
	"encoding/json"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/tetratelabs/wazero"
	"github.com/tetratelabs/wazero/sys"

	"github.com/doona-dp/doona/internal/testing/stattest"
	"github.com/doona-dp/doona/wasm"
	"github.com/doona-dp/doona/wasm/postlink"
)

// linkedOnce returns a module as the linker writes it.
var linkedOnce = map[wasm.Module]func() ([]byte, error){
	wasm.Browser: sync.OnceValues(func() ([]byte, error) { return linkSymbols(wasm.Browser) }),
	wasm.Small:   sync.OnceValues(func() ([]byte, error) { return linkSymbols(wasm.Small) }),
	wasm.Set:     sync.OnceValues(func() ([]byte, error) { return linkSymbols(wasm.Set) }),
}

func linkSymbols(m wasm.Module) ([]byte, error) {
	dir, err := os.MkdirTemp("", "doona-linked")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	file := filepath.Join(dir, "linked.wasm")
	if err := wasm.LinkSymbols(context.Background(), m, file); err != nil {
		return nil, err
	}
	return os.ReadFile(file)
}

// frozen compiles a module with other steps after linking.
func frozen(t *testing.T, m wasm.Module, o wasm.Options) wazero.CompiledModule {
	linked, err := linkedOnce[m]()
	require.NoError(t, err)
	module, err := postlink.Freeze(t.Context(), linked, o)
	require.NoError(t, err)
	code, err := engine.CompileModule(t.Context(), module)
	require.NoError(t, err)
	t.Cleanup(func() { code.Close(context.Background()) })
	return code
}

// pair is two modules that must do the same, with the same random bytes and the same clock.
type pair struct {
	t   *testing.T
	all [2]*instance
	now time.Duration
}

func startPair(t *testing.T, seed uint64, codes ...wazero.CompiledModule) *pair {
	p := &pair{t: t, now: time.Second}
	for i, code := range codes {
		key := [32]byte{byte(seed), byte(seed >> 8), byte(seed >> 16), byte(seed >> 24)}
		config := wazero.NewModuleConfig().WithRandSource(rand.NewChaCha8(key)).
			WithNanotime(func() int64 { return int64(p.now) }, sys.ClockResolution(1000))
		p.all[i] = startCode(t, code, config)
	}
	return p
}

// answer is everything that a call of a module returns to its host.
type answer struct {
	status   int32
	result   string
	epsilons [3]uint64
}

// stopped is the status of a call that stopped the module.
const stopped = math.MinInt32

// same makes the same call of both modules. It returns the answer of the first, and whether both answer, and the same.
func (p *pair) same(export string, argument []byte, args ...uint64) (first answer, same bool) {
	answers := [2]answer{}
	for i, m := range p.all {
		func() {
			defer func() {
				if recover() != nil {
					answers[i].status = stopped
				}
			}()
			answers[i] = m.answer(export, argument, args...)
		}()
	}
	return answers[0], answers[0] == answers[1] && answers[0].status != stopped
}

// answer panics if the module stops.
func (i *instance) answer(export string, argument []byte, args ...uint64) answer {
	export64 := func(name string, args ...uint64) uint64 {
		out, err := i.module.ExportedFunction(name).Call(context.Background(), args...)
		if err != nil {
			panic(err)
		}
		return out[0]
	}
	if i.module.Memory().Size() > i.enough {
		i.restart()
	}
	if !i.module.Memory().Write(uint32(export64("input", uint64(len(argument)))), argument) {
		panic("no memory")
	}
	out := answer{status: int32(export64(export, args...))}
	result, ok := i.module.Memory().Read(uint32(export64("result")), uint32(export64("result_size")))
	if !ok {
		panic("no result")
	}
	out.result = string(result)
	if export == "open" && out.status >= 0 {
		i.opened = append(i.opened, argument)
		handle := uint64(out.status)
		out.epsilons = [3]uint64{export64("epsilon0", handle), export64("total_epsilon", handle),
			export64("epsilon_within", handle, 3, math.Float64bits(1e-6))}
	}
	return out
}

// difference opens all tasks of the vectors, the damaged ones too, randomizes values, and returns the first call in
// which the modules differ. reports and damaged say how many.
func (p *pair) difference(seed uint64, reports, damaged int) string {
	r := rand.New(rand.NewPCG(seed, 1))
	for _, file := range badTasks(p.t) {
		if _, same := p.same("open", file.canonical); !same {
			return "bad task " + file.name
		}
	}
	for _, c := range fuzzcases(p.t, damaged) {
		if _, same := p.same("open", c.canonical); !same {
			return "damaged task " + hex.EncodeToString(c.canonical)
		}
	}
	var tasks []soakTask
	var handles []uint64
	for _, task := range soakTasks(p.t) {
		opened, same := p.same("open", task.canonical)
		if !same {
			return "task " + task.name
		}
		if opened.status >= 0 { // doona-small.wasm refuses other protocols
			tasks, handles = append(tasks, task), append(handles, uint64(opened.status))
		}
	}
	require.Greater(p.t, len(tasks), 3)
	for i := range reports {
		j := i % len(tasks)
		if r.IntN(2000) == 0 {
			opened, same := p.same("open", tasks[j].canonical)
			if !same {
				return "task " + tasks[j].name + " again"
			}
			handles[j] = uint64(opened.status)
		}
		x := value(tasks[j].values[r.IntN(len(tasks[j].values))]...)
		if r.IntN(20) == 0 { // a refusal, for most tasks
			x = append(x, value(math.NaN())...)
		}
		if _, same := p.same("randomize", x, handles[j]); !same {
			return "report of " + tasks[j].name
		}
		p.now += leaps[r.IntN(len(leaps))] * time.Duration(r.IntN(1000))
	}
	return ""
}

type badTask struct {
	name      string
	canonical []byte
}

func badTasks(t *testing.T) (all []badTask) {
	files, err := filepath.Glob(filepath.Join(vectorDir, "bad_*.json"))
	require.NoError(t, err)
	for _, path := range files {
		var fault struct{ Kind, Task string }
		text, err := os.ReadFile(path)
		require.NoError(t, err)
		if json.Unmarshal(text, &fault) == nil && slices.Contains([]string{"mechanism", "task"}, fault.Kind) {
			all = append(all, badTask{strings.TrimSuffix(filepath.Base(path), ".json"), unhex(t, fault.Task)})
		}
	}
	require.Greater(t, len(all), 40)
	return all
}

// TestUnreachedDataIsUnused: doona.wasm with a pattern in all memory that the steps after linking clear makes the same
// reports, claims and refusals, byte by byte, as doona.wasm. So no call read any byte that was cleared. The long form
// also compares with a module in which no data are cleared, and does the same for the two smaller modules.
func TestUnreachedDataIsUnused(t *testing.T) {
	if !stattest.Long {
		poisoned := frozen(t, wasm.Browser, wasm.Options{Poison: postlink.Poison})
		require.Empty(t, startPair(t, 1, compiled[wasm.Browser], poisoned).difference(rand.Uint64(), 5000, 200))
		return
	}
	const reports, damaged = 1_000_000, 20_000 // a half of the damaged documents are tasks
	for _, m := range []wasm.Module{wasm.Browser, wasm.Small, wasm.Set} {
		t.Run(string(m), func(t *testing.T) {
			seed := rand.Uint64()
			t.Logf("seed %d", seed)
			poisoned := frozen(t, m, wasm.Options{Poison: postlink.Poison})
			whole := frozen(t, m, wasm.Options{Without: []postlink.Step{postlink.Data}})
			require.Empty(t, startPair(t, seed, whole, poisoned).difference(seed, reports, damaged))
			require.Empty(t, startPair(t, seed, whole, compiled[m]).difference(seed, reports/10, damaged))
		})
	}
}

// TestPlantedClearingIsFound: TestUnreachedDataIsUnused fails if a step clears data that something reaches. The short
// form plants one of these, the long form all: the methods of an interface, a table of numbers, and a type.
func TestPlantedClearingIsFound(t *testing.T) {
	const path = "github.com/doona-dp/doona/protocols"
	symbols := []string{"go:itab.*" + path + "/histogram.Mechanism," + path + ".Mechanism",
		"math._sin", "type:uint8"}
	if !stattest.Long {
		symbols = symbols[:1]
	}
	for _, symbol := range symbols {
		t.Run(symbol, func(t *testing.T) {
			planted := frozen(t, wasm.Browser, wasm.Options{Poison: postlink.Poison, Plant: []string{symbol}})
			require.NotEmpty(t, startPair(t, 1, compiled[wasm.Browser], planted).difference(1, 2000, 100))
		})
	}
}
