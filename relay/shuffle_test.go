package relay_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/doona-dp/doona/internal/testing/relaytest"
	"github.com/doona-dp/doona/internal/testing/stattest"
	"github.com/doona-dp/doona/wire/handover"
	"github.com/doona-dp/doona/wire/onion"
	"github.com/doona-dp/doona/wire/task"
)

// TestProcessesPermute: three `relay serve` processes must put 100 batches each (2000 in the long form) in uniformly
// random order, over HTTP. The first gets reports in order; the mix and the last relay get batches in order from the
// upstream relay, which the test plays. At the first relay, the store's random row keys may also cause the order;
// [TestEveryHopPermutes] excludes that.
func TestProcessesPermute(t *testing.T) {
	trials := uint64(stattest.FewTrials)
	if stattest.Long {
		trials = 2000
	}
	for hop := range 3 {
		t.Run(fmt.Sprintf("hop %d", hop), func(t *testing.T) {
			c := relaytest.New(t, relaytest.Options{Hops: 3, Task: func(t *task.Task) {
				t.Batch.Size, t.Clients.Quota = stattest.Things, 1000
			}})
			if hop > 0 {
				serveInOrder(t, c, hop-1, trials)
			}
			startProcess(t, c, hop)
			if hop == 0 {
				for i := range trials * stattest.Things {
					require.NoError(t, c.Post(t.Context(), 0, c.Seal(t, 0, i%stattest.Things),
						relaytest.Network(int(i/1000))))
				}
			}
			seq := uint64(0)
			stattest.Uniform(t, int(trials), func() []int {
				seq++
				return orderAfter(t, c, hop, seq-1)
			})
		})
	}
}

// serveInOrder plays the relay at a hop. It serves n batches whose slots hold 0, 1, … in that order.
func serveInOrder(t *testing.T, c *relaytest.Cascade, hop int, n uint64) {
	t.Helper()
	const size = stattest.Things
	rogue := c.StartRogue(t, hop)
	for seq := range n {
		lanes, chain := c.Slots(t, 0, span(0, size)...), (*onion.SignedManifest)(nil)
		for before := range hop {
			at := onion.Context{TaskID: c.Open.ID, Hop: before}
			b, err := onion.NewBatch(c.SignKey(t, before), onion.BatchDraft{
				Context: at, Seq: seq, Submissions: size, In: []uint64{size}, Source: chain,
			}, lanes)
			require.NoError(t, err)
			lanes, chain = opened(t, c, before+1, lanes), b.Signed()
		}
		rogue.Serve(t, 0, seq, rogue.Sealed(t, onion.BatchDraft{
			Seq: seq, Submissions: size, In: []uint64{size}, Source: chain,
		}, lanes))
	}
}

// opened opens one layer of all slots in the first lane and keeps their order.
func opened(t *testing.T, c *relaytest.Cascade, hop int, lanes onion.Lanes) onion.Lanes {
	t.Helper()
	opener, out := c.Opener(t, hop, 0), onion.Lanes{nil}
	for _, slot := range lanes[0] {
		_, next, err := opener.OpenSlot(0, slot)
		require.NoError(t, err)
		out[0] = append(out[0], next)
	}
	return out
}

// orderAfter pulls a batch from the relay at a hop, as the next hop, and returns the values in its slots.
func orderAfter(t *testing.T, c *relaytest.Cascade, hop int, seq uint64) (order []int) {
	t.Helper()
	next := c.Verifier
	if hop+1 < c.Open.VerifierHop() {
		next = handover.NewRequester(c.SignKey(t, hop+1), nil)
	}
	var batch *onion.Batch
	requireSoon(t, func() (ready bool) {
		var err error
		batch, err = next.Pull(t.Context(), c.Open, hop, 0, seq)
		return err == nil
	})
	for at := hop + 1; at < c.Open.VerifierHop(); at++ {
		batch.Ciphertexts = opened(t, c, at, batch.Ciphertexts)
	}
	for _, value := range c.Values(t, 0, batch)[0] {
		order = append(order, int(value))
	}
	return order
}
