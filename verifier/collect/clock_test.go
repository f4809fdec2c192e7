package collect_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/doona-dp/doona/wire/keyfile"
)

// TestClockJumps: with a wrong clock, fast or slow, the verifier must not erase a key early or keep it longer. The last
// relay's signed end triggers the erasure, and that relay's clock decides when to ask for it.
func TestClockJumps(t *testing.T) {
	for _, size := range []time.Duration{10 * time.Minute, 24 * time.Hour, 3653 * 24 * time.Hour} {
		for _, by := range []time.Duration{size, -size} {
			p := newPulled(t)
			p.relay.Serve(t, 0, 0, p.batch(t, 0))
			v, puller := p.start(t)
			puller.Clock = func() time.Time { return p.Clock.Now().Add(by) }
			require.NoError(t, puller.Pull(t.Context()))
			requireReport(t, v, 1)
			require.NoError(t, p.keyOf(t, 0), "%v", by)

			p.Clock.Advance(time.Hour + time.Minute)
			p.relay.End(0)
			_, puller = p.start(t) // a new puller compares clocks in its first pull
			puller.Clock = func() time.Time { return p.Clock.Now().Add(by) }
			require.NoError(t, puller.Pull(t.Context()))
			require.ErrorIs(t, p.keyOf(t, 0), keyfile.ErrErased, "%v", by)
			require.NoError(t, p.keyOf(t, 1), "%v", by)
		}
	}
}
