//go:build !nopostgres

package store

import (
	"cmp"
	"errors"
	"fmt"
	"net/netip"
	neturl "net/url"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/doona-dp/doona/internal/invalid"
)

// parsePostgres reads the URL of a PostgreSQL store and adds the relay's own settings. Of several servers the relay
// uses the one that takes writes. No error contains the password.
func parsePostgres(url string) (*pgx.ConnConfig, error) {
	config, err := pgx.ParseConfig(url)
	if err != nil {
		return nil, err
	}
	for name, value := range settings {
		if config.RuntimeParams[name] == "" {
			config.RuntimeParams[name] = value
		}
	}
	if config.ConnectTimeout == 0 {
		config.ConnectTimeout = 10 * time.Second
	}
	if config.ValidateConnect == nil {
		config.ValidateConnect = pgconn.ValidateConnectTargetSessionAttrsReadWrite
	}
	if path := passFile(url); path != "" && config.Password == "" {
		if file, err := os.Open(path); err == nil {
			file.Close()
		} else {
			return nil, invalid.Field("passfile", path, fmt.Sprintf("a file that this user can read (%v)", err))
		}
	}
	return config, checkTLS(config)
}

// passFile returns the file of passwords that the URL or the environment names, or "".
func passFile(url string) string {
	if parsed, err := neturl.Parse(url); err == nil && parsed.Query().Get("passfile") != "" {
		return parsed.Query().Get("passfile")
	}
	return os.Getenv("PGPASSFILE")
}

// checkTLS refuses a connection to another machine that could silently fall back to plain text, or begin with it: the
// modes prefer, which is libpq's default, and allow.
func checkTLS(config *pgx.ConnConfig) error {
	type modes struct{ tls, plain bool }
	hosts := map[string]modes{}
	add := func(host string, encrypted bool) {
		m := hosts[host]
		hosts[host] = modes{m.tls || encrypted, m.plain || !encrypted}
	}
	add(config.Host, config.TLSConfig != nil)
	for _, f := range config.Fallbacks {
		add(f.Host, f.TLSConfig != nil)
	}
	for host, m := range hosts {
		if m.tls && m.plain && !isLocal(host) {
			return fmt.Errorf("%w: the connection to %s could fall back to plain text", invalid.Field("sslmode",
				"prefer or allow", "?sslmode=verify-full, verify-ca or require in the URL, or disable, if the way "+
					"there is protected otherwise"), host)
		}
	}
	return nil
}

// isLocal reports whether a host is a socket's folder or this machine.
func isLocal(host string) bool {
	if strings.HasPrefix(host, "/") || strings.HasPrefix(host, "@") || host == "localhost" {
		return true
	}
	address, err := netip.ParseAddr(host)
	return err == nil && address.IsLoopback()
}

// pooled says what an operator can do about a pooler.
const pooled = "connect to the server itself, or set statement_timeout, lock_timeout and " +
	"idle_in_transaction_session_timeout by ALTER ROLE; in transaction mode also " +
	"default_query_exec_mode=exec in the URL (docs/relay.md, Store)"

// explain adds to an error of a connection what the operator can do.
func explain(config *pgx.ConnConfig, err error) error {
	var pg *pgconn.PgError
	switch errors.As(err, &pg); {
	case strings.Contains(err.Error(), "unsupported startup parameter"):
		return fmt.Errorf("%w: PgBouncer is in between, and refuses the relay's settings: %s", err, pooled)
	case strings.Contains(err.Error(), "read only connection"): // pgconn has no value for this error
		return fmt.Errorf("%w: the server is a standby, or read only, or a pooler such as PgBouncer in transaction mode "+
			"gives this connection the settings of another: %s", err, pooled)
	case pg == nil:
		return err
	case pg.Code == "42P05" || pg.Code == "26000":
		return fmt.Errorf("%w: a pooler such as PgBouncer in transaction mode is in between: %s", err, pooled)
	case config.Password == "" && (pg.Code == "28P01" || pg.Code == "28000"):
		home, _ := os.UserHomeDir()
		path := cmp.Or(passFile(config.ConnString()), filepath.Join(home, ".pgpass"))
		return fmt.Errorf("%w: no password for this server, database and user in %s: name the file by ?passfile=PATH "+
			"in the URL, with mode 0600", err, path)
	}
	return err
}
