package relay_test

import (
	"os"
	"path/filepath"
	"regexp"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/doona-dp/doona/internal/testing/relaytest"
	"github.com/doona-dp/doona/relay"
	"github.com/doona-dp/doona/wire/problem"
	"github.com/doona-dp/doona/wire/task"
)

// TestProxyInFront: a CDN is in front of a proxy that names only the CDN's address, so all clients are one network. The
// relay must say within a minute that it refuses most reports as limit, and stop saying so within a minute after.
func TestProxyInFront(t *testing.T) {
	c := relaytest.New(t, relaytest.Options{Hops: 1, Tasks: 2, Task: func(t *task.Task) { t.Batch.Size = 1000 }})
	c.Start(t, 0)
	n := 0
	post := func(client func() string) {
		for range 30 { // a minute
			for range 10 {
				n++
				_ = c.Post(t.Context(), 0, c.Seal(t, 0, 1), client())
			}
			c.Clock.Advance(2 * time.Second)
		}
	}
	refusing := `task ` + c.Open.ID.String()[:8] + ` refuses most reports: limit: is a proxy in front`
	says := func() (ready, status, metrics string) {
		code, ready := getAdmin(t, c, 0, "readyz")
		require.Equal(t, 2, code/100, "a flood by one network must not take the relay out of service")
		_, status, _ = run(t, "status", "--admin", "http://"+c.Config(t, 0).Admin)
		_, metrics = getAdmin(t, c, 0, "metrics")
		return ready, status, metrics
	}
	post(func() string { return relaytest.Network(n) })
	ready, status, metrics := says()
	require.Empty(t, ready)
	require.NotContains(t, status, "refuses")
	require.Contains(t, metrics, `doona_relay_refusing{problem="limit"} 0`)
	post(func() string { return relaytest.Network(0) })
	ready, status, metrics = says()
	require.Contains(t, ready, refusing)
	require.Contains(t, status, refusing)
	require.Contains(t, metrics, `doona_relay_refusing{problem="limit"} 1`)
	post(func() string { return relaytest.Network(n) })
	ready, status, metrics = says()
	require.Empty(t, ready)
	require.NotContains(t, status, "refuses")
	require.Contains(t, metrics, `doona_relay_refusing{problem="limit"} 0`)

	other := c.Other(t, 1)
	require.NoError(t, other.Post(t.Context(), 0, other.Seal(t, 0, 1), relaytest.Network(1)))
	for range 62 { // too few to say anything of them
		requireProblem(t, problem.Limit, other.Post(t.Context(), 0, other.Seal(t, 0, 1), relaytest.Network(1)))
	}
	c.Clock.Advance(time.Minute)
	_, status, _ = says()
	require.NotContains(t, status, "refuses")
}

// shownElsewhere says, for each problem that [relay.Refusal] never has, where an operator sees it, or why nobody must.
var shownElsewhere = map[problem.Name]string{
	problem.NotFound:       "scanners ask for anything; reports with a wrong path are unknown-task",
	problem.NotSealed:      "the usual answer to a next hop that is ahead",
	problem.Complete:       "the usual end of an epoch",
	problem.Confirmed:      "a next hop that asks again; DoonaRelayNotFetched if it confirms nothing",
	problem.Unauthorized:   "the next hop's requests fail: DoonaRelayNotFetched, and DoonaRelayNoAnswer there",
	problem.EpochEnded:     "the operator ended the epoch, and its finding says so",
	problem.WrongPosition:  "the owner's command prints it; the task in force is served",
	problem.OwnerTaskLimit: "DoonaRelayOwnerTaskLimit, and owners in relay status",
}

// problemNames returns all names of problems, from the source.
func problemNames(t *testing.T) (out []problem.Name) {
	t.Helper()
	source, err := os.ReadFile(filepath.Join("..", "wire", "problem", "problem.go"))
	require.NoError(t, err)
	for _, m := range regexp.MustCompile(`(?m)^\t\w+ +Name = "([a-z-]+)"`).FindAllStringSubmatch(string(source), -1) {
		out = append(out, problem.Name(m[1]))
	}
	require.Greater(t, len(out), 20)
	return out
}

// TestEveryProblemIsShown: each problem must have a line in the status and a metric with an alert, or a reason why
// there is none.
func TestEveryProblemIsShown(t *testing.T) {
	for _, name := range problemNames(t) {
		require.NotEqual(t, relay.Advice()[name] != "", shownElsewhere[name] != "", "%s: want exactly one of both", name)
	}
}
