package verifier_test

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/doona-dp/doona/verifier"
)

// among and other identify two deduplication runs.
var among, other = verifier.DedupID{1}, verifier.DedupID{2}

// batchOf identifies a batch.
type batchOf struct{ epoch, seq uint64 }

// tagOf identifies a tag.
type tagOf struct{ epoch, tag uint64 }

// dedup simulates machines that each have one file. It then deduplicates each batch against the tags of the others, so
// no machine has the slots of two batches. It returns the states.
func dedup(t *testing.T, v *verifier.Verifier, files []file) (states [][]byte) {
	t.Helper()
	batches, holders := map[batchOf][]*verifier.Verifier{}, map[tagOf]map[batchOf]bool{}
	for _, f := range files {
		one, at := v.Fresh(), batchOf{^uint64(0), 0}
		addAll(t, one, []file{f})
		require.NoError(t, one.Tags(func(epoch, seq, tag uint64) error {
			at = batchOf{epoch, seq}
			of := tagOf{epoch, tag}
			if holders[of] == nil {
				holders[of] = map[batchOf]bool{}
			}
			holders[of][at] = true
			return nil
		}))
		batches[at] = append(batches[at], one)
	}
	for _, of := range batches {
		all := v.Fresh()
		for _, one := range of {
			require.NoError(t, all.ReadState(bytes.NewReader(stateOf(t, one))))
		}
		require.NoError(t, all.Dedup(among,
			func(epoch, tag uint64) bool { return len(holders[tagOf{epoch, tag}]) > 1 }))
		states = append(states, stateOf(t, all))
	}
	return states
}

// TestDedupedRecordsGiveTheBytesOfOneRun: machines that never have the slots of two batches must give the same report
// as one machine with all slots, byte for byte and in any order. Few slots are left.
func TestDedupedRecordsGiveTheBytesOfOneRun(t *testing.T) {
	f := &faults{newCascade(t), nil}
	files := filesOf(t, f.cascade)
	whole := newVerifier(t, f.cascade)
	addAll(t, whole, files)
	want := reportOf(t, whole)
	require.Contains(t, want, `"name":"repeated"`)
	states := dedup(t, whole, files)
	random, seen := rand.New(rand.NewPCG(9, 10)), []byte(nil)
	for range 5 {
		merged := whole.Fresh()
		for _, i := range random.Perm(len(states)) {
			require.NoError(t, merged.ReadState(bytes.NewReader(states[i])))
		}
		require.Equal(t, want, reportOf(t, merged))
		if seen == nil {
			seen = stateOf(t, merged)
		}
		require.True(t, bytes.Equal(seen, stateOf(t, merged)))
		again := whole.Fresh()
		require.NoError(t, again.ReadState(bytes.NewReader(seen)))
		require.Equal(t, want, reportOf(t, again))
		left := 0
		require.NoError(t, again.Tags(func(uint64, uint64, uint64) error { left++; return nil }))
		require.Equal(t, 3*2+2*batchSize, left, "two slots of three batches, and all of two")
	}
}

// TestSharedSlotsMustStay: if shared slots are removed like others, messages count twice. So the test above can fail.
func TestSharedSlotsMustStay(t *testing.T) {
	f := &faults{newCascade(t), nil}
	files := filesOf(t, f.cascade)
	whole := newVerifier(t, f.cascade)
	addAll(t, whole, files)
	want := reportOf(t, whole)
	require.NoError(t, whole.Dedup(among, func(uint64, uint64) bool { return false }))
	require.NotEqual(t, want, reportOf(t, whole))
	require.NotContains(t, reportOf(t, whole), `"name":"repeated"`)
}

// TestRecordsOfTwoDedupsDoNotMix: records of two runs must be refused, because a message in both would count twice.
func TestRecordsOfTwoDedupsDoNotMix(t *testing.T) {
	f := &faults{newCascade(t), nil}
	nobody := func(uint64, uint64) bool { return false }
	state := func(seq uint64, among verifier.DedupID) []byte {
		v := newVerifier(t, f.cascade)
		require.NoError(t, v.Add(f.good(t, seq)))
		if among != (verifier.DedupID{}) {
			require.NoError(t, v.Dedup(among, nobody))
			require.ErrorContains(t, v.Dedup(among, nobody), "couldn't deduplicate batch")
		}
		return stateOf(t, v)
	}
	require.Error(t, newVerifier(t, f.cascade).Dedup(verifier.DedupID{}, nobody))
	kinds := map[string]verifier.DedupID{"none": {}, "one": among, "other": other}
	for a, first := range kinds {
		for b, second := range kinds {
			t.Run(fmt.Sprintf("%s and %s", a, b), func(t *testing.T) {
				v := newVerifier(t, f.cascade)
				require.NoError(t, v.ReadState(bytes.NewReader(state(0, first))))
				err := v.ReadState(bytes.NewReader(state(1, second)))
				if a == b {
					require.NoError(t, err)
				} else {
					require.ErrorContains(t, err, "deduplicated in another run")
				}
			})
		}
	}
	v := newVerifier(t, f.cascade)
	require.NoError(t, v.ReadState(bytes.NewReader(state(0, among))))
	require.ErrorContains(t, v.Add(f.good(t, 1)), "deduplicated in another run")
}
