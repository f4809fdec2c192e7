package relay_test

import (
	"bytes"
	"crypto/rand"
	"crypto/rsa"
	"encoding/base64"
	"errors"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/cloudflare/circl/blindsign/blindrsa"
	"github.com/stretchr/testify/require"

	"github.com/doona-dp/doona/internal/testing/relaytest"
	"github.com/doona-dp/doona/relay"
	"github.com/doona-dp/doona/wire/keyfile"
	"github.com/doona-dp/doona/wire/problem"
	"github.com/doona-dp/doona/wire/task"
	"github.com/doona-dp/doona/wire/token"
)

func with(tok []byte) http.Header { return http.Header{"Authorization": {token.Header(tok)}} }

// signAgain returns a token of epoch 0 with a different signature, which is also valid.
func signAgain(t *testing.T, c *relaytest.Cascade, tok []byte) []byte {
	t.Helper()
	keys, err := keyfile.LoadRSA(filepath.Join(c.Dir, "issuer", "task0.keys"))
	require.NoError(t, err)
	private, err := keys.Key(0)
	require.NoError(t, err)
	input := token.Input(tok)
	client, err := blindrsa.NewClient(blindrsa.SHA384PSSDeterministic,
		&rsa.PublicKey{N: private.Modulus(), E: 65537})
	require.NoError(t, err)
	blinded, state, err := client.Blind(rand.Reader, input)
	require.NoError(t, err)
	id := private.Public().ID()
	reply, err := private.Sign(append([]byte{0, 2, id[31]}, blinded...))
	require.NoError(t, err)
	signature, err := client.Finalize(state, reply)
	require.NoError(t, err)
	require.NotEqual(t, tok[len(input):], signature)
	return append(bytes.Clone(input), signature...)
}

// waitForKey waits until the first relay has the issuer's key: from then on it refuses reports without a token.
func waitForKey(t *testing.T, c *relaytest.Cascade) {
	t.Helper()
	require.Eventually(t, func() bool {
		return errors.Is(c.PostWith(t.Context(), 0, nil, nil), problem.New(problem.TokenMissing, ""))
	}, relaytest.Patience, 10*time.Millisecond)
}

// TestIssuerAway: a relay starts while the issuer is away. It refuses all reports, and must say so until it has the
// issuer's key.
func TestIssuerAway(t *testing.T) {
	c := relaytest.New(t, relaytest.Options{Hops: 1, Task: relaytest.WithTokens})
	c.Start(t, 0)
	requireProblem(t, problem.Overloaded, c.PostWith(t.Context(), 0, nil, nil))
	short := c.Open.ID.String()[:8]
	code, answer := getAdmin(t, c, 0, "readyz")
	require.Equal(t, http.StatusServiceUnavailable, code)
	require.Contains(t, answer, "task "+short+" refuses all reports: overloaded: the issuer at http://127.0.0.1:")
	_, metrics := getAdmin(t, c, 0, "metrics")
	require.Contains(t, metrics, `doona_relay_refusing{problem="overloaded"} 1`)
	require.Contains(t, metrics, "doona_relay_ready 0\n")
	_, printed, _ := run(t, "status", "--admin", "http://"+c.Config(t, 0).Admin)
	require.Contains(t, printed, "overloaded: the issuer at")
	resp, err := http.Get(c.Open.Relays[0].URL + "/healthz")
	require.NoError(t, err)
	resp.Body.Close()
	require.Equal(t, http.StatusNoContent, resp.StatusCode, "batches and the time must still reach the other parties")

	c.StartIssuer(t, c.IssuerConfig())
	waitForKey(t, c)
	code, _ = getAdmin(t, c, 0, "readyz")
	require.Equal(t, http.StatusNoContent, code)
	_, metrics = getAdmin(t, c, 0, "metrics")
	require.Contains(t, metrics, `doona_relay_refusing{problem="overloaded"} 0`)
}

// TestTokens: a token must allow one report of one task and epoch, from any client and network.
func TestTokens(t *testing.T) {
	c := relaytest.New(t, relaytest.Options{Task: relaytest.WithTokens, Tasks: 2})
	c.StartIssuer(t, c.IssuerConfig())
	_, stop := c.StartRelay(t, 0)
	waitForKey(t, c)
	post := func(body []byte, header http.Header) error { return c.PostWith(t.Context(), 0, body, header) }
	tok, first := c.Token(t, 0), c.Seal(t, 0, 1)

	other := c.Other(t, 1)
	second := c.Token(t, 0)
	changed := func(at int) []byte {
		out := bytes.Clone(second)
		out[at] ^= 1
		return out
	}
	for name, header := range map[string]http.Header{
		"another task": with(other.Token(t, 0)),
		"another task's, signed with this one's key": with(c.TokenFor(t, 0,
			token.Challenge(other.Open.Task, other.Open.ID, 0))),
		"another epoch": with(c.Token(t, 1)),
		"the epoch's challenge, the next epoch's key": with(c.TokenFor(t, 1,
			token.Challenge(c.Open.Task, c.Open.ID, 0))),
		"another type":      with(changed(1)),
		"another nonce":     with(changed(2)),
		"another challenge": with(changed(34)),
		"another key":       with(changed(66)),
		"another signature": with(changed(len(second) - 1)),
		"truncated":         with(second[:len(second)-1]),
		"a byte more":       with(append(bytes.Clone(second), 0)),
		"empty":             with(nil),
		"oversized":         with(make([]byte, 4000)),
		"zeros":             with(make([]byte, token.Size)),
		"another scheme":    {"Authorization": {"Bearer " + base64.URLEncoding.EncodeToString(second)}},
		"not base64url":     {"Authorization": {`PrivateToken token="+/"`}},
	} {
		require.ErrorIs(t, post(first, header), problem.New(problem.TokenInvalid, ""), name)
	}
	require.ErrorIs(t, post(first, nil), problem.New(problem.TokenMissing, ""))

	require.NoError(t, post(first, with(tok)))
	require.NoError(t, post(first, with(tok)), "a retry")
	require.NoError(t, c.PostWith(t.Context(), 0, first,
		http.Header{"Authorization": with(tok)["Authorization"], "X-Forwarded-For": {relaytest.Network(9)}}),
		"a retry from elsewhere")
	require.ErrorIs(t, post(c.Seal(t, 0, 2), with(tok)), problem.New(problem.Limit, ""), "the token is spent")
	require.ErrorIs(t, post(c.Seal(t, 0, 2), with(signAgain(t, c, tok))), problem.New(problem.Limit, ""),
		"the token is spent, whatever its signature")
	require.ErrorIs(t, post(first, with(second)), problem.New(problem.Replayed, ""), "the token differs")
	require.NoError(t, post(c.Seal(t, 0, 3), with(second)), "a second person at one address")

	stop()
	c.Start(t, 0)
	waitForKey(t, c)
	require.ErrorIs(t, post(c.Seal(t, 0, 4), with(tok)), problem.New(problem.Limit, ""), "spent before the restart")
	require.NoError(t, post(first, with(tok)), "a retry after the restart")
}

// TestTokenRace: 100 reports come at once with the same token. Exactly one must be accepted.
func TestTokenRace(t *testing.T) {
	c := relaytest.New(t, relaytest.Options{Task: relaytest.WithTokens})
	c.StartIssuer(t, c.IssuerConfig())
	c.Start(t, 0)
	waitForKey(t, c)
	bodies := make([][]byte, 100)
	for i := range bodies {
		bodies[i] = c.Seal(t, 0, uint64(i))
	}
	requireOneTaken(t, race(t, []*relaytest.Cascade{c}, bodies, c.Token(t, 0)))
}

// TestTokenChallenge: the answer to a report without a token must say which token the task needs, and let pages of any
// origin send one.
func TestTokenChallenge(t *testing.T) {
	c := relaytest.New(t, relaytest.Options{Task: relaytest.WithTokens})
	c.StartIssuer(t, c.IssuerConfig())
	c.Start(t, 0)
	waitForKey(t, c)
	resp, err := http.Post(c.ReportsURL(0), "application/msgpack", bytes.NewReader(c.Seal(t, 0, 1)))
	require.NoError(t, err)
	resp.Body.Close()
	require.Equal(t, http.StatusUnauthorized, resp.StatusCode)
	key, err := token.FetchKey(t.Context(), http.DefaultClient, c.Open, 0)
	require.NoError(t, err)
	challenge := token.Challenge(c.Open.Task, c.Open.ID, 0)
	require.Equal(t, token.ChallengeHeader(challenge, key), resp.Header.Get("WWW-Authenticate"))

	req, err := http.NewRequestWithContext(t.Context(), http.MethodOptions, c.ReportsURL(0), nil)
	require.NoError(t, err)
	resp, err = http.DefaultClient.Do(req)
	require.NoError(t, err)
	resp.Body.Close()
	require.Contains(t, resp.Header.Get("Access-Control-Allow-Headers"), "Authorization")
}

// TestIssuerOutOfReach: a relay without the issuer's key must refuse reports, and accept them when the issuer is back.
// A relay that has the keys from a file must need no issuer.
func TestIssuerOutOfReach(t *testing.T) {
	c := relaytest.New(t, relaytest.Options{Task: relaytest.WithTokens})
	stop := c.Start(t, 0)
	tok, body := c.Token(t, 0), c.Seal(t, 0, 1)
	err := c.PostWith(t.Context(), 0, body, with(tok))
	require.ErrorIs(t, err, problem.New(problem.Overloaded, ""))
	c.StartIssuer(t, c.IssuerConfig())
	waitForKey(t, c)
	require.NoError(t, c.PostWith(t.Context(), 0, body, with(tok)))
	stop()

	file := relaytest.New(t, relaytest.Options{Task: relaytest.WithTokens})
	directory := filepath.Join(file.Dir, "issuer", "task0.keys.directory")
	config := file.Config(t, 0)
	config.Tasks[0].IssuerKeys = directory
	r, err := relay.New(config)
	require.NoError(t, err)
	require.NoError(t, r.Close())
	raw, err := os.ReadFile(directory)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(directory,
		[]byte(strings.Replace(string(raw), `"token-type":2`, `"token-type":3`, 1)), 0o600))
	_, err = relay.New(config)
	require.ErrorContains(t, err, "the issuer's keys for all 2 epochs (epoch 0 is missing)")
	address := relaytest.New(t, relaytest.Options{})
	config = address.Config(t, 0)
	config.Tasks[0].IssuerKeys = directory
	_, err = relay.New(config)
	require.ErrorContains(t, err, "issuer_keys", "a task without tokens")
}

// TestForeignIssuer: FetchKey must refuse a key that the task does not name.
func TestForeignIssuer(t *testing.T) {
	one := relaytest.New(t, relaytest.Options{Task: relaytest.WithTokens})
	two := relaytest.New(t, relaytest.Options{Task: func(
		draft *task.Task) {
		relaytest.WithTokens(draft)
		draft.Name = "two"
	}})
	two.StartIssuer(t, two.IssuerConfig())
	key, err := token.FetchKey(t.Context(), http.DefaultClient, two.Open, 0)
	require.NoError(t, err)
	impostor := *two.Open
	impostor.TokenKeys = one.Open.TokenKeys
	_, err = token.FetchKey(t.Context(), http.DefaultClient, &impostor, 0)
	require.ErrorContains(t, err, "is not in the task's key list")
	require.NotEqual(t, one.Open.TokenKeys[0], key.ID())
}
