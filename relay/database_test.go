package relay_test

import (
	"database/sql"
	"fmt"
	"net"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/doona-dp/doona/internal/testing/relaytest"
	"github.com/doona-dp/doona/relay"
	"github.com/doona-dp/doona/wire/problem"
)

// TestFromSQLiteToPostgres: a relay changes its store as the manual says. The epoch that has begun is lost, and nothing
// else: its batches before are confirmed, and the next epoch takes reports.
func TestFromSQLiteToPostgres(t *testing.T) {
	c := relaytest.New(t, relaytest.Options{Hops: 1})
	database := relaytest.NewDatabase(t)
	stop := c.Start(t, 0)
	for i := range 10 {
		require.NoError(t, c.Post(t.Context(), 0, c.Seal(t, 0, uint64(i)), relaytest.Network(i)))
	}
	batch, _ := c.Pull(t, 0, 0)
	require.Len(t, c.Values(t, 0, batch)[0], 10)
	stop()
	code, out, log := run(t, "end-epochs", "--config", c.RelayConfig(1), "--store", database, "--confirm")
	require.Zero(t, code, log)
	require.Contains(t, out, "epoch 0\nepochs ended; start the relay")
	code, _, log = run(t, "check-config", "--config", c.RelayConfig(1), "--store", database)
	require.Zero(t, code, log)
	cfg := c.Config(t, 0)
	cfg.Store = database
	r, err := relay.New(cfg)
	require.NoError(t, err)
	c.Serve(t, r, cfg.Admin)
	requireProblem(t, problem.EpochClosed, c.Post(t.Context(), 0, c.Seal(t, 0, 1), relaytest.Network(11)))
	c.Clock.Advance(relaytest.Epoch)
	for i := range 10 {
		require.NoError(t, c.Post(t.Context(), 1, c.Seal(t, 1, uint64(i)), relaytest.Network(i)))
	}
	batch, _ = c.Pull(t, 1, 0)
	require.Len(t, c.Values(t, 1, batch)[0], 10)
}

// requireBothRefuse requires that check-config and serve fail with a store's URL, for the same reason.
func requireBothRefuse(t *testing.T, c *relaytest.Cascade, store, want string, env ...string) {
	t.Helper()
	for _, command := range []string{"check-config", "serve"} {
		cmd := exec.Command(executable, command, "--config", c.RelayConfig(1), "--store", store)
		cmd.Env = append(os.Environ(), env...)
		out, err := cmd.CombinedOutput()
		require.Error(t, err, command)
		require.Contains(t, string(out), want, command)
	}
}

// withParameter returns a URL with one more parameter.
func withParameter(t *testing.T, store, name, value string) string {
	t.Helper()
	parsed, err := url.Parse(store)
	require.NoError(t, err)
	query := parsed.Query()
	query.Set(name, value)
	parsed.RawQuery = query.Encode()
	return parsed.String()
}

// TestDatabaseChecks: check-config and serve must refuse the same databases, by the same names.
func TestDatabaseChecks(t *testing.T) {
	c := relaytest.New(t, relaytest.Options{Hops: 1, Postgres: true})
	store := c.Config(t, 0).Store
	db, err := sql.Open("pgx", store)
	require.NoError(t, err)
	defer db.Close()
	for _, statement := range []string{
		`CREATE ROLE narrow LOGIN`, `REVOKE CREATE ON SCHEMA public FROM PUBLIC`,
	} {
		_, err := db.Exec(statement)
		require.NoError(t, err)
	}
	defer db.Exec(`DROP ROLE narrow`)
	as := func(user string) string {
		parsed, err := url.Parse(store)
		require.NoError(t, err)
		parsed.User = url.User(user)
		return parsed.String()
	}
	requireBothRefuse(t, c, as("narrow"), "permission denied for schema public")
	none := filepath.Join(t.TempDir(), "pgpass")
	const unreadable = ": want a file that this user can read"
	requireBothRefuse(t, c, withParameter(t, store, "passfile", none), "invalid passfile "+none+unreadable)
	requireBothRefuse(t, c, store, "invalid passfile "+none+unreadable, "PGPASSFILE="+none)
	requireBothRefuse(t, c, "postgres://doona@db.example/doona", "the connection to db.example could fall back to plain text")
	requireBothRefuse(t, c, withParameter(t, store, "default_transaction_read_only", "on"), "read only")
	status, _, log := run(t, "check-config", "--config", c.RelayConfig(1))
	require.Zero(t, status, log)
	for _, statement := range []string{
		`GRANT CREATE ON SCHEMA public TO narrow`, `REVOKE EXECUTE ON FUNCTION pg_control_system() FROM PUBLIC`,
	} {
		_, err := db.Exec(statement)
		require.NoError(t, err)
	}
	requireBothRefuse(t, c, as("narrow"), "some managed services hide these functions")
	var tables int
	require.NoError(t, db.QueryRow(`SELECT COUNT(*) FROM pg_tables WHERE schemaname = 'public'`).Scan(&tables))
	require.Zero(t, tables, "both must leave no table")
	_, err = db.Exec(`REVOKE CREATE ON SCHEMA public FROM narrow`)
	require.NoError(t, err)
	c.Start(t, 0)
}

// TestPgBouncer: a relay must refuse PgBouncer in transaction mode by name, and run behind it with the settings that
// the manual names.
func TestPgBouncer(t *testing.T) {
	program, err := exec.LookPath("pgbouncer")
	if err != nil {
		t.Skip("pgbouncer is not here")
	}
	c := relaytest.New(t, relaytest.Options{Hops: 1, Postgres: true})
	direct := c.Config(t, 0).Store
	parsed, err := url.Parse(direct)
	require.NoError(t, err)
	name := strings.TrimPrefix(parsed.Path, "/")
	start := func(more string) (store string) {
		dir := t.TempDir()
		require.NoError(t, os.Chmod(filepath.Dir(dir), 0o755))
		require.NoError(t, os.Chmod(dir, 0o777))
		address := relaytest.FreeAddress(t)
		_, port, err := net.SplitHostPort(address)
		require.NoError(t, err)
		config := filepath.Join(dir, "pgbouncer.ini")
		require.NoError(t, os.WriteFile(config, []byte(fmt.Sprintf("[databases]\n%s = host=%s dbname=%s user=%s\n[pgbouncer]\n"+
			"listen_addr = 127.0.0.1\nlisten_port = %s\nunix_socket_dir =\nauth_type = any\npool_mode = transaction\n%s\n",
			name, parsed.Query().Get("host"), name, parsed.User.Username(), port, more)), 0o644))
		args := []string{config}
		if os.Getuid() == 0 {
			args = append([]string{"-u", "postgres"}, args...)
		}
		cmd := exec.Command(program, args...)
		require.NoError(t, cmd.Start())
		t.Cleanup(func() { cmd.Process.Kill(); cmd.Wait() })
		require.Eventually(t, func() bool {
			conn, err := net.Dial("tcp", address)
			if err == nil {
				conn.Close()
			}
			return err == nil
		}, relaytest.Patience, 20*time.Millisecond)
		return fmt.Sprintf("postgres://%s@%s/%s", parsed.User.Username(), address, name)
	}
	requireBothRefuse(t, c, start(""), "PgBouncer is in between, and refuses the relay's settings")
	const ignore = "ignore_startup_parameters = default_transaction_isolation,statement_timeout,lock_timeout," +
		"idle_in_transaction_session_timeout,tcp_keepalives_idle,tcp_keepalives_interval,tcp_keepalives_count," +
		"enable_seqscan,jit"
	requireBothRefuse(t, c, start(ignore), "a pooler such as PgBouncer")
	db, err := sql.Open("pgx", direct)
	require.NoError(t, err)
	defer db.Close()
	for setting, value := range map[string]string{"statement_timeout": "5min", "lock_timeout": "30s",
		"idle_in_transaction_session_timeout": "1min", "enable_seqscan": "off", "jit": "off"} {
		_, err := db.Exec(fmt.Sprintf(`ALTER ROLE %q IN DATABASE %s SET %s = '%s'`, parsed.User.Username(), name, setting,
			value))
		require.NoError(t, err)
	}
	good := withParameter(t, start(ignore), "default_query_exec_mode", "exec")
	status, _, log := run(t, "check-config", "--config", c.RelayConfig(1), "--store", good)
	require.Zero(t, status, log)
	cfg := c.Config(t, 0)
	cfg.Store = good
	runBeside(t, c, cfg)
	for i := range 10 {
		require.NoError(t, c.Post(t.Context(), 0, c.Seal(t, 0, uint64(i)), relaytest.Network(i)))
	}
	c.Pull(t, 0, 0)
}
