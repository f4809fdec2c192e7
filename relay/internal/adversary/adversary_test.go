// Package adversary plays relays, clients and next hops that break the rules, and an attacker who knows all clients but
// one, against real relays. The tests compute what is allowed and compare the relays' answers with it.
package adversary_test

import (
	"database/sql"
	"io"
	"net/http"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/doona-dp/doona/internal/testing/pgtest"
	"github.com/doona-dp/doona/internal/testing/relaytest"
	"github.com/doona-dp/doona/relay"
	"github.com/doona-dp/doona/wire/onion"
)

func TestMain(m *testing.M) {
	os.Exit(func() int {
		defer pgtest.StopShared()
		return m.Run()
	}())
}

// span returns the n numbers first, first+1, …
func span(first, n uint64) (out []uint64) {
	for i := range n {
		out = append(out, first+i)
	}
	return out
}

func hasFinding(t *testing.T, c *relaytest.Cascade, want relay.Finding) {
	t.Helper()
	require.Eventually(t, func() bool { return slices.Contains(c.Status(t, 1).Findings, want) }, relaytest.Patience,
		10*time.Millisecond, "%v", want)
}

// foundOf returns how many batches of epoch 0 a relay's findings with this reason cover.
func foundOf(t *testing.T, c *relaytest.Cascade, hop int, why relay.Reason) (n uint64) {
	t.Helper()
	for _, f := range c.Status(t, hop).Findings {
		if f.Epoch == 0 && f.Reason == why {
			n += f.Batches()
		}
	}
	return n
}

// requireDestroyed asserts that the relay at a hop has signed a batch without slots.
func requireDestroyed(t *testing.T, c *relaytest.Cascade, hop int, signed *onion.SignedManifest) {
	t.Helper()
	m, err := signed.Open(c.Open.Task, hop)
	require.NoError(t, err)
	require.True(t, m.Destroyed())
}

func queryInto(t *testing.T, c *relaytest.Cascade, hop int, into any, text string, args ...any) {
	t.Helper()
	db, err := sql.Open("sqlite", "file:"+strings.TrimPrefix(c.Config(t, hop).Store, "sqlite:")+
		"?_pragma=busy_timeout(5000)")
	require.NoError(t, err)
	defer db.Close()
	require.NoError(t, db.QueryRow(text, args...).Scan(into))
}

func waitState(t *testing.T, c *relaytest.Cascade, hop int, epoch uint64, want string) {
	t.Helper()
	require.Eventually(t, func() bool {
		for _, e := range c.Status(t, hop).Epochs {
			if e.Epoch == epoch {
				return e.State == want
			}
		}
		return false
	}, relaytest.Patience, 10*time.Millisecond, "hop %d, epoch %d: %s", hop, epoch, want)
}

func requireSoon(t *testing.T, holds func() bool) {
	t.Helper()
	require.Eventually(t, holds, relaytest.Patience, 10*time.Millisecond)
}

func get(t *testing.T, c *relaytest.Cascade, hop int, path string) (status int, text string) {
	t.Helper()
	var resp *http.Response
	require.Eventually(t, func() (ok bool) {
		var err error
		resp, err = http.Get("http://" + c.Config(t, hop).Admin + path)
		return err == nil
	}, relaytest.Patience, 10*time.Millisecond)
	defer resp.Body.Close()
	raw, err := io.ReadAll(resp.Body)
	require.NoError(t, err)
	return resp.StatusCode, string(raw)
}
