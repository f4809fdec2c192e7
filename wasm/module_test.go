package wasm_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"io"
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/tetratelabs/wazero"
	"github.com/tetratelabs/wazero/api"

	"github.com/doona-dp/doona/internal/testing/fixture"
	"github.com/doona-dp/doona/protocols"
	"github.com/doona-dp/doona/protocols/registry"
	"github.com/doona-dp/doona/randomizer"
	"github.com/doona-dp/doona/wasm"
	"github.com/doona-dp/doona/wire/onion"
	"github.com/doona-dp/doona/wire/task"
)

// instance is a running module. The test plays its host as docs/wasm.md describes.
type instance struct {
	t      *testing.T
	code   wazero.CompiledModule
	config wazero.ModuleConfig
	module api.Module
	opened [][]byte // The tasks, by handle.
	enough uint32   // The memory size in bytes at which the test restarts the module.
}

func start(t *testing.T, module wasm.Module) *instance {
	return startWith(t, module, wazero.NewModuleConfig().WithRandSource(source()))
}

func startWith(t *testing.T, module wasm.Module, config wazero.ModuleConfig) *instance {
	return startCode(t, compiled[module], config)
}

func startCode(t *testing.T, code wazero.CompiledModule, config wazero.ModuleConfig) *instance {
	i := &instance{t: t, code: code, config: config.WithName("").WithStartFunctions("_initialize")}
	i.restart()
	t.Cleanup(func() { i.module.Close(context.Background()) })
	return i
}

// restart starts a new instance of the module and opens the same tasks in it.
func (i *instance) restart() {
	if i.module != nil {
		require.NoError(i.t, i.module.Close(context.Background()))
	}
	var err error
	i.module, err = engine.InstantiateModule(context.Background(), i.code, i.config)
	require.NoError(i.t, err)
	opened := i.opened
	i.opened, i.enough = nil, math.MaxUint32
	for handle, canonical := range opened {
		got, result := i.call("open", canonical)
		require.EqualValues(i.t, handle, got, "%s", result)
	}
	i.enough = i.module.Memory().Size() + wasm.MostGrowth
	if *rewriteRan { // so that ran.txt also lists what runs in a larger memory
		i.enough += 7 * wasm.MostGrowth
	}
}

func source() io.Reader { return randomizer.NewSource() }

func (i *instance) export(name string, args ...uint64) uint64 {
	out, err := i.module.ExportedFunction(name).Call(context.Background(), args...)
	require.NoError(i.t, err)
	return out[0]
}

// call writes an argument to the module, calls an export and returns the export's value and its result.
func (i *instance) call(name string, argument []byte, args ...uint64) (int32, []byte) {
	if i.module.Memory().Size() > i.enough {
		i.restart()
	}
	address := i.export("input", uint64(len(argument)))
	require.True(i.t, i.module.Memory().Write(uint32(address), argument))
	status := int32(i.export(name, args...))
	result, ok := i.module.Memory().Read(uint32(i.export("result")), uint32(i.export("result_size")))
	require.True(i.t, ok)
	if name == "open" && status >= 0 {
		i.opened = append(i.opened, argument)
	}
	return status, bytes.Clone(result)
}

func (i *instance) open(t *task.Task) uint64 {
	handle, result := i.call("open", t.Canonical())
	require.GreaterOrEqual(i.t, handle, int32(0), "%s", result)
	return uint64(handle)
}

func value(v ...float64) []byte {
	out := []byte{}
	for _, x := range v {
		out = binary.LittleEndian.AppendUint64(out, math.Float64bits(x))
	}
	return out
}

// texts decodes an error result into its strings.
func texts(t *testing.T, result []byte) (out []string) {
	for len(result) > 0 {
		n := binary.LittleEndian.Uint32(result)
		out = append(out, string(result[4:4+n]))
		result = result[4+n:]
	}
	return out
}

func signed(t *testing.T, draft *task.Task, relays ...string) *fixture.SignedTask {
	if len(relays) == 0 {
		relays = []string{"https://a.example", "https://b.example"}
	}
	epochs := task.Epochs{Start: uint64(time.Now().Unix()), Length: 3600, Count: 2}
	f, err := fixture.Sign(draft, relays, epochs)
	require.NoError(t, err)
	return f
}

// TestRandomizeDistribution compares 40,000 reports of doona.wasm with the randomizer's exact probabilities. Pearson's
// statistic with 3 degrees of freedom exceeds the limit 33.4 once in 3·10⁶ runs.
func TestRandomizeDistribution(t *testing.T) {
	f := signed(t, fixture.Draft(task.Histogram, 4))
	mechanism, err := registry.Open(f.Task)
	require.NoError(t, err)
	module := start(t, wasm.Browser)
	handle := module.open(f.Task)
	require.Equal(t, mechanism.Epsilon0(), math.Float64frombits(module.export("epsilon0", handle)))
	total, err := protocols.EpochsSpend(f.Task, mechanism.Law, f.Epochs.Count)
	require.NoError(t, err)
	require.InEpsilon(t, total.Epsilon, math.Float64frombits(module.export("total_epsilon", handle)), 1e-9)
	within, err := protocols.EpochsEpsilon(f.Task, mechanism.Law, 30, 2e-6)
	require.NoError(t, err)
	got := module.export("epsilon_within", handle, 30, math.Float64bits(2e-6))
	require.InEpsilon(t, within, math.Float64frombits(got), 1e-9)
	require.True(t, math.IsNaN(math.Float64frombits(module.export("epsilon_within", 7, 30, math.Float64bits(2e-6)))))

	const n, x = 40000, 2
	counts := [4]float64{}
	for range n {
		status, slots := module.call("randomize", value(x), handle)
		require.Zero(t, status)
		require.Equal(t, []byte{1, 0, 0, 0, 1}, slots[:5], "the lane must hold one slot with a message")
		require.Len(t, slots, 6)
		counts[slots[5]]++
	}
	gamma, _ := f.Param("gamma")
	statistic := 0.0
	for y, got := range counts {
		want := n * gamma.Float64() / 4
		if y == x {
			want += n * (1 - gamma.Float64())
		}
		statistic += (got - want) * (got - want) / want
	}
	require.Less(t, statistic, 33.4, "counts %v at gamma %v", counts, gamma)
}

func TestErrorsNameTheField(t *testing.T) {
	module := start(t, wasm.Browser)
	f := signed(t, fixture.Draft(task.Histogram, 4))
	lie := *f.Task
	lie.Claim.Epsilon = task.NewEpsilon("0.9")
	unknown := *f.Task
	unknown.Protocol = "astrology"
	handle := module.open(f.Task)

	for name, c := range map[string]struct {
		export   string
		argument []byte
		args     []uint64
		want     string
	}{
		"claim":     {"open", lie.Canonical(), nil, "claim.delta"},
		"protocol":  {"open", unknown.Canonical(), nil, "protocol"},
		"truncated": {"open", f.Canonical()[:40], nil, "couldn't parse the task: truncated"},
		"trailing":  {"open", append(f.Canonical(), 0), nil, "couldn't parse the task: trailing bytes"},
		"domain":    {"randomize", value(4), []uint64{handle}, "value"},
		"NaN":       {"randomize", value(math.NaN()), []uint64{handle}, "value"},
		"shape":     {"randomize", value(1, 2), []uint64{handle}, "value"},
		"empty":     {"randomize", nil, []uint64{handle}, "value"},
		"handle":    {"randomize", value(1), []uint64{77}, "unknown handle"},
	} {
		t.Run(name, func(t *testing.T) {
			status, result := module.call(c.export, c.argument, c.args...)
			require.Equal(t, int32(-1), status)
			require.Equal(t, c.want, texts(t, result)[0])
		})
	}
	status, _ := module.call("randomize", value(1), handle)
	require.Zero(t, status, "the module must still work after an error")
}

// TestArgumentIsForgotten: after a call the raw value is gone from the buffer to which the host wrote it.
func TestArgumentIsForgotten(t *testing.T) {
	module := start(t, wasm.Browser)
	handle := module.open(signed(t, fixture.Draft(task.Histogram, 4)).Task)
	address := uint32(module.export("input", 8))
	require.True(t, module.module.Memory().Write(address, value(3)))
	module.export("randomize", handle)
	left, _ := module.module.Memory().Read(address, 8)
	require.Equal(t, make([]byte, 8), left)
}

// TestValueIsForgotten: the coordinates of a randomized vector are gone from the module's memory. Up to 4 of 100 may
// remain on the stack, which the next call overwrites.
func TestValueIsForgotten(t *testing.T) {
	for query, lo := range map[task.Query]float64{task.Vector: 0, task.VectorMean: -1} {
		t.Run(string(query), func(t *testing.T) {
			module := start(t, wasm.Browser)
			handle := module.open(signed(t, fixture.Draft(query, 100)).Task)
			vector := make([]float64, 100)
			for i := range vector {
				vector[i] = (float64(i) + 0.123456789) / 1234
			}
			argument := value(vector...)
			address := uint32(module.export("input", uint64(len(argument))))
			require.True(t, module.module.Memory().Write(address, argument))
			require.Equal(t, 100, module.occurrences(argument), "the search must find the coordinates before the call")
			require.Zero(t, int32(module.export("randomize", handle)))
			module.export("input", 0)
			mapped := make([]float64, len(vector))
			for i, x := range vector {
				mapped[i] = (x - lo) / (1 - lo)
			}
			require.LessOrEqual(t, module.occurrences(argument), 4)
			require.LessOrEqual(t, module.occurrences(value(mapped...)), 4)
		})
	}
}

// occurrences counts how many of the doubles in p occur anywhere in the module's memory.
func (i *instance) occurrences(p []byte) (found int) {
	memory, ok := i.module.Memory().Read(0, i.module.Memory().Size())
	require.True(i.t, ok)
	for at := 0; at < len(p); at += 8 {
		if bytes.Contains(memory, p[at:at+8]) {
			found++
		}
	}
	return found
}

// TestNoRandomBytes: doona.wasm stops if its host gives no random bytes. It must not send plain values or use bytes
// drawn when it was built.
func TestNoRandomBytes(t *testing.T) {
	module := startWith(t, wasm.Browser, wazero.NewModuleConfig().WithRandSource(failing{}))
	handle := module.open(signed(t, fixture.Draft(task.Histogram, 4)).Task)
	module.export("input", 8)
	_, err := module.module.ExportedFunction("randomize").Call(context.Background(), handle)
	require.Error(t, err)
}

type failing struct{}

func (failing) Read([]byte) (int, error) { return 0, errors.New("no entropy") }

// TestDrawsAreTheHosts: all of a report's randomness comes from the host. Two instances with the same bytes must make
// the same reports, and with other bytes different reports.
func TestDrawsAreTheHosts(t *testing.T) {
	f := signed(t, fixture.Draft(task.Histogram, 1000))
	reports := func(seed byte) (all []byte) {
		config := wazero.NewModuleConfig().WithRandSource(rand.NewChaCha8([32]byte{seed}))
		module := startWith(t, wasm.Browser, config)
		handle := module.open(f.Task)
		for range 1000 {
			status, slots := module.call("randomize", value(1), handle)
			require.Zero(t, status)
			all = append(all, slots...)
		}
		return all
	}
	require.Equal(t, reports(1), reports(1))
	require.NotEqual(t, reports(1), reports(2))
}

// TestSubmission opens submissions of doona-full.wasm, for every KEM and for one to three relays.
func TestSubmission(t *testing.T) {
	module := start(t, wasm.Full)
	for _, c := range []struct {
		kem    task.KEM
		relays []string
	}{
		{task.KEMX25519, []string{"https://a.example"}},
		{task.KEMX25519, []string{"https://a.example", "https://b.example", "https://c.example"}},
		{task.KEMMLKEM768X25519, nil},
		{task.KEMMLKEM768, nil},
	} {
		draft := fixture.NearlyTruthful(fixture.Draft(task.Histogram, 300))
		draft.KEM = c.kem
		f := signed(t, draft, c.relays...)
		handle, result := module.call("open_bundle", openArgument(t, f))
		require.GreaterOrEqual(t, handle, int32(0), "%s", result)
		status, body := module.call("submission", value(299), uint64(handle), 1, 0)
		require.Zero(t, status, "%s", body)
		messages, err := f.Open(1, body)
		require.NoError(t, err)
		require.Equal(t, []byte{299 >> 8, 299 & 0xff}, messages[0][0].Body)
		_, err = f.Open(0, body)
		require.Error(t, err, "another epoch's key must not open the slots")

		status, result = module.call("submission", value(299), uint64(handle), 2, 0)
		require.Equal(t, int32(-1), status)
		require.Contains(t, texts(t, result)[0], "epoch")

		hops := uint64(len(f.Task.Relays) + 1)
		tags := make([]byte, hops*onion.TagSize)
		for i := range tags {
			tags[i] = byte(i + 1)
		}
		status, body = module.call("submission", append(tags, value(299)...), uint64(handle), 1, hops)
		require.Zero(t, status, "%s", body)
		messages, sealed, err := f.OpenAll(1, body)
		require.NoError(t, err)
		require.Equal(t, []byte{299 >> 8, 299 & 0xff}, messages[0][0].Body)
		require.Equal(t, tags[:onion.TagSize*int(hops)], bytes.Join(asSlices(sealed), nil))
		status, _ = module.call("submission", append(tags, value(299)...), uint64(handle), 1, hops-1)
		require.Equal(t, int32(-1), status, "a tag is missing")
		status, _ = module.call("submission", value(299), uint64(handle), 1, hops)
		require.Equal(t, int32(-1), status, "the argument is too short")
	}
}

func asSlices(tags [][onion.TagSize]byte) (out [][]byte) {
	for _, tag := range tags {
		out = append(out, tag[:])
	}
	return out
}

func TestBundleRefused(t *testing.T) {
	module := start(t, wasm.Full)
	argument := openArgument(t, signed(t, fixture.Draft(task.Mean, 0)))
	for name, at := range map[string]int{"owner": 0, "id": 32, "task": 64 + 10, "key list": len(argument) - 80} {
		bad := bytes.Clone(argument)
		bad[at] ^= 1
		status, _ := module.call("open_bundle", bad)
		require.Equal(t, int32(-1), status, name)
	}
	status, _ := module.call("open_bundle", argument[:50])
	require.Equal(t, int32(-1), status)
}

func openArgument(t *testing.T, f *fixture.SignedTask) []byte {
	bundle, err := f.Bundle.Bytes()
	require.NoError(t, err)
	return append(append(bytes.Clone(f.Bundle.Owner), f.ID[:]...), bundle...)
}

// TestSetDelta: doona-set.wasm and doona-full.wasm compose the laws of a set's tables to the same δ. They refuse an
// unknown handle and an argument of another form by NaN.
func TestSetDelta(t *testing.T) {
	days := task.Epochs{Start: 86400, Length: 86400, Count: 30}
	var all []float64
	for _, m := range []wasm.Module{wasm.Set, wasm.Full} {
		module := start(t, m)
		delta := func(copies ...uint32) float64 {
			argument := value(10, 1e-5)
			for handle, n := range copies {
				argument = binary.LittleEndian.AppendUint32(argument, uint32(handle))
				argument = binary.LittleEndian.AppendUint32(argument, n)
			}
			address := module.export("input", uint64(len(argument)))
			require.True(t, module.module.Memory().Write(uint32(address), argument))
			return math.Float64frombits(module.export("set_delta"))
		}
		for _, bins := range []uint64{20, 6} {
			f, err := fixture.Sign(fixture.Table(bins, days), []string{"https://a.example", "https://b.example"}, days)
			require.NoError(t, err)
			module.open(f.Task)
		}
		all = append(all, delta(5, 5))
		require.Greater(t, all[len(all)-1], 0.0)
		require.Greater(t, delta(6, 5), all[len(all)-1])
		require.True(t, math.IsNaN(delta(5, 5, 1)))
		module.export("input", 12)
		require.True(t, math.IsNaN(math.Float64frombits(module.export("set_delta"))))
	}
	require.InEpsilon(t, all[0], all[1], 1e-9)
}
