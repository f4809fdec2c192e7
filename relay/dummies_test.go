package relay_test

import (
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/doona-dp/doona/internal/testing/relaytest"
	"github.com/doona-dp/doona/wire/handover"
	"github.com/doona-dp/doona/wire/onion"
	"github.com/doona-dp/doona/wire/problem"
	"github.com/doona-dp/doona/wire/task"
)

// added is how many dummies each relay adds to each batch in the tests below. The dummies have four cells.
const added = 6

// noisy makes relays add dummies to batches, under the assumption that no other client is honest.
func noisy(draft *task.Task) {
	total := uint64(added)
	draft.Claim.Assumption = task.NoneHonest
	draft.Noise = &task.Noise{Kind: task.NoiseCells, Cells: 4, Tables: [][]uint64{{1, 2, 3, 2, 1}}, Total: &total}
}

// draws returns the dummies that both relays together added to some batches, as a count per cell. All clients send the
// value 1000, which is no cell.
func draws(t *testing.T, c *relaytest.Cascade, batches int) (all [][]uint64) {
	t.Helper()
	for seq := range batches {
		for i := range 10 {
			network := relaytest.Network(10*seq + i)
			require.NoError(t, c.Post(t.Context(), 0, c.Seal(t, 0, 1000), network))
		}
	}
	for seq := range batches {
		batch, chain := c.Pull(t, 0, uint64(seq))
		require.Equal(t, []onion.LaneCount{{In: 10, Added: added, Out: 10 + added}}, chain[0].Lanes)
		require.Equal(t, []onion.LaneCount{{In: 10 + added, Added: added, Out: 10 + 2*added}}, chain[1].Lanes)
		cells := make([]uint64, 4)
		for _, value := range c.Values(t, 0, batch)[0] {
			if value != 1000 {
				require.Less(t, value, uint64(4))
				cells[value]++
			}
		}
		all = append(all, cells)
	}
	return all
}

// TestRelaysAddDummies: every relay must add the number of dummies that the noise law demands to every batch, and state
// it. Each batch must have its own draw. The last batch must be released even if it is not full.
func TestRelaysAddDummies(t *testing.T) {
	c := relaytest.New(t, relaytest.Options{Task: noisy})
	c.StartAll(t)
	all := draws(t, c, 12)
	for _, cells := range all {
		require.EqualValues(t, 2*added, cells[0]+cells[1]+cells[2]+cells[3])
	}
	// This fails by chance only if all 12 draws are equal. Each repetition has a probability below 1/8, all of them
	// together below 10⁻⁹.
	require.Greater(t, len(slices.CompactFunc(all, slices.Equal)), 1)

	require.NoError(t, c.Post(t.Context(), 0, c.Seal(t, 0, 1000), relaytest.Network(500)))
	c.Clock.Advance(relaytest.Epoch + 2*time.Second)
	batch, chain := c.Pull(t, 0, 12)
	require.EqualValues(t, 1, chain[0].Submissions)
	require.Len(t, batch.Ciphertexts[0], 1+2*added)
	require.Contains(t, c.Values(t, 0, batch)[0], uint64(1000))
	for seq := range uint64(13) {
		got, _ := c.Pull(t, 0, seq)
		require.NoError(t, c.Verifier.Confirm(t.Context(), c.Open, 1, 0, seq, got.Manifest))
	}
	waitState(t, c, 1, 0, "erased")
	require.Empty(t, c.Status(t, 1).Findings)
}

// TestDummiesLookLikePeeledSlots: a party with all later keys must not be able to tell the first relay's dummies from
// the slots that it peels. They must have the same size and open alike, layer by layer, down to a message of the task's
// size.
func TestDummiesLookLikePeeledSlots(t *testing.T) {
	for _, name := range []task.KEM{task.KEMX25519, task.KEMMLKEM768X25519, task.KEMMLKEM768} {
		c := relaytest.New(t, relaytest.Options{Task: func(draft *task.Task) {
			noisy(draft)
			draft.KEM = name
		}})
		_, stop := c.StartRelay(t, 0)
		defer stop()
		for i := range 10 {
			require.NoError(t, c.Post(t.Context(), 0, c.Seal(t, 0, 2), relaytest.Network(i)))
		}
		var pulled *onion.Batch
		next := handover.NewRequester(c.SignKey(t, 1), nil)
		require.Eventually(t, func() bool {
			var err error
			pulled, err = next.Pull(t.Context(), c.Open, 0, 0, 0)
			return err == nil
		}, relaytest.Patience, 10*time.Millisecond)
		opener, last := c.Opener(t, 1, 0), c.VerifierOpener(t, 0)
		tags := map[[onion.TagSize]byte]bool{}
		for _, slot := range pulled.Ciphertexts[0] {
			require.Len(t, slot, len(pulled.Ciphertexts[0][0]))
			tag, next, err := opener.OpenSlot(0, slot)
			require.NoError(t, err)
			tags[tag] = true
			tag, m, err := last.OpenMessage(0, next)
			require.NoError(t, err)
			tags[tag] = true
			require.False(t, m.Cover)
			require.Len(t, m.Body, int(c.Open.Slots.MessageBytes))
		}
		require.Len(t, tags, 2*(10+added), "each slot has its own tag in each layer")
	}
}

// TestDrafts: two drafts of one report share their tags. An honest first relay must accept only one of them, whoever
// sends the other. If the first relay passes both on, in one batch or in two, the next relay must drop one.
func TestDrafts(t *testing.T) {
	c := relaytest.New(t, relaytest.Options{Task: noisy})
	tags := make([][onion.TagSize]byte, c.Open.VerifierHop()+1)
	for hop := range tags {
		tags[hop][0] = byte(hop + 1)
	}
	bodies := [][]byte{c.Seal(t, 0, 1000, tags...), c.Seal(t, 0, 1001, tags...)}
	require.NotEqual(t, bodies[0], bodies[1])

	_, stop := c.StartRelay(t, 0)
	require.NoError(t, c.Post(t.Context(), 0, bodies[0], relaytest.Network(1)))
	require.NoError(t, c.Post(t.Context(), 0, bodies[0], relaytest.Network(1)), "a retry")
	for _, network := range []int{1, 2} {
		requireProblem(t, problem.Replayed, c.Post(t.Context(), 0, bodies[1], relaytest.Network(network)))
	}
	stop()

	f := c.StartFirst(t)
	_, stop = c.StartRelay(t, 1)
	defer stop()
	both := make([][]byte, len(bodies))
	for i, body := range bodies {
		envelope, err := c.Opener(t, 0, 0).OpenEnvelope(body)
		require.NoError(t, err)
		both[i] = envelope.Lanes[0][0]
	}
	for seq, drafts := range [][][]byte{both, both[1:]} {
		slots := c.Slots(t, 0, span(0, uint64(10+added-len(drafts)))...)
		slots[0] = append(slots[0], drafts...)
		b, err := onion.NewBatch(f.Sign, onion.BatchDraft{
			Context: f.Context(0), Seq: uint64(seq), Submissions: 10, In: []uint64{10}, Added: []uint64{added},
		}, slots)
		require.NoError(t, err)
		f.Serve(t, 0, uint64(seq), b)
		got, chain := c.Pull(t, 0, uint64(seq))
		require.Equal(t, []onion.LaneCount{{In: 10 + added, Added: added, Out: 10 + 2*added - 1, Dropped: 1}},
			chain[1].Lanes)
		passed := 0
		for _, value := range c.Values(t, 0, got)[0] {
			if value >= 1000 {
				passed++
			}
		}
		require.Equal(t, 1-seq, passed, "batch %d", seq)
	}
}

// TestDummiesOutsideTheLaw: a relay claims to have added a number of dummies that the task's noise law excludes. The
// next relay must release nothing of that batch, and record a finding.
func TestDummiesOutsideTheLaw(t *testing.T) {
	for _, n := range []uint64{0, added - 1, added + 1} {
		c := relaytest.New(t, relaytest.Options{Task: noisy})
		f := c.StartFirst(t)
		_, stop := c.StartRelay(t, 1)
		defer stop()
		slots := c.Slots(t, 0, span(0, 10+n)...)
		b, err := onion.NewBatch(f.Sign, onion.BatchDraft{
			Context: f.Context(0), Submissions: 10, In: []uint64{10}, Added: []uint64{n},
		}, slots)
		require.NoError(t, err)
		f.Serve(t, 0, 0, b)
		require.Eventually(t, func() bool { return len(c.Status(t, 1).Findings) > 0 }, relaytest.Patience,
			10*time.Millisecond)
		got, err := c.Verifier.Pull(t.Context(), c.Open, 1, 0, 0)
		require.True(t, err != nil || len(got.Ciphertexts[0]) == 0)
	}
}
