package relay_test

import (
	"errors"
	"math/rand/v2"
	"net/http"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/doona-dp/doona/internal/testing/pgtest"
	"github.com/doona-dp/doona/internal/testing/relaytest"
	"github.com/doona-dp/doona/internal/testing/stattest"
	"github.com/doona-dp/doona/relay"
	"github.com/doona-dp/doona/wire/problem"
	"github.com/doona-dp/doona/wire/task"
	"github.com/doona-dp/doona/wire/token"
)

// race sends reports with one token at once, distributed over the relay's processes, and returns the results. If a
// process does not answer, the report is not sent again.
func race(t *testing.T, seen []*relaytest.Cascade, bodies [][]byte, tok []byte) []error {
	t.Helper()
	errs := make([]error, len(bodies))
	var sending sync.WaitGroup
	for i, body := range bodies {
		sending.Go(func() {
			to := seen[i%len(seen)]
			for errs[i] = problem.New(problem.Overloaded, ""); errors.Is(errs[i],
				problem.New(problem.Overloaded, "")) || errors.Is(errs[i], problem.New(problem.ClockInDoubt, "")); {
				errs[i] = to.PostWith(t.Context(), 0, body,
					http.Header{"Authorization": {token.Header(tok)}, "X-Forwarded-For": {relaytest.Network(i)}})
			}
		})
	}
	sending.Wait()
	return errs
}

// requireOneTaken asserts that exactly one report was acknowledged and the others hit the limit.
func requireOneTaken(t *testing.T, errs []error) {
	t.Helper()
	accepted := 0
	for _, err := range errs {
		if err == nil {
			accepted++
			continue
		}
		requireProblem(t, problem.Limit, err)
	}
	require.Equal(t, 1, accepted)
}

// TestCrashSpendsOnce: 100 reports come at once with the same token, to two processes on one PostgreSQL server. Exactly
// one may be accepted and stored. If a process or the server is killed meanwhile and all reports are sent again, it
// must be the one acknowledged before. 3 such races and 3 with a crash; 24 each in the long form.
func TestCrashSpendsOnce(t *testing.T) {
	rounds := 3
	if stattest.Long {
		rounds = 24
	}
	c := relaytest.New(t, relaytest.Options{Postgres: true, Task: func(t *task.Task) {
		relaytest.WithTokens(t)
		t.Batch.Size = 1000 // more than there are rounds
	}})
	c.StartIssuer(t, c.IssuerConfig())
	processes := []*process{startProcess(t, c, 0)}
	config, twin := c.Twin(t, 0)
	processes = append(processes, startConfig(t, twin, 0, config))
	seen := []*relaytest.Cascade{c, twin}
	waitForKey(t, c)
	waitForKey(t, twin)
	stored := 0
	requireStored := func() {
		t.Helper()
		stored++
		submissions, err := relay.Submissions(c.Config(t, 0), c.Open.ID)
		require.NoError(t, err)
		require.EqualValues(t, stored, submissions)
	}
	early := 0 // reports acknowledged before a crash
	for range rounds {
		requireOneTaken(t, race(t, seen, sealAll(t, c, 100), c.Token(t, 0)))
		requireStored()
	}
	for round := range rounds {
		bodies, tok := sealAll(t, c, 100), c.Token(t, 0)
		raced := make(chan []error, 1)
		go func() { raced <- race(t, seen, bodies, tok) }()
		time.Sleep(time.Duration(rand.Int64N(int64(40 * time.Millisecond))))
		crashOne(t, processes, round%3)
		answered := <-raced
		waitForKey(t, c)
		waitForKey(t, twin)
		again := race(t, seen, bodies, tok)
		requireOneTaken(t, again)
		requireStored()
		for i, err := range answered {
			if err == nil {
				require.NoError(t, again[i], "it was acknowledged before the crash")
				early++
			}
		}
	}
	t.Logf("%d races and %d with a crash, %d of these after the acknowledgement", rounds, rounds, early)
}

// crashOne kills a process, or the PostgreSQL server, and starts it again.
func crashOne(t *testing.T, processes []*process, victim int) {
	if victim < len(processes) {
		processes[victim].cmd.Process.Signal(syscall.SIGKILL)
		processes[victim].cmd.Wait()
		processes[victim].start(t)
		return
	}
	server, err := pgtest.Shared()
	require.NoError(t, err)
	require.NoError(t, server.Crash())
	require.NoError(t, server.Restart())
}
