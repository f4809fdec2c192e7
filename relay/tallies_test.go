package relay_test

import (
	"io"
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/doona-dp/doona/internal/testing/relaytest"
	"github.com/doona-dp/doona/relay"
	"github.com/doona-dp/doona/wire/problem"
)

// refuse makes a first relay refuse n reports of a client that has used up its quota.
func refuse(t *testing.T, c *relaytest.Cascade, client string, n int) {
	t.Helper()
	for range n {
		requireProblem(t, problem.Limit, c.Post(t.Context(), 0, c.Seal(t, 0, 99), client))
	}
}

// refused returns the counts of refused reports of epoch 0 in the first relay's status.
func refused(t *testing.T, c *relaytest.Cascade) map[string]uint64 {
	t.Helper()
	epochs := c.Status(t, 0).Epochs
	require.NotEmpty(t, epochs)
	return epochs[0].Refused
}

// TestTalliesSurviveRestarts: the relay must count refused reports across restarts, and show the count only when the
// epoch is erased. 3 before a restart and 2 after it must show as 8: 5, rounded up.
func TestTalliesSurviveRestarts(t *testing.T) {
	c := relaytest.New(t, relaytest.Options{Hops: 1})
	stop := c.Start(t, 0)
	require.NoError(t, c.Post(t.Context(), 0, c.Seal(t, 0, 1), relaytest.Network(1)))
	refuse(t, c, relaytest.Network(1), 3)
	stop()
	stop = c.Start(t, 0)
	refuse(t, c, relaytest.Network(1), 2)
	require.Empty(t, refused(t, c))
	c.Clock.Advance(relaytest.Epoch + 2*time.Second)
	waitState(t, c, 0, 0, "erased")
	require.Equal(t, map[string]uint64{"limit": 8}, refused(t, c))
	stop()
	status, out, log := run(t, "status", "--config", c.RelayConfig(1))
	require.Zero(t, status, log)
	require.Contains(t, out, "epoch 0: at most 8, limit\n")
	c.Start(t, 0)
	resp, err := http.Get("http://" + c.Config(t, 0).Admin + "/metrics")
	require.NoError(t, err)
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	require.NoError(t, err)
	require.Regexp(t, `doona_relay_refused{owner="",reason="limit",task="[0-9a-f]{8}"} 8\n`, string(text))
}

// TestTalliesOfTwins: two processes share a PostgreSQL database; one refuses 3 reports and restarts, the other refuses
// 2. Both must show 8, the sum rounded up.
func TestTalliesOfTwins(t *testing.T) {
	c := relaytest.New(t, relaytest.Options{Hops: 1, Postgres: true})
	stop := c.Start(t, 0)
	config, twin := c.Twin(t, 0)
	cfg, err := relay.LoadConfig(config)
	require.NoError(t, err)
	cfg.Clock = c.Clock.Now
	second := runBeside(t, twin, cfg)
	require.NoError(t, c.Post(t.Context(), 0, c.Seal(t, 0, 1), relaytest.Network(1)))
	refuse(t, c, relaytest.Network(1), 3)
	refuse(t, twin, relaytest.Network(1), 2)
	stop()
	c.Start(t, 0)
	c.Clock.Advance(relaytest.Epoch + 2*time.Second)
	waitState(t, c, 0, 0, "erased")
	eight := map[string]uint64{"limit": 8}
	requireSoon(t, func() bool { return refused(t, c)["limit"] == 8 }) // each process adds its own count
	status, err := second.Status(t.Context())
	require.NoError(t, err)
	require.Equal(t, eight, status.Tasks[0].Epochs[0].Refused)
}
