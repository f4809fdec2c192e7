package relay_test

import (
	"errors"
	"net/http"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/doona-dp/doona/internal/relaytest"
	"github.com/doona-dp/doona/relay"
	"github.com/doona-dp/doona/wire/onion"
	"github.com/doona-dp/doona/wire/problem"
	"github.com/doona-dp/doona/wire/task"
)

// multiplier is a first relay that makes more batches than it may, of noisy tasks.
type multiplier struct {
	*relaytest.Rogue
	c      *relaytest.Cascade
	pulled atomic.Int64 // answers to pulls
}

// diluted signs a batch of some slots of clients with dummies that are slots too; false is how many submissions
// it says there were and drops.
func (m *multiplier) diluted(t *testing.T, seq, clients, invented uint64, bad int) *onion.Batch {
	t.Helper()
	slots := m.c.Slots(t, 0, span(100*seq, clients+added)...)
	for _, slot := range slots[0][:bad] {
		slot[len(slot)-1] ^= 1
	}
	said := clients + invented
	b, err := onion.NewDilutedBatch(m.Sign, m.Context(0), seq, said, []uint64{said}, []uint64{added}, slots, nil)
	require.NoError(t, err)
	return b
}

// offer hands out such batches under numbers below most, made when they are asked for.
func (m *multiplier) offer(t *testing.T, most uint64, batch func(seq uint64) *onion.Batch) {
	for seq := range most {
		m.Answer(0, seq, func(w http.ResponseWriter, _ *http.Request) {
			m.pulled.Add(1)
			raw, err := batch(seq).Bytes()
			if err == nil {
				w.Write(raw)
			}
		})
	}
}

// TestBatchesPerEpoch: a first relay that makes many batches of few clients does not have the next one add its
// dummies to each. What is too much costs a manifest, is named, and ends the epoch there.
func TestBatchesPerEpoch(t *testing.T) {
	const most = 4
	for name, c := range map[string]struct {
		batch    func(t *testing.T, m *multiplier, seq uint64) *onion.Batch
		taken    int
		in, lost uint64 // of each that is taken
	}{
		"10⁴ of one slot": {func(t *testing.T, m *multiplier, seq uint64) *onion.Batch {
			return m.diluted(t, seq, 1, 0, 0)
		}, 1, 1 + added, 0},
		"10⁴ of one slot, said to be of ten": {func(t *testing.T, m *multiplier, seq uint64) *onion.Batch {
			return m.diluted(t, seq, 1, 9, 0)
		}, 1, 1 + added, 0},
		"full ones": {func(t *testing.T, m *multiplier, seq uint64) *onion.Batch {
			return m.diluted(t, seq, 10, 0, 0)
		}, most, 10 + added, 0},
		"nine good slots and a bad one": {func(t *testing.T, m *multiplier, seq uint64) *onion.Batch {
			return m.diluted(t, seq, 10, 0, 1)
		}, most, 10 + added, 1},
	} {
		t.Run(name, func(t *testing.T) {
			cascade := relaytest.New(t, relaytest.Options{Task: func(draft *task.Task) {
				noisy(draft)
				draft.Noise.Batches = most
			}})
			m := &multiplier{Rogue: cascade.StartFirst(t), c: cascade}
			m.offer(t, 10_000, func(seq uint64) *onion.Batch { return c.batch(t, m, seq) })
			cascade.Start(t, 1)
			require.Eventually(t, func() bool {
				epochs := cascade.Status(t, 1).Epochs
				return len(epochs) > 0 && epochs[0].State == "complete"
			}, relaytest.Patience, 10*time.Millisecond)
			status := cascade.Status(t, 1)
			require.Equal(t, []relay.Finding{{Batch: uint64(c.taken),
				Reason: "a batch after the last one of the epoch"}},
				status.Findings)
			require.EqualValues(t, c.taken, status.Epochs[0].Batches)
			require.EqualValues(t, c.taken+1, m.pulled.Load())
			for seq := range c.taken {
				_, chain := cascade.Pull(t, 0, uint64(seq))
				require.Equal(t, []onion.LaneCount{{In: c.in, Added: added, Out: c.in + added - c.lost,
					Dropped: c.lost}},
					chain[1].Lanes)
			}
			require.Eventually(t, func() bool {
				_, err := cascade.Verifier.Pull(t.Context(), cascade.Open, 1, 0, uint64(c.taken))
				return errors.Is(err, problem.New(problem.Complete, ""))
			}, relaytest.Patience, 10*time.Millisecond)
		})
	}
}

// TestFirstRelayFillsItsBatches: it takes what its batches of an epoch hold, and no more; a report that it has
// is acknowledged again.
func TestFirstRelayFillsItsBatches(t *testing.T) {
	c := relaytest.New(t, relaytest.Options{Task: func(draft *task.Task) {
		noisy(draft)
		draft.Noise.Batches = 2
	}})
	c.StartAll(t)
	var reports [][]byte
	for i := range 20 {
		reports = append(reports, c.Seal(t, 0, 1000))
		require.NoError(t, c.Post(t.Context(), 0, reports[i], relaytest.Network(i)))
	}
	err := c.Post(t.Context(), 0, c.Seal(t, 0, 1000), relaytest.Network(20))
	require.ErrorIs(t, err, problem.New(problem.EpochClosed, ""))
	require.NoError(t, c.Post(t.Context(), 0, reports[7], relaytest.Network(7)))
	_, chain := c.Pull(t, 0, 1)
	require.EqualValues(t, 10, chain[0].Submissions)
	require.Empty(t, c.Status(t, 1).Findings)
}
