package relay_test

import (
	"errors"
	"io"
	"math/rand/v2"
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/doona-dp/doona/internal/testing/pgtest"
	"github.com/doona-dp/doona/internal/testing/relaytest"
	"github.com/doona-dp/doona/internal/testing/stattest"
	"github.com/doona-dp/doona/randomizer"
	"github.com/doona-dp/doona/relay"
	"github.com/doona-dp/doona/wire/keyfile"
	"github.com/doona-dp/doona/wire/onion"
	"github.com/doona-dp/doona/wire/problem"
	"github.com/doona-dp/doona/wire/task"
)

// TestTwinsCarryBatches: each of two relays has two processes, and the test repeatedly kills one at random. Every
// acknowledged report must come out once.
func TestTwinsCarryBatches(t *testing.T) {
	const n, kills = 2000, 6
	// Each network is used twice: for both halves of the reports.
	c := relaytest.New(t, relaytest.Options{Postgres: true,
		Task: func(t *task.Task) { t.Batch.Size, t.Clients.Quota = 100, 2 }})
	bodies := sealAll(t, c, n)
	var processes []*process
	seen := []*relaytest.Cascade{c, nil}
	for hop := range 2 {
		processes = append(processes, startProcess(t, c, hop))
		config, twin := c.Twin(t, hop)
		processes = append(processes, startConfig(t, twin, hop, config))
		if hop == 0 {
			seen[1] = twin
		}
	}
	var acked atomic.Int64
	done := make(chan error, 2)
	for i, part := range [][][]byte{bodies[:n/2], bodies[n/2:]} {
		go func() { done <- postAll(t.Context(), seen[i], part, 16, &acked) }()
	}
	for k := range int64(kills) {
		for acked.Load() < (k*n+rand.Int64N(n))/kills {
			time.Sleep(time.Millisecond)
		}
		processes[rand.IntN(len(processes))].crash(t)
	}
	require.NoError(t, <-done)
	require.NoError(t, <-done)
	requireExactlyOnce(t, c, n)
}

// TestTwinsRaceForNumbers: two processes have drawn dummies for the same batch number. They must make one batch, with
// the draw of one process. The other draw must not be stored.
func TestTwinsRaceForNumbers(t *testing.T) {
	const batches = 3
	c := relaytest.New(t, relaytest.Options{Postgres: true, Task: noisy})
	first := c.StartFirst(t)
	var both [batches]sync.WaitGroup
	for i := range both {
		both[i].Add(2)
	}
	start := func(cfg relay.Config, cell uint64) {
		r, err := relay.New(cfg)
		require.NoError(t, err)
		draws := 0
		relay.DrawFrom(r, func(*randomizer.Source) ([]uint64, error) {
			both[draws].Done()
			both[draws].Wait()
			draws++
			return slices.Repeat([]uint64{cell}, added), nil
		})
		c.Serve(t, r, cfg.Admin)
	}
	start(c.Config(t, 1), 0)
	config, _ := c.Twin(t, 1)
	twin, err := relay.LoadConfig(config)
	require.NoError(t, err)
	twin.Clock = c.Clock.Now
	start(twin, 1)
	for seq := range uint64(batches) {
		b, err := onion.NewBatch(first.Sign, onion.BatchDraft{
			Context: first.Context(0), Seq: seq, Submissions: 10, In: []uint64{10}, Added: []uint64{added},
		}, c.Slots(t, 0, slices.Repeat([]uint64{1000}, 10+added)...))
		require.NoError(t, err)
		first.Serve(t, 0, seq, b)
	}
	for seq := range uint64(batches) {
		batch, chain := c.Pull(t, 0, seq)
		require.Equal(t, []onion.LaneCount{{In: 10 + added, Added: added, Out: 10 + 2*added}}, chain[1].Lanes)
		drawn := slices.DeleteFunc(c.Values(t, 0, batch)[0], func(value uint64) bool { return value == 1000 })
		require.Len(t, drawn, added)
		require.Len(t, slices.Compact(drawn), 1, "the batch must have the draw of one process")
		again, _ := c.Pull(t, 0, seq) // waits if a process was fenced meanwhile, as on a busy machine
		require.Equal(t, batch, again)
	}
	require.Empty(t, c.Status(t, 1).Findings)
}

// TestTwinsForget: one process ends an epoch. The other must follow, and both must erase the epoch's keys.
func TestTwinsForget(t *testing.T) {
	c := relaytest.New(t, relaytest.Options{Hops: 1, Postgres: true})
	first, stop := c.StartRelay(t, 0)
	config, _ := c.Twin(t, 0)
	cfg, err := relay.LoadConfig(config)
	require.NoError(t, err)
	cfg.Clock = time.Now // this process never sees the end of the epoch by itself
	second := runBeside(t, c, cfg)
	require.NoError(t, c.Post(t.Context(), 0, c.Seal(t, 0, 1), relaytest.Network(1)))
	require.True(t, relay.HasEpochKey(second, c.Open.ID, 0))
	c.Clock.Advance(relaytest.Epoch + 2*time.Second)
	for i, r := range []*relay.Relay{first, second} {
		requireSoon(t, func() bool { return !relay.HasEpochKey(r, c.Open.ID, 0) })
		path := filepath.Join(filepath.Dir([]string{c.RelayConfig(1), config}[i]), "task0.keys")
		requireSoon(t, func() bool {
			keys, err := keyfile.LoadHPKE(path)
			require.NoError(t, err)
			_, err = keys.Key(0)
			return errors.Is(err, keyfile.ErrErased)
		})
	}
	stop()
}

// TestFencedAlone: the other processes have excluded a process and are then lost. It must report that, and hand out
// nothing until the operator ends the epochs.
func TestFencedAlone(t *testing.T) {
	c := relaytest.New(t, relaytest.Options{Hops: 1, Postgres: true})
	cfg := c.Config(t, 0)
	stop := c.Start(t, 0)
	postSome(t, c, 0, 1)
	stop()
	_, err := relay.OpenRolledBack(cfg)
	require.ErrorIs(t, err, relay.ErrNoRollback)
	require.NoError(t, relay.Fence(cfg.Store))
	r, err := relay.New(cfg)
	require.NoError(t, err)
	stop = c.ServeUnready(t, r)
	const cause = "joining: no member is running"
	status, text := get(t, c, 0, "/readyz")
	require.Equal(t, http.StatusServiceUnavailable, status)
	require.Contains(t, text, cause)
	code, out, log := run(t, "status", "--config", c.RelayConfig(1))
	require.Zero(t, code, log)
	require.Contains(t, out, cause)
	stop()
	code, out, log = run(t, "end-epochs", "--config", c.RelayConfig(1), "--confirm")
	require.Zero(t, code, log)
	require.Contains(t, out, cause)
	c.Start(t, 0)
}

// TestOneProcessPerFile: a second process must not start on an SQLite file that a relay uses. It must start after the
// first has ended, even by SIGKILL. `relay status` may always read the file.
func TestOneProcessPerFile(t *testing.T) {
	c := relaytest.New(t, relaytest.Options{Hops: 1})
	p := startProcess(t, c, 0)
	require.NoError(t, c.Post(t.Context(), 0, c.Seal(t, 0, 1), relaytest.Network(1)))
	status, _, log := run(t, "serve", "--config", c.RelayConfig(1))
	require.Equal(t, 1, status)
	require.Contains(t, log, "another process uses it: one process at a time can serve from an SQLite file")
	status, out, log := run(t, "status", "--config", c.RelayConfig(1))
	require.Zero(t, status, log)
	require.Contains(t, out, "test 0")
	p.crash(t)
	require.NoError(t, c.Post(t.Context(), 0, c.Seal(t, 0, 2), relaytest.Network(2)))
}

// TestStateRollbackTwins: two processes share a database. The first must hand out a batch only when the second has
// recorded it. In the long form the second is suspended: the first must hand out nothing while the second may only be
// slow, and then continue without it. When the second resumes, it must report that it is joining, and then hand out the
// same bytes.
func TestStateRollbackTwins(t *testing.T) {
	c := relaytest.New(t, relaytest.Options{Hops: 1, Postgres: true})
	startProcess(t, c, 0)
	config, twin := c.Twin(t, 0)
	second := startConfig(t, twin, 0, config)
	cfg, err := relay.LoadConfig(config)
	require.NoError(t, err)
	postSome(t, c, 0, 10)
	batch, _ := c.Pull(t, 0, 0)
	require.Equal(t, batch, pullFrom(t, c, cfg.Listen, 0))
	if !stattest.Long {
		return
	}
	require.NoError(t, second.cmd.Process.Signal(syscall.SIGSTOP))
	stopped := time.Now()
	postSome(t, c, 10, 20)
	_, err = c.Verifier.Pull(t.Context(), c.Open, 0, 0, 1)
	require.ErrorIs(t, err, problem.New(problem.NotSealed, ""))
	batch, _ = c.Pull(t, 0, 1)
	require.Greater(t, time.Since(stopped), 3*time.Second, "the first process must wait 10 s for the second")
	require.NoError(t, second.cmd.Process.Signal(syscall.SIGCONT))
	requireSoon(t, func() bool {
		resp, err := http.Get("http://" + cfg.Admin + "/readyz")
		if err != nil {
			return false
		}
		defer resp.Body.Close()
		text, _ := io.ReadAll(resp.Body)
		return strings.Contains(string(text), "joining")
	})
	c.WaitReady(t, cfg.Admin)
	require.Equal(t, batch, pullFrom(t, c, cfg.Listen, 1))
}

// pullFrom pulls a batch of epoch 0 from the first relay's process at an address, as soon as that process hands it out.
func pullFrom(t *testing.T, c *relaytest.Cascade, address string, seq uint64) (b *onion.Batch) {
	t.Helper()
	open, of := *c.Open, *c.Open.Task
	of.Relays = slices.Clone(of.Relays)
	of.Relays[0].URL = "http://" + address
	open.Task = &of
	requireSoon(t, func() bool {
		var err error
		b, err = c.Verifier.Pull(t.Context(), &open, 0, 0, seq)
		return err == nil
	})
	return b
}

// runBeside runs another process of a relay, inside the test's process, until the test ends.
func runBeside(t *testing.T, c *relaytest.Cascade, cfg relay.Config) *relay.Relay {
	t.Helper()
	r, err := relay.New(cfg)
	require.NoError(t, err)
	c.Serve(t, r, cfg.Admin)
	return r
}

// TestHeartbeatWhileSealing: a process must send heartbeats while it makes a batch: without them the others would
// continue without it. Its scratch folder must not be the secret's folder, because it must be able to replace the
// secret meanwhile.
func TestHeartbeatWhileSealing(t *testing.T) {
	c := relaytest.New(t, relaytest.Options{Hops: 1, Postgres: true})
	cfg := c.Config(t, 0)
	r, err := relay.New(cfg)
	require.NoError(t, err)
	require.NotEqual(t, filepath.Dir(cfg.Secret), relay.Scratch(r))
	relay.SealSlowly(r)
	c.Serve(t, r, cfg.Admin)
	fillEpoch(t, c, 0)
}

// TestOtherSecret: a process must not start with a secret that is not the store's, and check-config must report the
// wrong secret. It must report it as lost even after a failed start, which creates a new secret.
func TestOtherSecret(t *testing.T) {
	eachEngine(t, func(t *testing.T, o relaytest.Options) {
		c := relaytest.New(t, o)
		c.Start(t, 0)()
		check := func(cfg relay.Config) error {
			i, err := relay.Inspect(cfg)
			require.NoError(t, err)
			defer i.Close()
			return i.CheckSecret(t.Context())
		}
		cfg := c.Config(t, 0)
		require.NoError(t, check(cfg))
		cfg.Secret = filepath.Join(t.TempDir(), "other")
		const lost = "the file that the store was created with"
		require.ErrorContains(t, check(cfg), lost)
		_, err := relay.New(cfg)
		require.ErrorContains(t, err, "it belongs to another secret file")
		require.ErrorContains(t, check(cfg), lost)
		c.Start(t, 0)
	})
}

// startServer starts a separate PostgreSQL server for the test, in a folder; "" means a temporary one.
func startServer(t *testing.T, folder string) *pgtest.Server {
	t.Helper()
	pgtest.Need(t)
	server, err := pgtest.StartIn(folder)
	require.NoError(t, err)
	t.Cleanup(func() { server.Stop() })
	return server
}

func requireReady(t *testing.T, c *relaytest.Cascade, ready bool) {
	t.Helper()
	resp, err := http.Get("http://" + c.Config(t, 0).Admin + "/readyz")
	require.NoError(t, err)
	resp.Body.Close()
	require.Equal(t, map[bool]int{true: http.StatusNoContent, false: http.StatusServiceUnavailable}[ready],
		resp.StatusCode)
}

// TestServerGone repeatedly crashes or stops the PostgreSQL server of a relay that accepts reports, and starts it
// again. Meanwhile the relay must answer reports with 503 and a waiting time. In the end it must have stored every
// report once. A relay that starts without its server must name the address that it tried, and exit.
func TestServerGone(t *testing.T) {
	const n, ends = 1000, 4
	server := startServer(t, "")
	url, err := server.Database()
	require.NoError(t, err)
	c := relaytest.New(t, relaytest.Options{
		Task:   func(t *task.Task) { t.Batch.Size = 100 },
		Config: func(hop int, cfg *relay.Config) { cfg.Store = map[bool]string{true: url, false: cfg.Store}[hop == 0] },
	})
	c.StartAll(t)
	bodies := sealAll(t, c, n)
	var acked atomic.Int64
	done := make(chan error, 1)
	go func() { done <- postAll(t.Context(), c, bodies, 16, &acked) }()
	for k := range int64(ends) {
		for acked.Load() < (k*n+rand.Int64N(n))/ends {
			time.Sleep(time.Millisecond)
		}
		require.NoError(t, []func() error{server.Crash, server.Halt}[k%2]())
		p := requireProblem(t, problem.Overloaded, c.Post(t.Context(), 0, bodies[0], relaytest.Network(0)))
		require.Equal(t, http.StatusServiceUnavailable, p.Status)
		requireLater(t, p.RetryAfter)
		requireReady(t, c, false)
		if k == 0 {
			status, _, log := run(t, "serve", "--config", c.RelayConfig(1), "--store", url)
			require.Equal(t, 1, status)
			require.Contains(t, log, "couldn't open the store at "+filepath.Dir(server.Data)+", database test1: ")
		}
		require.NoError(t, server.Restart())
	}
	require.NoError(t, <-done)
	requireExactlyOnce(t, c, n)
}

// TestRetention: at the end of an epoch's retention the relay must delete everything about the epoch, including batches
// that nobody pulled.
func TestRetention(t *testing.T) {
	eachEngine(t, func(t *testing.T, o relaytest.Options) {
		o.Config = func(_ int, cfg *relay.Config) { cfg.GiveUp, cfg.Retention = time.Hour, 48*time.Hour }
		c := relaytest.New(t, o)
		first := c.StartFirst(t)
		c.Start(t, 1)
		first.Serve(t, 0, 0, first.Batch(t, 0, 0, 10, c.Slots(t, 0, span(0, 10)...)))
		first.Serve(t, 0, 1, first.Batch(t, 0, 1, 9, c.Slots(t, 0, span(10, 9)...)))
		c.Pull(t, 0, 1)
		c.Clock.Advance(2*relaytest.Epoch + 2*time.Hour)
		waitState(t, c, 1, 0, "erased")
		batch, _ := c.Pull(t, 0, 0)
		require.NotEmpty(t, batch.Ciphertexts[0], "sealed batches outlive their epoch")
		require.NotEmpty(t, c.Status(t, 1).Findings)
		secret := c.Config(t, 1).Secret
		_, kept, err := relay.Decryptable(secret, c.Open.ID, 0)
		require.NoError(t, err)
		require.True(t, kept)
		c.Clock.Advance(48 * time.Hour)
		waitState(t, c, 1, 0, "expired")
		waitState(t, c, 1, 1, "expired")
		require.Empty(t, c.Status(t, 1).Findings)
		requireSoon(t, func() bool {
			_, kept, err := relay.Decryptable(secret, c.Open.ID, 0)
			return err == nil &&
				!kept
		})
		_, err = c.Verifier.Pull(t.Context(), c.Open, 1, 0, 0)
		requireProblem(t, problem.Complete, err)
	})
}

// TestInspect: check-config and status must create nothing for a relay that has never run.
func TestInspect(t *testing.T) {
	eachEngine(t, func(t *testing.T, o relaytest.Options) {
		c := relaytest.New(t, o)
		before, err := filepath.Glob(filepath.Join(c.Dir, "relay1", "*"))
		require.NoError(t, err)
		for _, command := range []string{"check-config", "status"} {
			status, out, log := run(t, command, "--config", c.RelayConfig(1))
			require.Zero(t, status, log)
			require.Contains(t, out, "test 0")
		}
		after, err := filepath.Glob(filepath.Join(c.Dir, "relay1", "*"))
		require.NoError(t, err)
		require.Equal(t, before, after)
		if o.Postgres {
			tables, err := relay.Tables(c.Config(t, 0).Store)
			require.NoError(t, err)
			require.Zero(t, tables)
		}
	})
}
