package issuer_test

import (
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/doona-dp/doona/internal/testing/relaytest"
	"github.com/doona-dp/doona/internal/testing/stattest"
	"github.com/doona-dp/doona/issuer"
	"github.com/doona-dp/doona/wire/keyfile"
	"github.com/doona-dp/doona/wire/task"
)

// TestClockJumps sets the issuer's clock wrong, forward or back, while the issuer runs or before it starts. A relay
// confirms the right time. So the issuer must erase no epoch's key early, and keep none too long. The long form tests
// all jumps.
func TestClockJumps(t *testing.T) {
	day := 24 * time.Hour
	jumps := []time.Duration{10 * time.Minute, -day, 3653 * day}
	if stattest.Long {
		jumps = append(jumps, -10*time.Minute, day, -3653*day)
	}
	var all sync.WaitGroup // more goroutines than cores, because they mostly wait
	for i, by := range jumps {
		for _, restart := range []bool{false, true} {
			if !stattest.Long && restart == (i == 0) {
				continue
			}
			all.Go(func() {
				t.Run(fmt.Sprint(by, " restart ", restart), func(t *testing.T) { testJump(t, by, restart) })
			})
		}
	}
	all.Wait()
}

const twoSearches = 2200 * time.Millisecond

func testJump(t *testing.T, by time.Duration, restart bool) {
	const epochs = 4
	c := relaytest.New(t, relaytest.Options{Task: func(draft *task.Task) {
		relaytest.WithTokens(draft)
		draft.Epochs.Count = epochs
	}})
	c.StartAll(t)
	cfg, begun := c.IssuerConfig(), c.Clock.Now()
	var off atomic.Int64
	cfg.Clock = func() time.Time { return c.Clock.Now().Round(0).Add(time.Duration(off.Load())) }
	cfg.Elapsed = func() time.Duration { return c.Clock.Now().Sub(begun) }
	run := func() (stop func()) {
		i, err := issuer.New(cfg)
		require.NoError(t, err)
		return relaytest.Run(t, i.Run)
	}
	keys := func() int {
		file, err := keyfile.LoadRSA(cfg.Tasks[0].TokenKeys)
		require.NoError(t, err)
		return len(file.Epochs())
	}
	stop := run()
	c.Clock.Advance(20 * time.Minute)
	time.Sleep(2 * time.Second) // until the issuer has written the time
	if restart {
		stop()
	}
	off.Store(int64(by))
	if restart {
		run()
	}
	require.Never(t, func() bool { return keys() < epochs }, twoSearches, 100*time.Millisecond, "erased early")
	c.Clock.Advance(46*time.Minute + time.Second)
	require.Eventually(t, func() bool { return keys() == epochs-1 }, relaytest.Patience, 100*time.Millisecond)
	require.Never(t, func() bool { return keys() < epochs-1 }, twoSearches, 100*time.Millisecond, "erased early")
}
