package relay_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/doona-dp/doona/internal/testing/relaytest"
	"github.com/doona-dp/doona/relay"
	"github.com/doona-dp/doona/wire/problem"
	"github.com/doona-dp/doona/wire/task"
)

// startSlowly begins to send a report from a client's address, but does not send the body.
func startSlowly(t *testing.T, c *relaytest.Cascade, client string) net.Conn {
	t.Helper()
	slow, line := startReport(t, c, client, len(c.Seal(t, 0, 0)))
	require.Contains(t, line, "100 Continue", "the relay waits for the slow client's body")
	return slow
}

// startReport sends the head of a report and returns the first line of the relay's answer.
func startReport(t *testing.T, c *relaytest.Cascade, client string, size int) (net.Conn, string) {
	t.Helper()
	target, err := url.Parse(c.ReportsURL(0))
	require.NoError(t, err)
	conn, err := net.Dial("tcp", target.Host)
	require.NoError(t, err)
	t.Cleanup(func() { conn.Close() })
	_, err = fmt.Fprintf(conn,
		"POST %s HTTP/1.1\r\nHost: x\r\nX-Forwarded-For: %s\r\nContent-Type: application/msgpack\r\n"+
			"Content-Length: %d\r\nExpect: 100-continue\r\n\r\n", target.Path, client, size)
	require.NoError(t, err)
	line, err := bufio.NewReader(conn).ReadString('\n')
	require.NoError(t, err)
	return conn, line
}

func eventuallyTaken(t *testing.T, c *relaytest.Cascade, body []byte, client string) {
	t.Helper()
	require.Eventually(t, func() bool { return c.Post(t.Context(), 0, body, client) == nil }, relaytest.Patience,
		time.Millisecond)
}

// requireLater requires a wait of 2 to 8 seconds.
func requireLater(t *testing.T, wait time.Duration) {
	t.Helper()
	require.GreaterOrEqual(t, wait, 2*time.Second)
	require.LessOrEqual(t, wait, 8*time.Second)
}

// TestOverload: the relay must refuse reports beyond MaxConcurrent, with different waiting times for retries.
func TestOverload(t *testing.T) {
	c := relaytest.New(t, relaytest.Options{Config: func(_ int, cfg *relay.Config) { cfg.MaxConcurrent = 1 }})
	c.Start(t, 0)
	slow := startSlowly(t, c, relaytest.Network(9))
	body := c.Seal(t, 0, 1)
	waits := map[time.Duration]bool{}
	for range 60 { // 7 possible values: all equal with probability 7⁻⁵⁹
		p := requireProblem(t, problem.Overloaded, c.Post(t.Context(), 0, body, relaytest.Network(1)))
		require.Equal(t, http.StatusServiceUnavailable, p.Status)
		requireLater(t, p.RetryAfter)
		waits[p.RetryAfter] = true
	}
	require.Greater(t, len(waits), 1)
	require.NoError(t, slow.Close())
	eventuallyTaken(t, c, body, relaytest.Network(1))
}

// TestOneNetworkTakesAShare: slow clients of one network must leave capacity for others. Further clients of that
// network must get the problem slow-down.
func TestOneNetworkTakesAShare(t *testing.T) {
	c := relaytest.New(t, relaytest.Options{Config: func(_ int, cfg *relay.Config) { cfg.MaxConcurrent = 16 }})
	c.Start(t, 0)
	slow := []net.Conn{startSlowly(t, c, "198.51.100.1"), startSlowly(t, c, "198.51.100.2")}
	body := c.Seal(t, 0, 1)
	p := requireProblem(t, problem.SlowDown, c.Post(t.Context(), 0, body, "198.51.100.3"))
	require.Equal(t, http.StatusTooManyRequests, p.Status)
	requireLater(t, p.RetryAfter)
	require.NoError(t, c.Post(t.Context(), 0, c.Seal(t, 0, 2), relaytest.Network(1)))
	require.NoError(t, slow[0].Close())
	eventuallyTaken(t, c, body, "198.51.100.3")
}

// TestMemoryIsReserved: a report does not fit into MaxMemory beside the others. The relay must refuse it before it
// reads the body, whether or not the request declares a length.
func TestMemoryIsReserved(t *testing.T) {
	c := relaytest.New(t, relaytest.Options{
		Task:   func(t *task.Task) { t.Slots.PerLane, t.Slots.MessageBytes = 100, 500 }, // bodies of 70 kB
		Config: func(_ int, cfg *relay.Config) { cfg.MaxMemory = 1 << 20 },
	})
	r, _ := c.StartRelay(t, 0)
	before := relay.FreeMemory(r)
	var slow []net.Conn
	for n := range 100 {
		conn, line := startReport(t, c, relaytest.Network(n), len(c.Seal(t, 0, 0)))
		if !strings.Contains(line, "100 Continue") {
			require.Contains(t, line, "503")
			break
		}
		slow = append(slow, conn)
	}
	require.Len(t, slow, 3, "each report of 70 kB reserves 280 kB of 1 MiB")
	body := c.Seal(t, 0, 1)
	requireProblem(t, problem.Overloaded, c.Post(t.Context(), 0, body, relaytest.Network(200)))
	// a report without a declared length
	chunked, err := http.NewRequest(http.MethodPost, c.ReportsURL(0), io.MultiReader(strings.NewReader("x")))
	require.NoError(t, err)
	chunked.Header.Set("Content-Type", "application/msgpack")
	resp, err := http.DefaultClient.Do(chunked)
	require.NoError(t, err)
	resp.Body.Close()
	require.Equal(t, http.StatusServiceUnavailable, resp.StatusCode)
	for _, conn := range slow {
		conn.Close()
	}
	eventuallyTaken(t, c, body, relaytest.Network(200))
	require.Eventually(t, func() bool { return relay.FreeMemory(r) == before }, relaytest.Patience, time.Millisecond,
		"the relay must release all reserved memory")
}

// TestSmallMemory: if the memory limit is too small for the tasks' reports, the relay must not start, and must name the
// memory that it needs.
func TestSmallMemory(t *testing.T) {
	c := relaytest.New(t, relaytest.Options{
		Tasks:  2,
		Task:   func(t *task.Task) { t.Slots.PerLane, t.Slots.MessageBytes = 300, 500 },
		Config: func(_ int, cfg *relay.Config) { cfg.MaxMemory = 1 << 20 },
	})
	_, err := relay.New(c.Config(t, 0))
	require.ErrorContains(t, err, "invalid max_memory 1MiB: want at least 2MiB for reports of these tasks")
}

// TestFloodedTask floods one of two tasks from many networks, with slow and with complete reports. The relay must
// accept every report of the other task at the first attempt.
func TestFloodedTask(t *testing.T) {
	const clients = 50
	c := relaytest.New(t, relaytest.Options{Tasks: 2,
		Task:   func(t *task.Task) { t.Batch.Size, t.Clients.Quota = 1<<20, 1 },
		Config: func(_ int, cfg *relay.Config) { cfg.MaxConcurrent = 64 }})
	c.Start(t, 0)
	other := c.Other(t, 1)
	bodies := sealAll(t, c, clients)
	flood, end := context.WithCancel(t.Context())
	var refused, accepted atomic.Int64
	var flooding sync.WaitGroup
	for range 16 {
		startReport(t, c, relaytest.Network(1000+int(accepted.Add(1))), len(bodies[0]))
	}
	accepted.Store(0)
	for i := range 80 {
		flooding.Go(func() {
			for n := i; flood.Err() == nil; n += 80 {
				if c.Post(flood, 0, bodies[n%clients], relaytest.Network(n%clients)) == nil {
					accepted.Add(1)
				} else {
					refused.Add(1)
				}
			}
		})
	}
	require.Eventually(t, func() bool { return refused.Load() > 100 }, relaytest.Patience, time.Millisecond,
		"the task is flooded")
	var slowest time.Duration
	for i := range clients {
		body := other.Seal(t, 0, uint64(i))
		begun := time.Now()
		require.NoError(t, other.Post(t.Context(), 0, body, relaytest.Network(500+i)))
		slowest = max(slowest, time.Since(begun))
	}
	end()
	flooding.Wait()
	t.Logf("flooded task: %d accepted, %d refused meanwhile; other task: %d of %d accepted, slowest %v", accepted.Load(),
		refused.Load(), clients, clients, slowest.Round(time.Microsecond))
}

// TestConnectionLimit: one network may hold at most an eighth of MaxConnections. A client of another network must be
// able to connect while a connection is free.
func TestConnectionLimit(t *testing.T) {
	c := relaytest.New(t, relaytest.Options{Config: func(_ int, cfg *relay.Config) {
		cfg.MaxConnections, cfg.TrustedProxies = 16, []string{"127.0.9.0/24"}
	}})
	c.Start(t, 0)
	dial, served := relaytest.RequireShare(t, c.Config(t, 0).Listen, "/v1/keys")
	for range 12 {
		dial("127.0.9.1") // a trusted proxy may use all connections
	}
	last := dial("127.0.3.1")
	require.True(t, served(last), "the sixteenth connection is served, and then closed to make room")
	_, err := last.Read(make([]byte, 4096))
	for ; err == nil; _, err = last.Read(make([]byte, 4096)) {
	}
	require.ErrorIs(t, err, io.EOF)
	dial("127.0.9.1")
	require.False(t, served(dial("127.0.3.1")), "no connection may be left")
	resp, err := http.Get("http://" + c.Config(t, 0).Admin + "/metrics")
	require.NoError(t, err)
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	require.NoError(t, err)
	require.Contains(t, string(text), "doona_relay_connections_refused_total")
}
