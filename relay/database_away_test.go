package relay_test

import (
	"database/sql"
	"io"
	"net"
	"net/http"
	"net/url"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/doona-dp/doona/internal/testing/pgtest"
	"github.com/doona-dp/doona/internal/testing/relaytest"
	"github.com/doona-dp/doona/relay"
	"github.com/doona-dp/doona/wire/problem"
)

// startDatabase returns a server of its own, with an empty database.
func startDatabase(t *testing.T) (server *pgtest.Server, database string) {
	t.Helper()
	pgtest.Need(t)
	server, err := pgtest.Start()
	require.NoError(t, err)
	t.Cleanup(func() { server.Stop() })
	database, err = server.Database()
	require.NoError(t, err)
	return server, database
}

// startOn starts a relay with a store.
func startOn(t *testing.T, store string) *relaytest.Cascade {
	t.Helper()
	c := relaytest.New(t, relaytest.Options{Hops: 1})
	cfg := c.Config(t, 0)
	cfg.Store = store
	r, err := relay.New(cfg)
	require.NoError(t, err)
	c.Serve(t, r, cfg.Admin)
	return c
}

// requireUnready requires that a relay soon is not ready, and that it lives all the while.
func requireUnready(t *testing.T, c *relaytest.Cascade) {
	t.Helper()
	lives := func() {
		status, _ := getAdmin(t, c, 0, "healthz")
		require.Equal(t, http.StatusNoContent, status)
		code, _, log := run(t, "health", "--live", "--config", c.RelayConfig(1))
		require.Zero(t, code, log)
	}
	lives()
	requireSoon(t, func() bool {
		status, _ := getAdmin(t, c, 0, "readyz")
		return status == http.StatusServiceUnavailable
	})
	code, _, log := run(t, "health", "--config", c.RelayConfig(1))
	require.Equal(t, 1, code, log)
	lives()
}

// requireReadyAgain requires that a relay is soon ready, without a restart, and takes the report that it refused.
func requireReadyAgain(t *testing.T, c *relaytest.Cascade, body []byte) {
	t.Helper()
	requireSoon(t, func() bool {
		status, _ := getAdmin(t, c, 0, "readyz")
		return status == http.StatusNoContent
	})
	eventuallyTaken(t, c, body, relaytest.Network(1))
}

// TestDatabaseAway: while its database is away, a relay refuses reports for now and says that it is not ready. It lives
// all the while, so that an orchestrator does not restart it. Then it goes on by itself.
func TestDatabaseAway(t *testing.T) {
	server, database := startDatabase(t)
	c := startOn(t, database)
	body := c.Seal(t, 0, 1)
	require.NoError(t, server.Halt())
	requireProblem(t, problem.Overloaded, c.Post(t.Context(), 0, body, relaytest.Network(1)))
	requireUnready(t, c)
	require.NoError(t, server.Restart())
	requireReadyAgain(t, c, body)
}

// TestDatabaseTurnsReadOnly: a server that stops taking writes, as a primary does that was demoted, still answers. The
// relay refuses reports for now, and goes on by itself once writes are taken again.
func TestDatabaseTurnsReadOnly(t *testing.T) {
	_, database := startDatabase(t)
	c := startOn(t, database)
	body := c.Seal(t, 0, 1)
	db, err := sql.Open("pgx", withParameter(t, database, "default_transaction_read_only", "off"))
	require.NoError(t, err)
	defer db.Close()
	set := func(value string) {
		for _, statement := range []string{
			`ALTER SYSTEM SET default_transaction_read_only = ` + value, `SELECT pg_reload_conf()`,
		} {
			_, err := db.Exec(statement)
			require.NoError(t, err)
		}
		requireSoon(t, func() bool {
			other, err := sql.Open("pgx", database)
			require.NoError(t, err)
			defer other.Close()
			var now string
			require.NoError(t, other.QueryRow(`SHOW default_transaction_read_only`).Scan(&now))
			return now == value
		})
	}
	set("on")
	requireProblem(t, problem.Overloaded, c.Post(t.Context(), 0, body, relaytest.Network(1)))
	requireUnready(t, c)
	set("off")
	requireReadyAgain(t, c, body)
}

// frozen is a proxy before a database that stops passing anything on while it is frozen.
type frozen struct{ sync.RWMutex }

func (f *frozen) Write(p []byte) (int, error) {
	f.RLock()
	defer f.RUnlock()
	return len(p), nil
}

// listen passes connections to a server's socket on. It returns the folder of the proxy's own socket.
func (f *frozen) listen(t *testing.T, server string) (folder string) {
	t.Helper()
	const socket = ".s.PGSQL.5432"
	folder = t.TempDir()
	listener, err := net.Listen("unix", filepath.Join(folder, socket))
	require.NoError(t, err)
	t.Cleanup(func() { listener.Close() })
	pass := func(to, from net.Conn) {
		defer to.Close()
		io.Copy(io.MultiWriter(f, to), from)
	}
	go func() {
		for {
			client, err := listener.Accept()
			if err != nil {
				return
			}
			f.RLock()
			backend, err := net.Dial("unix", filepath.Join(server, socket))
			f.RUnlock()
			if err != nil {
				client.Close()
				continue
			}
			go pass(backend, client)
			go pass(client, backend)
		}
	}()
	return folder
}

// TestDatabaseHangs: a database no longer answers, although its connections stand. The relay must live, say soon that
// it is not ready and what it cannot read, and refuse reports for now. Then it must go on, and count the report once.
func TestDatabaseHangs(t *testing.T) {
	_, database := startDatabase(t)
	parsed, err := url.Parse(database)
	require.NoError(t, err)
	proxy := &frozen{}
	store := withParameter(t, withParameter(t, database, "host", proxy.listen(t, parsed.Query().Get("host"))),
		"connect_timeout", "6")
	c := startOn(t, store)
	body := c.Seal(t, 0, 1)
	proxy.Lock()
	thaw := sync.OnceFunc(proxy.Unlock)
	t.Cleanup(thaw)
	requireUndecided(t, c, body)
	requireUnready(t, c)
	begun, admin := time.Now(), "http://"+c.Config(t, 0).Admin
	metrics := metricsOf(t, c)
	require.Contains(t, metrics, "\ndoona_relay_ready 0\n")
	require.Contains(t, metrics, "\ndoona_relay_store_unreadable 1\n")
	require.Less(t, time.Since(begun), 7*time.Second)
	for _, command := range []string{"status", "owners"} {
		begun = time.Now()
		code, _, log := run(t, command, "--admin", admin)
		require.Equal(t, 1, code)
		require.Contains(t, log, "couldn't read the tasks and owners: the store does not answer")
		require.Less(t, time.Since(begun), 7*time.Second)
	}
	begun = time.Now()
	code, _, log := run(t, "status", "--config", c.RelayConfig(1), "--store", store)
	require.Equal(t, 1, code)
	require.Contains(t, log, "couldn't open the store")
	require.Less(t, time.Since(begun), 12*time.Second, "it must not connect repeatedly")
	thaw()
	requireReadyAgain(t, c, body)
	requireOne(t, c, database)
	require.Contains(t, metricsOf(t, c), "\ndoona_relay_store_unreadable 0\n")
	code, out, log := run(t, "status", "--admin", admin)
	require.Zero(t, code, log)
	require.Contains(t, out, c.Open.Name)
}

func metricsOf(t *testing.T, c *relaytest.Cascade) string {
	t.Helper()
	status, metrics := getAdmin(t, c, 0, "metrics")
	require.Equal(t, http.StatusOK, status)
	return metrics
}

// requireUndecided requires that a relay soon refuses a report for now, although its store has not decided.
func requireUndecided(t *testing.T, c *relaytest.Cascade, body []byte) {
	t.Helper()
	begun := time.Now()
	got := requireProblem(t, problem.Overloaded, c.Post(t.Context(), 0, body, relaytest.Network(1)))
	require.Less(t, time.Since(begun), 10*time.Second)
	require.NotZero(t, got.RetryAfter)
}

// requireOne requires that a store has one report in the open batch of a relay's first task.
func requireOne(t *testing.T, c *relaytest.Cascade, store string) {
	t.Helper()
	cfg := c.Config(t, 0)
	cfg.Store = store
	n, err := relay.Submissions(cfg, c.Open.ID)
	require.NoError(t, err)
	require.EqualValues(t, 1, n)
}

// TestCommitHangs: a commit hangs. The relay must refuse the report for now, and keep its memory reserved. When the
// commit succeeds after all, the relay must acknowledge the same bytes, and count them once.
func TestCommitHangs(t *testing.T) {
	c := relaytest.New(t, relaytest.Options{Hops: 1})
	r, err := relay.New(c.Config(t, 0))
	require.NoError(t, err)
	goOn := relay.HangCommits(r)
	c.Serve(t, r, c.Config(t, 0).Admin)
	t.Cleanup(goOn)
	all := relay.FreeMemory(r)
	body := c.Seal(t, 0, 1)
	requireUndecided(t, c, body)
	require.Less(t, relay.FreeMemory(r), all)
	goOn()
	require.NoError(t, c.Post(t.Context(), 0, body, relaytest.Network(1)))
	requireOne(t, c, c.Config(t, 0).Store)
	requireSoon(t, func() bool { return relay.FreeMemory(r) == all })
}
