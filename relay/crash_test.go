package relay_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/doona-dp/doona/internal/testing/pgtest"
	"github.com/doona-dp/doona/internal/testing/relaytest"
	"github.com/doona-dp/doona/relay"
	"github.com/doona-dp/doona/wire/handover"
	"github.com/doona-dp/doona/wire/problem"
	"github.com/doona-dp/doona/wire/task"
)

// executable is the path of the relay command, and ownerProgram that of the doona command. TestMain builds both once.
var executable, ownerProgram string

func TestMain(m *testing.M) {
	os.Exit(func() int {
		dir, err := os.MkdirTemp("", "relay")
		if err != nil {
			panic(err)
		}
		defer os.RemoveAll(dir)
		executable, ownerProgram = filepath.Join(dir, "relay"), filepath.Join(dir, "doona")
		build := exec.Command("go", "build", "-o", dir+"/", "github.com/doona-dp/doona/cmd/relay",
			"github.com/doona-dp/doona/cmd/doona")
		if out, err := build.CombinedOutput(); err != nil {
			panic(fmt.Sprintf("couldn't build the programs: %v\n%s", err, out))
		}
		defer pgtest.StopShared()
		return m.Run()
	}())
}

// process is a relay that runs as its own process.
type process struct {
	cascade *relaytest.Cascade
	hop     int
	config  string
	admin   string
	cmd     *exec.Cmd
}

func startProcess(t testing.TB, c *relaytest.Cascade, hop int) *process {
	t.Helper()
	return startConfig(t, c, hop, c.RelayConfig(hop+1))
}

// startConfig is startProcess with another configuration file, for a second process of the same relay.
func startConfig(t testing.TB, c *relaytest.Cascade, hop int, config string) *process {
	t.Helper()
	loaded, err := relay.LoadConfig(config)
	require.NoError(t, err)
	p := &process{cascade: c, hop: hop, config: config, admin: loaded.Admin}
	p.start(t)
	t.Cleanup(func() {
		p.cmd.Process.Kill()
		p.cmd.Wait()
	})
	return p
}

func (p *process) start(t testing.TB) {
	t.Helper()
	p.cmd = exec.Command(executable, "serve", "--config", p.config)
	log, err := os.OpenFile(filepath.Join(p.cascade.Dir, fmt.Sprintf("relay%d.log", p.hop+1)),
		os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	require.NoError(t, err)
	defer log.Close()
	p.cmd.Stderr = log
	require.NoError(t, p.cmd.Start())
	p.cascade.WaitReady(t, p.admin)
}

func (p *process) crash(t *testing.T) {
	t.Helper()
	require.NoError(t, p.cmd.Process.Signal(syscall.SIGKILL))
	p.cmd.Wait()
	p.start(t)
}

// postAll posts the reports in bodies over some connections. It sends each report, byte for byte the same, until the
// relay acknowledges it, and counts the acknowledgements in acked.
func postAll(ctx context.Context, c *relaytest.Cascade, bodies [][]byte, connections int, acked *atomic.Int64) error {
	var clients sync.WaitGroup
	failed := make(chan error, len(bodies))
	queue := make(chan int, len(bodies))
	for i := range bodies {
		queue <- i
	}
	close(queue)
	for range connections {
		clients.Go(func() {
			for i := range queue {
				if err := postUntilTaken(ctx, c, bodies[i], relaytest.Network(i)); err != nil {
					failed <- fmt.Errorf("report %d: %w", i, err)
					return
				}
				acked.Add(1)
			}
		})
	}
	clients.Wait()
	close(failed)
	return <-failed
}

func postUntilTaken(ctx context.Context, c *relaytest.Cascade, body []byte, from string) error {
	return untilTaken(ctx, func() error { return c.Post(ctx, 0, body, from) })
}

// untilTaken calls post until the relay accepts or refuses the report.
func untilTaken(ctx context.Context, post func() error) error {
	for {
		err := post()
		var p *problem.Problem
		if err == nil || ctx.Err() != nil ||
			errors.As(err, &p) && p.Name != problem.Overloaded && p.Name != problem.ClockInDoubt {
			return err
		}
		time.Sleep(5 * time.Millisecond)
	}
}

func sealAll(t testing.TB, c *relaytest.Cascade, n int) [][]byte { return sealFrom(t, c, 0, n) }

// sealFrom seals reports of the n values from, from+1, …
func sealFrom(t testing.TB, c *relaytest.Cascade, from, n int) [][]byte {
	t.Helper()
	bodies := make([][]byte, n)
	var sealers sync.WaitGroup
	for part := range 2 {
		sealers.Go(func() {
			for i := part; i < n; i += 2 {
				bodies[i] = c.Seal(t, 0, uint64(from+i))
			}
		})
	}
	sealers.Wait()
	return bodies
}

// requireExactlyOnce pulls all batches from the second relay, checks and confirms them, and requires that each of the
// values 0 to n-1 came exactly once.
func requireExactlyOnce(t *testing.T, c *relaytest.Cascade, n int) {
	t.Helper()
	count := make([]int, n)
	batches := uint64(n) / c.Open.Batch.Size
	for seq := range batches {
		batch, chain := c.Pull(t, 0, seq)
		require.Equal(t, c.Open.Batch.Size, chain[0].Submissions)
		for _, v := range c.Values(t, 0, batch)[0] {
			count[v]++
		}
		require.NoError(t, c.Verifier.Confirm(t.Context(), c.Open, 1, 0, seq, batch.Manifest))
	}
	for value, times := range count {
		require.Equal(t, 1, times, "report %d", value)
	}
	_, err := c.Verifier.Pull(t.Context(), c.Open, 1, 0, batches)
	require.ErrorIs(t, err, handover.ErrNotSealed, "no further batch is sealed")
	waitConfirmed(t, c, 0, batches)
	require.Empty(t, c.Status(t, 0).Findings)
	require.Empty(t, c.Status(t, 1).Findings)
}

// TestDrain: a relay gets SIGTERM under load. It must answer the requests that have begun and exit with status 0.
// Exactly the acknowledged reports must be in its store, although no client retries.
func TestDrain(t *testing.T) {
	eachEngine(t, func(t *testing.T, o relaytest.Options) {
		const clients, rounds = 32, 3
		o.Task = func(t *task.Task) { t.Batch.Size = 1 << 20 }
		c := relaytest.New(t, o)
		first := startProcess(t, c, 0)
		var acked, next atomic.Int64
		for range rounds {
			before, seen := acked.Load(), make(chan struct{})
			var sending sync.WaitGroup
			for range clients {
				sending.Go(func() {
					for {
						i := next.Add(1)
						if postOnce(c, c.Seal(t, 0, uint64(i)), relaytest.Network(int(i))) != nil {
							return
						}
						if acked.Add(1) == before+10 {
							close(seen)
						}
					}
				})
			}
			<-seen
			time.Sleep(time.Duration(rand.Int64N(int64(50 * time.Millisecond))))
			require.NoError(t, first.cmd.Process.Signal(syscall.SIGTERM))
			require.NoError(t, first.cmd.Wait(), "exit status 0")
			sending.Wait()
			stored, err := relay.Submissions(c.Config(t, 0), c.Open.ID)
			require.NoError(t, err)
			require.EqualValues(t, acked.Load(), stored)
			first.start(t)
		}
		t.Logf("%d reports acknowledged and stored, through %d drains", acked.Load(), rounds)
	})
}

// postOnce sends a report once. It uses a new connection: net/http would send the report again if it found a reused
// connection closed.
func postOnce(c *relaytest.Cascade, body []byte, from string) error {
	req, err := http.NewRequest(http.MethodPost, c.ReportsURL(0), bytes.NewReader(body))
	if err != nil {
		return err
	}
	req.Close = true
	req.Header.Set("X-Forwarded-For", from)
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusCreated {
		return problem.Read(resp)
	}
	return nil
}

// attempts counts log lines that say "couldn't pull".
type attempts struct{ atomic.Int64 }

func (a *attempts) Write(line []byte) (int, error) {
	if bytes.Contains(line, []byte("couldn't pull")) {
		a.Add(1)
	}
	return len(line), nil
}

// TestDiskFull fills the store of either relay: the first must refuse reports, the second must not confirm. When there
// is space again, the first relay must accept identical bytes, and every report must come out once.
func TestDiskFull(t *testing.T) {
	const n = 200
	var failed attempts // pulls by the second relay
	c := relaytest.New(t, relaytest.Options{
		Task: func(t *task.Task) { t.Batch.Size = n },
		Config: func(hop int, cfg *relay.Config) {
			cfg.Log = []*slog.Logger{nil, slog.New(slog.NewTextHandler(&failed, nil))}[hop]
		},
	})
	first, _ := c.StartRelay(t, 0)
	bodies := sealAll(t, c, n)
	full := 0
	require.NoError(t, relay.LimitPages(first, 20))
	for i, body := range bodies {
		if err := c.Post(t.Context(), 0, body, relaytest.Network(i)); err != nil {
			requireProblem(t, problem.Overloaded, err)
			full++
		}
	}
	require.Greater(t, full, n/10)
	require.Less(t, full, n)
	require.NoError(t, relay.LimitPages(first, 0))

	second, _ := c.StartRelay(t, 1)
	require.NoError(t, relay.LimitPages(second, 1))
	var acked atomic.Int64
	require.NoError(t, postAll(t.Context(), c, bodies, 8, &acked))
	require.Eventually(t, func() bool { e := c.Status(t, 0).Epochs; return e[0].Batches == 1 }, relaytest.Patience,
		10*time.Millisecond)
	requireSoon(t, func() bool { return failed.Load() > 0 }) // later failures of this kind are not logged
	_, err := c.Verifier.Pull(t.Context(), c.Open, 1, 0, 0)
	require.ErrorIs(t, err, handover.ErrNotSealed)
	require.Zero(t, c.Status(t, 0).Epochs[0].Confirmed)
	require.NoError(t, relay.LimitPages(second, 0))
	requireExactlyOnce(t, c, n)
}
