package verifier_test

import (
	"bytes"
	"encoding/binary"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/doona-dp/doona/internal/testing/relaytest"
	"github.com/doona-dp/doona/planner"
	"github.com/doona-dp/doona/protocols"
	"github.com/doona-dp/doona/protocols/registry"
	"github.com/doona-dp/doona/randomizer"
	"github.com/doona-dp/doona/verifier"
)

// filesOf returns the faulty files of a cascade.
func filesOf(t *testing.T, c *relaytest.Cascade) (files []file) {
	t.Helper()
	for i, raw := range c.Faulty(t) {
		files = append(files, file{relaytest.FileName(i), raw})
	}
	return files
}

// TestShardsGiveTheBytesOfOneRun: however files are divided among verifiers, and in any order, the merged states must
// give the same report and state, byte for byte.
func TestShardsGiveTheBytesOfOneRun(t *testing.T) {
	f := &faults{newCascade(t), nil}
	files := filesOf(t, f.cascade)
	whole := newVerifier(t, f.cascade)
	addAll(t, whole, files)
	want, state := reportOf(t, whole), stateOf(t, whole)
	for _, name := range []string{"repeated", "duplicate", "equivocation", "too-few", "truncated", "gap", "foreign"} {
		require.Contains(t, want, `"name":"`+name+`"`)
	}
	onDisk := newVerifier(t, f.cascade)
	onDisk.NoMemory(t.TempDir())
	addAll(t, onDisk, files)
	require.Positive(t, onDisk.PeakFileBytes())
	require.Equal(t, want, reportOf(t, onDisk))
	require.True(t, bytes.Equal(state, stateOf(t, onDisk)))
	random := rand.New(rand.NewPCG(5, 6))
	for _, shards := range []int{1, 3, 8} {
		for range 3 {
			parts := make([]*verifier.Verifier, shards)
			for i := range parts {
				parts[i] = newVerifier(t, f.cascade)
			}
			for i, j := range random.Perm(len(files)) {
				addAll(t, parts[i%shards], files[j:j+1])
			}
			merged, err := verifier.New(f.cascade.Open, nil)
			require.NoError(t, err)
			for _, i := range random.Perm(shards) {
				require.NoError(t, merged.ReadState(bytes.NewReader(stateOf(t, parts[i]))))
			}
			require.Equal(t, want, reportOf(t, merged))
			require.True(t, bytes.Equal(state, stateOf(t, merged)))
		}
	}
}

func stateOf(t *testing.T, v *verifier.Verifier) []byte {
	t.Helper()
	var out bytes.Buffer
	require.NoError(t, v.WriteState(&out))
	return out.Bytes()
}

// TestAStateIsReadWholeOrRefused: a truncated state, or a state of another task, must be an error.
func TestAStateIsReadWholeOrRefused(t *testing.T) {
	f := &faults{newCascade(t), newCascade(t)}
	v := newVerifier(t, f.cascade)
	addAll(t, v, []file{{"one", bytesOf(t, f.good(t, 0))}, {"bad", []byte("no batch")}})
	state := stateOf(t, v)
	for range 50 {
		cut := state[:rand.IntN(len(state))]
		require.Error(t, newVerifier(t, f.cascade).ReadState(bytes.NewReader(cut)))
	}
	require.Error(t, newVerifier(t, f.cascade).ReadState(bytes.NewReader(append(state, 0))))
	require.ErrorContains(t, newVerifier(t, f.other).ReadState(bytes.NewReader(state)), "it has another version or task")
}

// TestAChangedStateIsRefusedOrCanonical: a state with a changed byte must be an error, or give a report and be written
// again with the same bytes.
func TestAChangedStateIsRefusedOrCanonical(t *testing.T) {
	f := &faults{newCascade(t), nil}
	v := newVerifier(t, f.cascade)
	addAll(t, v, []file{{"one", bytesOf(t, f.good(t, 0))}, {"bad", []byte("no batch")}})
	state := stateOf(t, v)
	random, taken := rand.New(rand.NewPCG(7, 8)), 0
	merged, err := verifier.New(f.cascade.Open, nil)
	require.NoError(t, err)
	for range 2000 {
		bad := bytes.Clone(state)
		bad[random.IntN(len(bad))] ^= byte(1 + random.IntN(255))
		v := merged.Fresh()
		if v.ReadState(bytes.NewReader(bad)) != nil {
			continue
		}
		taken++
		_, err := v.Report()
		require.NoError(t, err)
		require.True(t, bytes.Equal(bad, stateOf(t, v)))
	}
	require.Greater(t, taken, 20, "a tag may be any")
}

// TestRecordsSayWhatTheirBatchIs: a record must be read as it was written. A record with another batch's manifest, with
// slots that do not match its aggregate, or with pieces of another size must be refused.
func TestRecordsSayWhatTheirBatchIs(t *testing.T) {
	f := &faults{newCascade(t), nil}
	v := newVerifier(t, f.cascade)
	raw := func(change func(*verifier.Record, *[][][]byte)) []byte {
		r, err := v.Open(f.good(t, 3))
		require.NoError(t, err)
		return r.Changed(t, change)
	}
	good := raw(func(*verifier.Record, *[][][]byte) {})
	r, err := v.ReadRecord(bytes.NewReader(good))
	require.NoError(t, err)
	var again bytes.Buffer
	require.NoError(t, r.Write(&again))
	require.Equal(t, good, again.Bytes())
	size := len(good) / (2 * batchSize) // smaller than a slot with its header
	for name, change := range map[string]func(*verifier.Record, *[][][]byte){
		"number":      func(r *verifier.Record, _ *[][][]byte) { r.Seq = 4 },
		"epoch":       func(r *verifier.Record, _ *[][][]byte) { r.Epoch = 1 },
		"lanes":       func(_ *verifier.Record, lanes *[][][]byte) { *lanes = append(*lanes, nil) },
		"part":        func(_ *verifier.Record, lanes *[][][]byte) { (*lanes)[0][0] = (*lanes)[0][0][1:] },
		"empty piece": func(_ *verifier.Record, lanes *[][][]byte) { (*lanes)[0] = append((*lanes)[0], []byte{}) },
		"two pieces": func(r *verifier.Record, lanes *[][][]byte) {
			piece, one := (*lanes)[0][0], r.SlotSize()
			(*lanes)[0] = [][]byte{piece[:one], piece[one:]}
		},
		"a slot less": func(r *verifier.Record, lanes *[][][]byte) { (*lanes)[0][0] = (*lanes)[0][0][r.SlotSize():] },
		"kind":        func(_ *verifier.Record, lanes *[][][]byte) { (*lanes)[0][0][8] = 2 },
		"version":     func(r *verifier.Record, _ *[][][]byte) { r.Version++ },
		"signed":      func(r *verifier.Record, _ *[][][]byte) { r.Signed[len(r.Signed)-1] ^= 1 },
	} {
		_, err := v.ReadRecord(bytes.NewReader(raw(change)))
		require.Error(t, err, name)
	}
	for n := range len(good) {
		if n%size == 0 || n > len(good)-40 {
			_, err := v.ReadRecord(bytes.NewReader(good[:n]))
			require.Error(t, err)
		}
	}
}

// TestARefusedRecordLeavesNoSlots: the next record must reuse the space of a refused one.
func TestARefusedRecordLeavesNoSlots(t *testing.T) {
	f := &faults{newCascade(t), nil}
	v := newVerifier(t, f.cascade)
	v.NoMemory(t.TempDir())
	defer func() { require.NoError(t, v.Close()) }()
	filed := int64(0)
	for range 3 {
		r, err := v.Open(f.good(t, 3))
		require.NoError(t, err)
		r.Signed[len(r.Signed)-1] ^= 1
		require.Error(t, v.AddRecord(r))
		if filed == 0 {
			filed = v.PeakFileBytes()
		}
	}
	require.Positive(t, filed)
	require.Equal(t, filed, v.PeakFileBytes())
}

// TestAggregatesOfEveryProtocolCanBeWrittenDown: an aggregate must be read as it was written, within a batch and at its
// end. Any other input must be refused.
func TestAggregatesOfEveryProtocolCanBeWrittenDown(t *testing.T) {
	for name, c := range everyProtocol {
		q := c.Query
		q.Name, q.Honest = name, 1
		draft, err := planner.Draft(q)
		require.NoError(t, err)
		m, err := registry.Open(draft)
		require.NoError(t, err)
		a := m.Aggregate()
		for range 3 {
			lanes, err := m.Randomize(randomizer.NewSource(), c.Value)
			require.NoError(t, err)
			for lane, messages := range lanes {
				for _, message := range messages {
					require.NoError(t, a.Add(lane, message))
				}
			}
			requireWritten(t, m, a)
		}
		a.AddUsers(3)
		written := requireWritten(t, m, a)
		require.NotEmpty(t, written, name)
		beyond := append(binary.AppendUvarint(slices.Clone(written), 1<<40), 1) // no aggregate has this counter
		require.Error(t, verifier.UnpackCounters(m.Aggregate(), beyond), name)
		require.Error(t, verifier.UnpackCounters(m.Aggregate(), written[:len(written)-1]), name)
		require.Error(t, verifier.UnpackCounters(m.Aggregate(), append([]byte{0, 0}, written...)), name)
	}
}

func requireWritten(t *testing.T, m protocols.Mechanism, a protocols.Aggregate) []byte {
	t.Helper()
	written, again := verifier.PackCounters(a), m.Aggregate()
	require.NoError(t, verifier.UnpackCounters(again, written))
	require.Equal(t, a, again)
	return written
}
