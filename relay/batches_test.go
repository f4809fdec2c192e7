package relay_test

import (
	"errors"
	"net/http"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/doona-dp/doona/internal/testing/relaytest"
	"github.com/doona-dp/doona/internal/testing/stattest"
	"github.com/doona-dp/doona/randomizer"
	"github.com/doona-dp/doona/relay"
	"github.com/doona-dp/doona/wire/onion"
	"github.com/doona-dp/doona/wire/problem"
	"github.com/doona-dp/doona/wire/task"
	"github.com/doona-dp/doona/wire/task/dummies"
)

// multiplier is a malicious first relay that makes more batches than the task allows, of tasks with dummies.
type multiplier struct {
	*relaytest.Rogue
	c      *relaytest.Cascade
	pulled atomic.Int64 // number of pulls that it answered with a batch
}

// withDummies signs a batch of some clients' slots and of dummies; bad slots do not open. The manifest claims invented
// further submissions, all dropped.
func (m *multiplier) withDummies(t *testing.T, seq, clients, invented uint64, bad int) *onion.Batch {
	t.Helper()
	slots := m.c.Slots(t, 0, span(100*seq, clients+added)...)
	for _, slot := range slots[0][:bad] {
		slot[len(slot)-1] ^= 1
	}
	claimed := clients + invented
	b, err := onion.NewBatch(m.Sign, onion.BatchDraft{
		Context: m.Context(0), Seq: seq, Submissions: claimed, In: []uint64{claimed}, Added: []uint64{added},
	}, slots)
	require.NoError(t, err)
	return b
}

// offer serves a batch for every number below most. It makes each batch when the next relay pulls it.
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

// startCounting runs a relay that adds 1 to draws whenever it draws dummies.
func startCounting(t *testing.T, c *relaytest.Cascade, cfg relay.Config, draws *atomic.Int64) (stop func()) {
	t.Helper()
	r, err := relay.New(cfg)
	require.NoError(t, err)
	law := dummies.New(c.Open.Noise)
	relay.DrawFrom(r, func(src *randomizer.Source) ([]uint64, error) {
		draws.Add(1)
		return law.Draw(src)
	})
	return c.Serve(t, r, cfg.Admin)
}

// mostBatches is how many batches the tasks in the tests below allow per epoch.
const mostBatches = 4

// TestBatchesPerEpoch: a first relay makes many batches of few clients, and claims any number of submissions. The next
// relay must not add its dummies to each of them. A surplus batch must cost one manifest and one finding, and end the
// epoch. The counts must add up. The relay must draw dummies for a number, and release a batch of it, only once, even
// after a restart. The long form runs all cases with both stores.
func TestBatchesPerEpoch(t *testing.T) {
	for i, c := range []struct {
		name            string
		clients, claims uint64 // real and claimed submissions of each batch
		bad             int    // slots that do not open, in each batch
		made            int    // batches that the next relay must make
	}{
		{"10⁴ of one slot", 1, 1, 0, 1},
		{"10⁴ of one slot, claimed to have ten", 1, 10, 0, 1},
		{"full ones", 10, 10, 0, mostBatches},
		{"nine good slots and a bad one", 10, 10, 1, mostBatches},
	} {
		for _, postgres := range []bool{false, true} {
			if postgres && i != 1 && !stattest.Long {
				continue
			}
			t.Run(c.name+", "+map[bool]string{false: "SQLite", true: "PostgreSQL"}[postgres], func(t *testing.T) {
				cascade := relaytest.New(t, relaytest.Options{Postgres: postgres, Task: func(draft *task.Task) {
					noisy(draft)
					draft.Noise.Batches = mostBatches
				}})
				m := &multiplier{Rogue: cascade.StartFirst(t), c: cascade}
				m.offer(t, 10_000, func(seq uint64) *onion.Batch {
					return m.withDummies(t, seq, c.clients, c.claims-c.clients, c.bad)
				})
				out := m.requireMade(t, c.made)
				lost := uint64(c.bad)
				for _, b := range out {
					in := c.clients + added
					require.Equal(t, []onion.LaneCount{{In: in, Added: added, Out: in + added - lost, Dropped: lost}},
						b.Lanes)
				}
			})
		}
	}
}

// requireMade runs the next relay twice. It asserts that the relay makes n of the offered batches, each once, and then
// ends the epoch. It returns the manifests of these batches.
func (m *multiplier) requireMade(t *testing.T, n int) (made []onion.Manifest) {
	t.Helper()
	var draws atomic.Int64
	pull := func(seq int) (*onion.Batch, error) {
		return m.c.Verifier.Pull(t.Context(), m.c.Open, 1, 0, uint64(seq))
	}
	var batches []*onion.Batch
	for run := range 2 {
		stop := startCounting(t, m.c, m.c.Config(t, 1), &draws)
		requireSoon(t, func() bool {
			epochs := m.c.Status(t, 1).Epochs
			return len(epochs) > 0 && epochs[0].State == "complete"
		})
		status := m.c.Status(t, 1)
		require.Equal(t, []relay.Finding{{Batch: uint64(n), Reason: "a batch after the last one of the epoch"}},
			status.Findings)
		require.EqualValues(t, n, status.Epochs[0].Batches)
		for seq := range n {
			b, err := pull(seq)
			require.NoError(t, err)
			if run == 0 {
				batches = append(batches, b)
				_, chain := m.c.Pull(t, 0, uint64(seq))
				made = append(made, chain[1])
			}
			require.Equal(t, batches[seq], b)
		}
		requireSoon(t, func() bool {
			_, err := pull(n)
			return errors.Is(err, problem.New(problem.Complete, ""))
		})
		stop()
		require.EqualValues(t, n, draws.Load(), "one draw for each batch")
		require.EqualValues(t, n+1, m.pulled.Load(), "the surplus batch costs only its manifest")
	}
	return made
}

// TestFirstRelayFillsItsBatches: the first relay must accept as many reports as its batches of an epoch hold, and no
// more. It must still acknowledge a report that it has.
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
