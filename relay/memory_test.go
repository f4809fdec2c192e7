package relay_test

import (
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/doona-dp/doona/internal/relaytest"
	"github.com/doona-dp/doona/relay"
	"github.com/doona-dp/doona/wire/handover"
	"github.com/doona-dp/doona/wire/onion"
)

// cut hands out all of a batch but its last bytes.
func cut(t *testing.T, b *onion.Batch) http.HandlerFunc {
	t.Helper()
	raw, err := b.Bytes()
	require.NoError(t, err)
	return func(w http.ResponseWriter, _ *http.Request) { w.Write(raw[:len(raw)-10]) }
}

// TestOneManifestOfANumber: once a mix has seen a manifest, no other of its number is taken, also after a
// restart, and though nothing of the first one's slots was mixed. The epoch ends there, and the evidence
// is kept.
func TestOneManifestOfANumber(t *testing.T) {
	for name, restart := range map[string]bool{"running": false, "restarted": true} {
		t.Run(name, func(t *testing.T) {
			eachEngine(t, func(t *testing.T, o relaytest.Options) {
				c := relaytest.New(t, o)
				first := c.StartFirst(t)
				offers := make([]*onion.Batch, 3)
				for i := range offers {
					offers[i] = first.Batch(t, 0, uint64(min(i, 1)), 10, c.Slots(t, 0, span(uint64(10*i), 10)...))
				}
				first.Serve(t, 0, 0, offers[0])
				first.Answer(0, 1, cut(t, offers[1]))
				stop := c.Start(t, 1)
				requireSoon(t, func() bool { return first.Pulls(0, 1) > 1 })
				if restart {
					stop()
				}
				first.Serve(t, 0, 1, offers[2])
				if restart {
					c.Start(t, 1)
				}
				waitState(t, c, 1, 0, "complete")
				status := c.Status(t, 1)
				require.Equal(t, []relay.Finding{{Epoch: 0, Batch: 1, Reason: "two manifests of one number"}},
					status.Findings)
				require.Equal(t, []relay.Equivocation{{Epoch: 0, Batch: 1, First: *offers[1].Signed(),
					Second: *offers[2].Signed()}}, status.Equivocations)
				for _, s := range []onion.SignedManifest{status.Equivocations[0].First,
					status.Equivocations[0].Second} {
					m, err := s.Open(c.Open.Task, 0)
					require.NoError(t, err, "both are signed")
					require.EqualValues(t, 1, m.Seq)
				}
				require.False(t, first.Confirmed(0, 1))
				batch, _ := c.Pull(t, 0, 0)
				require.ElementsMatch(t, span(0, 10), c.Values(t, 0, batch)[0], "what was mixed before")
				_, err := c.Verifier.Pull(t.Context(), c.Open, 1, 0, 1)
				require.ErrorIs(t, err, handover.ErrEpochComplete)
				first.Serve(t, 0, 1, offers[1])
				pulls := first.Pulls(0, 1)
				time.Sleep(200 * time.Millisecond)
				require.Equal(t, pulls, first.Pulls(0, 1), "the epoch is over")
			})
		})
	}
}

// TestTheSameManifestIsTaken: a transfer that broke off before a restart goes on after it.
func TestTheSameManifestIsTaken(t *testing.T) {
	c := relaytest.New(t, relaytest.Options{})
	first := c.StartFirst(t)
	b := first.Batch(t, 0, 0, 10, c.Slots(t, 0, span(0, 10)...))
	first.Answer(0, 0, cut(t, b))
	stop := c.Start(t, 1)
	requireSoon(t, func() bool { return first.Pulls(0, 0) > 1 })
	stop()
	first.Serve(t, 0, 0, b)
	c.Start(t, 1)
	batch, _ := c.Pull(t, 0, 0)
	require.ElementsMatch(t, span(0, 10), c.Values(t, 0, batch)[0])
	require.Empty(t, c.Status(t, 1).Findings)
}

// TestAnEndBehindItsManifests: an end that tells of fewer batches than were signed ends nothing; the mix
// waits until it gives up.
func TestAnEndBehindItsManifests(t *testing.T) {
	c := relaytest.New(t, relaytest.Options{})
	first := c.StartFirst(t)
	first.Answer(0, 0, cut(t, first.Batch(t, 0, 0, 10, c.Slots(t, 0, span(0, 10)...))))
	c.Start(t, 1)
	requireSoon(t, func() bool { return first.Pulls(0, 0) > 1 })
	first.Answer(0, 0, nil)
	first.End(0)
	c.Clock.Advance(relaytest.Epoch + time.Minute)
	requireSoon(t, func() bool { return len(c.Status(t, 1).Findings) == 1 })
	require.Equal(t, relay.Reason("an end of the epoch that is not that of its batches"),
		c.Status(t, 1).Findings[0].Reason)
	require.Equal(t, "open", c.Status(t, 1).Epochs[0].State)
}
