package relay_test

import (
	"crypto/ed25519"
	"net/http"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/doona-dp/doona/internal/testing/relaytest"
	"github.com/doona-dp/doona/relay"
	"github.com/doona-dp/doona/wire/codec"
	"github.com/doona-dp/doona/wire/handover"
	"github.com/doona-dp/doona/wire/keyfile"
	"github.com/doona-dp/doona/wire/problem"
	"github.com/doona-dp/doona/wire/signing"
	"github.com/doona-dp/doona/wire/task"
	"github.com/doona-dp/doona/wire/taskfile"
)

// TestCapturedRequestIsAcceptedOnce: an eavesdropper captured a signed request. Several senders repeat it at once to
// two processes that share a database. The processes together must accept it once.
func TestCapturedRequestIsAcceptedOnce(t *testing.T) {
	c := relaytest.New(t, relaytest.Options{Hops: 1, Postgres: true, Task: relaytest.InStream()})
	first := stillRelay(t, c, 0)
	config, _ := c.Twin(t, 0)
	cfg, err := relay.LoadConfig(config)
	require.NoError(t, err)
	twin, err := relay.New(cfg)
	require.NoError(t, err)
	defer twin.Close()
	both := []http.Handler{first.Handler(), twin.Handler()}
	owner, _ := c.AsOwner(t)
	verifier, err := keyfile.LoadSign(c.VerifierSign())
	require.NoError(t, err)
	relayKey := c.Open.Relays[0].SignKey
	for name, r := range map[string]struct {
		method, url string
		key         ed25519.PrivateKey
		purpose     signing.Purpose
		body        []byte
	}{
		"pull": {http.MethodGet, c.Open.BatchURL(0, 0, 0), verifier, signing.Pull,
			handover.Body(c.Open.ID, 0, 0, 0, handover.HistoryDigest{})},
		"end": {http.MethodGet, c.Open.EndURL(0, 0), verifier, signing.AskEnd, handover.EndBody(c.Open.ID, 0)},
		"updates": {http.MethodGet, taskfile.UpdatesURL(c.Open.Relays[0], c.Open.Verifier.SignKey), verifier,
			signing.Updates, handover.UpdatesBody(relayKey, c.Open.Verifier.SignKey)},
		"keys of a successor": {http.MethodGet, c.Open.NextKeysURL(c.Open.Task, 0, 1, 1), owner, signing.Succeed,
			handover.NextKeysBody(c.Open.ID, 1, 1)},
	} {
		header := handover.Signed(r.key, r.purpose, r.body)
		var accepted atomic.Int32
		var asking sync.WaitGroup
		for i := range 8 {
			asking.Go(func() {
				req := at(r.method, r.url)
				req.Header.Set(handover.Header, header)
				if p := relaytest.Answer(both[i%2], req); p == nil || p.Name != problem.Unauthorized {
					accepted.Add(1)
				}
			})
		}
		asking.Wait()
		require.EqualValues(t, 1, accepted.Load(), name)
	}
}

// joining returns the configuration of a relay that no task of the stream names yet, but that may replace one of its
// relays.
func joining(t *testing.T, c *relaytest.Cascade, hop int, signKey string) relay.Config {
	t.Helper()
	cfg, dir := c.Config(t, hop), t.TempDir()
	cfg.Listen, cfg.Admin, cfg.SignKey, cfg.HPKEKeys = relaytest.FreeAddress(t), relaytest.FreeAddress(t), signKey, ""
	cfg.Store, cfg.Secret = "sqlite:"+filepath.Join(dir, "store.db"), filepath.Join(dir, "secret")
	cfg.Tasks[0].HPKEKeys, cfg.Tasks[0].Successors = "", filepath.Join(dir, "next")
	return cfg
}

// TestStrangersMakeNoRelayAsk: a relay that waits to join a stream asks the other relays for the stream when the owner
// requests its keys. It must not do so when a stranger requests them.
func TestStrangersMakeNoRelayAsk(t *testing.T) {
	file, _ := fileOf(t)
	c := relaytest.New(t, relaytest.Options{Hops: 1, Task: relaytest.InStream("relays.signKey")})
	var asked atomic.Int32
	c.Listen(t, 0, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		asked.Add(1)
		problem.New(problem.UnknownTask, "").Write(w)
	}))
	cfg := joining(t, c, 0, file)
	r, err := relay.New(cfg)
	require.NoError(t, err)
	defer r.Close()
	handler, folder := r.Handler(), filepath.Dir(cfg.Secret)
	before := filesIn(t, folder)
	ask := func(key ed25519.PrivateKey) *problem.Problem {
		req := at(http.MethodGet, c.Open.NextKeysURL(c.Open.Task, 0, 1, 1))
		req.Header.Set(handover.Header, handover.Signed(key, signing.Succeed, handover.NextKeysBody(c.Open.ID, 1, 1)))
		return relaytest.Answer(handler, req)
	}
	_, stranger := newKey(t)
	for range 10 {
		require.ErrorIs(t, ask(stranger), problem.New(problem.Unauthorized, ""))
	}
	require.Zero(t, asked.Load())
	require.Equal(t, before, filesIn(t, folder))
	owner, _ := c.AsOwner(t)
	require.Nil(t, ask(owner))
	require.NotZero(t, asked.Load())
}

// TestJoiningRelayKnowsTheOwner: a relay that waits to join a stream must find out by itself that another key now signs
// the stream's tasks. Here no request makes it ask the other relays.
func TestJoiningRelayKnowsTheOwner(t *testing.T) {
	file, public := fileOf(t)
	c := relaytest.New(t, relaytest.Options{Task: relaytest.InStream("relays.signKey")})
	stop := c.Start(t, 0)
	defer stop()
	key, _ := c.AsOwner(t)
	next, private := newKey(t)
	trust := c.Open.Trust(task.SignKey{})
	one, err := taskfile.NewStatement(trust, taskfile.Authority{Key: trust.Owner}, c.Open, next, key)
	require.NoError(t, err)
	raw, err := codec.Marshal(one)
	require.NoError(t, err)
	require.NoError(t, c.Verifier.State(t.Context(), c.Open, c.Open.Task, 0, raw))
	cfg := joining(t, c, 1, file)
	r, err := relay.New(cfg)
	require.NoError(t, err)
	c.Serve(t, r, cfg.Admin)
	joined := *c.Open.Task
	joined.Relays = slices.Clone(joined.Relays)
	joined.Relays[1].URL, joined.Relays[1].SignKey = "http://"+cfg.Listen, public
	requireSoon(t, func() bool {
		_, err := handover.NewRequester(private, nil).NextKeys(t.Context(), c.Open, &joined, 1, 1)
		return err == nil
	})
}
