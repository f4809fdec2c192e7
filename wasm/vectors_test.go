package wasm_test

import (
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/tetratelabs/wazero"

	"github.com/doona-dp/doona/protocols/registry"
	"github.com/doona-dp/doona/wasm"
	"github.com/doona-dp/doona/wire/task"
)

// vectorDir is the folder of the test vectors; testdata/README.md describes the files.
var vectorDir = filepath.Join("..", "testdata", "v"+strconv.Itoa(task.Version))

// sourceBuffer is how many bytes a randomizer.Source requests from the host at once. The Go runtime requests fewer at
// once.
const sourceBuffer = 1024

// vectorBytes is a source of random bytes that gives a vector's bytes to the randomizer.
type vectorBytes struct{ rest []byte }

func (v *vectorBytes) Read(p []byte) (int, error) {
	clear(p)
	if len(p) == sourceBuffer {
		v.rest = v.rest[copy(p, v.rest):]
	}
	return len(p), nil
}

// startOn starts doona.wasm with a vector's bytes as its random bytes.
func startOn(t *testing.T, given []byte) *instance {
	return startWith(t, wasm.Browser, wazero.NewModuleConfig().WithRandSource(&vectorBytes{given}))
}

func unhex(t *testing.T, text string) []byte {
	t.Helper()
	out, err := hex.DecodeString(text)
	require.NoError(t, err)
	return out
}

func readVectors(t *testing.T, path string, v any) {
	t.Helper()
	text, err := os.ReadFile(path)
	require.NoError(t, err)
	require.NoError(t, json.Unmarshal(text, v))
}

// plaintexts encodes a vector's slots, by lane, as the module does (docs/wasm.md).
func plaintexts(t *testing.T, lanes [][]string, messageBytes int) (out []byte) {
	t.Helper()
	for _, slots := range lanes {
		out = binary.LittleEndian.AppendUint32(out, uint32(len(slots)))
		for _, slot := range slots {
			message := unhex(t, slot)
			if len(message) == 0 {
				out = append(out, make([]byte, 1+messageBytes)...)
				continue
			}
			out = append(append(out, 1), message...)
		}
	}
	return out
}

// TestVectors: with a vector's random bytes, doona.wasm produces the vector's slots, report after report. It refuses
// tasks whose parameters do not prove the claimed (ε, δ).
func TestVectors(t *testing.T) {
	files, err := filepath.Glob(filepath.Join(vectorDir, "*.json"))
	require.NoError(t, err)
	met := 0
	for _, path := range files {
		name := strings.TrimSuffix(filepath.Base(path), ".json")
		var vectors []struct {
			Name, Unproven, Task, Bytes string
			Reports                     []struct {
				Value []float64
				Slots [][]string
			}
		}
		if text, err := os.ReadFile(path); err != nil || !strings.Contains(string(text), `"slotsEnd"`) {
			require.NoError(t, err)
			continue
		}
		met++
		readVectors(t, path, &vectors)
		for _, v := range vectors {
			t.Run(name+"/"+v.Name, func(t *testing.T) {
				module, canonical := startOn(t, unhex(t, v.Bytes)), unhex(t, v.Task)
				parsed, err := task.Parse(canonical)
				require.NoError(t, err)
				handle, result := module.call("open", canonical)
				if v.Unproven != "" {
					require.Negative(t, handle)
					require.Equal(t, v.Unproven, texts(t, result)[0])
					return
				}
				require.GreaterOrEqual(t, handle, int32(0), "%s", result)
				for _, report := range v.Reports {
					status, slots := module.call("randomize", value(report.Value...), uint64(handle))
					require.Zero(t, status, "%s", slots)
					require.Equal(t, plaintexts(t, report.Slots, int(parsed.Slots.MessageBytes)), slots)
				}
			})
		}
	}
	require.Len(t, registry.All(), met, "every protocol must have vectors")
}

// TestSmallVectors: doona-small.wasm makes the slots of the vectors of its protocols. It refuses a task of another one
// by the field protocol, so that the host can load doona.wasm.
func TestSmallVectors(t *testing.T) {
	has := map[string]bool{"histogram": true, "realsum": true, "augmented": true}
	files, err := filepath.Glob(filepath.Join(vectorDir, "*.json"))
	require.NoError(t, err)
	made, refused := 0, 0
	for _, path := range files {
		var vectors []struct {
			Unproven, Task, Bytes string
			Reports               []struct {
				Value []float64
				Slots [][]string
			}
		}
		if text, err := os.ReadFile(path); err != nil || !strings.Contains(string(text), `"slotsEnd"`) {
			require.NoError(t, err)
			continue
		}
		readVectors(t, path, &vectors)
		for _, v := range vectors {
			config := wazero.NewModuleConfig().WithRandSource(&vectorBytes{unhex(t, v.Bytes)})
			module, canonical := startWith(t, wasm.Small, config), unhex(t, v.Task)
			parsed, err := task.Parse(canonical)
			require.NoError(t, err)
			handle, result := module.call("open", canonical)
			if !has[parsed.Protocol] {
				require.Negative(t, handle)
				require.Equal(t, "protocol", texts(t, result)[0])
				refused++
				continue
			}
			if v.Unproven != "" {
				require.Negative(t, handle)
				require.Equal(t, v.Unproven, texts(t, result)[0])
				continue
			}
			require.GreaterOrEqual(t, handle, int32(0), "%s", result)
			for _, report := range v.Reports {
				status, slots := module.call("randomize", value(report.Value...), uint64(handle))
				require.Zero(t, status, "%s", slots)
				require.Equal(t, plaintexts(t, report.Slots, int(parsed.Slots.MessageBytes)), slots)
			}
			made++
		}
	}
	require.Greater(t, made, 5)
	require.Greater(t, refused, 5)
}

// TestVectorsBad: doona.wasm refuses the invalid tasks and values in the vectors bad_*.json, and the error names the
// field.
func TestVectorsBad(t *testing.T) {
	files, err := filepath.Glob(filepath.Join(vectorDir, "bad_*.json"))
	require.NoError(t, err)
	module := start(t, wasm.Browser)
	met := map[string]int{}
	for _, path := range files {
		var fault struct {
			Kind, Expect, Task string
			Value              json.RawMessage
		}
		readVectors(t, path, &fault)
		if fault.Kind != "mechanism" && fault.Kind != "value" && fault.Kind != "task" {
			continue
		}
		met[fault.Kind]++
		t.Run(filepath.Base(path), func(t *testing.T) {
			handle, result := module.call("open", unhex(t, fault.Task))
			if fault.Kind == "value" {
				require.GreaterOrEqual(t, handle, int32(0), "%s", result)
				var x []float64
				require.NoError(t, json.Unmarshal(fault.Value, &x))
				handle, result = module.call("randomize", value(x...), uint64(handle))
			}
			require.Negative(t, handle)
			said, isField := strings.CutPrefix(fault.Expect, "field:")
			if fault.Kind != "task" || isField {
				require.Equal(t, said, texts(t, result)[0])
			}
		})
	}
	require.Greater(t, met["mechanism"], 20)
	require.Greater(t, met["value"], 7)
	require.Greater(t, met["task"], 20)
}
