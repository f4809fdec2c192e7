package relay_test

import (
	"bytes"
	"crypto/ed25519"
	"net/http"
	"net/http/httputil"
	"net/url"
	"path"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/doona-dp/doona/internal/testing/relaytest"
	"github.com/doona-dp/doona/relay"
	"github.com/doona-dp/doona/wire/codec"
	"github.com/doona-dp/doona/wire/endpoint"
	"github.com/doona-dp/doona/wire/handover"
	"github.com/doona-dp/doona/wire/keyfile"
	"github.com/doona-dp/doona/wire/problem"
	"github.com/doona-dp/doona/wire/signing"
	"github.com/doona-dp/doona/wire/task"
	"github.com/doona-dp/doona/wire/taskfile"
)

// requestCounter is a proxy before a relay. It counts the next hop's requests.
type requestCounter struct {
	relay *httputil.ReverseProxy

	mu      sync.Mutex // guards the rest
	pulls   map[string]int
	updates int
	same    int  // answers that the updates have not changed
	deaf    bool // refuses requests for updates
}

func (c *requestCounter) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	c.mu.Lock()
	deaf := false
	switch {
	case strings.HasPrefix(req.URL.Path, "/v1/updates/"):
		deaf = c.deaf
		c.updates++
	case path.Base(path.Dir(req.URL.Path)) == "batches":
		c.pulls[strings.Split(req.URL.Path, "/")[3]]++
	}
	c.mu.Unlock()
	if deaf {
		problem.New(problem.NotFound, "").Write(w)
		return
	}
	c.relay.ServeHTTP(w, req)
}

// sums returns the pulls of some tasks, and all requests for updates.
func (c *requestCounter) sums(tasks ...*relaytest.Cascade) (pulls, updates int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, t := range tasks {
		pulls += c.pulls[t.Open.ID.String()]
	}
	return pulls, c.updates
}

// TestUpdates: a relay must ask the upstream relay once for the updates of all their tasks. It must pull only the tasks
// that have a new batch, or all tasks if another process answers or no updates come.
func TestUpdates(t *testing.T) {
	c := relaytest.New(t, relaytest.Options{Tasks: 3, Task: func(t *task.Task) { t.Batch.Size = 2 }})
	cfg := c.Config(t, 0)
	at := &url.URL{Scheme: "http", Host: relaytest.FreeAddress(t)}
	cfg.Listen = at.Host
	between := &requestCounter{relay: httputil.NewSingleHostReverseProxy(at), pulls: map[string]int{}}
	between.relay.ModifyResponse = func(resp *http.Response) error {
		if resp.StatusCode == http.StatusNotModified {
			between.mu.Lock()
			between.same++
			between.mu.Unlock()
		}
		return nil
	}
	c.Listen(t, 0, between)
	first, err := relay.New(cfg)
	require.NoError(t, err)
	stop := c.Serve(t, first, cfg.Admin)
	c.Start(t, 1)
	tasks := []*relaytest.Cascade{c, c.Other(t, 1), c.Other(t, 2)}
	quiet := func() bool {
		pulls, updates := between.sums(tasks...)
		time.Sleep(300 * time.Millisecond)
		later, more := between.sums(tasks...)
		return later == pulls && more >= updates+3
	}
	require.Eventually(t, quiet, relaytest.Patience, time.Millisecond)
	between.mu.Lock()
	require.Positive(t, between.same, "unchanged updates must not be sent again")
	between.mu.Unlock()

	others, _ := between.sums(tasks[0], tasks[2])
	for i := range 2 {
		require.NoError(t, tasks[1].Post(t.Context(), 0, tasks[1].Seal(t, 0, uint64(i)), relaytest.Network(i)))
	}
	tasks[1].Pull(t, 0, 0)
	require.Eventually(t, quiet, relaytest.Patience, time.Millisecond)
	now, _ := between.sums(tasks[0], tasks[2])
	require.Equal(t, others, now, "the relay must not pull tasks without a new batch")

	stop()
	again, err := relay.New(cfg)
	require.NoError(t, err)
	of := func() (all []int) {
		for _, one := range tasks {
			pulls, _ := between.sums(one)
			all = append(all, pulls)
		}
		return all
	}
	c.Serve(t, again, cfg.Admin)
	require.Eventually(t, quiet, relaytest.Patience, time.Millisecond)
	before := of()
	between.mu.Lock()
	between.deaf = true
	between.mu.Unlock()
	require.Eventually(t, func() bool {
		for i, pulls := range of() {
			if pulls < before[i]+3 {
				return false
			}
		}
		return true
	}, relaytest.Patience, 10*time.Millisecond, "without updates the relay must pull all tasks")
}

// TestUpdatesOfAnotherProcess: another process replaces the upstream relay's process. The next hop must pull every
// epoch again, because the state may have been rolled back.
func TestUpdatesOfAnotherProcess(t *testing.T) {
	c := relaytest.New(t, relaytest.Options{Tasks: 2})
	one, other := bytes.Repeat([]byte{1}, 16), bytes.Repeat([]byte{2}, 16)
	by, pulls := one, map[string]int{}
	var mu sync.Mutex // guards by and pulls
	mux := http.NewServeMux()
	mux.HandleFunc("GET "+endpoint.UpdatesPath, func(w http.ResponseWriter, _ *http.Request) {
		mu.Lock()
		defer mu.Unlock()
		updates := &handover.UpstreamStatus{Instance: by, Epochs: []handover.OpenEpoch{}}
		for i := range 2 {
			updates.Epochs = append(updates.Epochs, handover.OpenEpoch{TaskID: c.Other(t, i).Open.ID[:]})
		}
		raw, err := codec.Marshal(updates)
		assert.NoError(t, err)
		w.Write(raw)
	})
	mux.HandleFunc("GET "+endpoint.BatchPath, func(w http.ResponseWriter, req *http.Request) {
		mu.Lock()
		defer mu.Unlock()
		pulls[req.PathValue("task")]++
		problem.New(problem.NotSealed, "").Write(w)
	})
	c.Listen(t, 0, mux)
	c.Start(t, 1)
	sum := func() (n int) {
		mu.Lock()
		defer mu.Unlock()
		for _, of := range pulls {
			n += of
		}
		return n
	}
	quiet := func() bool {
		before := sum()
		time.Sleep(300 * time.Millisecond)
		return before >= 2 && sum() == before
	}
	require.Eventually(t, quiet, relaytest.Patience, time.Millisecond)
	before := sum()
	mu.Lock()
	by = other
	mu.Unlock()
	require.Eventually(t, func() bool { return sum() >= before+2 && quiet() }, relaytest.Patience, time.Millisecond)
}

// TestUpdatesNeedTheNextHop: only the next hop may get updates, and only with a new request.
func TestUpdatesNeedTheNextHop(t *testing.T) {
	c := relaytest.New(t, relaytest.Options{})
	c.Start(t, 0)
	relays := c.Open.Relays
	key := func(hop int) task.SignKey { return relays[hop].SignKey }
	ask := func(hop task.SignKey, signature string) int {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, taskfile.UpdatesURL(relays[0], hop), nil)
		require.NoError(t, err)
		req.Header.Set(handover.Header, signature)
		resp, err := http.DefaultClient.Do(req)
		require.NoError(t, err)
		require.NoError(t, resp.Body.Close())
		return resp.StatusCode
	}
	sign := c.SignKey(t, 1)
	good := handover.Signed(sign, signing.Updates, handover.UpdatesBody(key(0), key(1)))
	require.Equal(t, http.StatusOK, ask(key(1), good))
	require.Equal(t, http.StatusForbidden, ask(key(1), good), "a replayed request")
	for name, signature := range map[string]string{
		"none":            "",
		"another purpose": handover.Signed(sign, signing.Pull, handover.UpdatesBody(key(0), key(1))),
		"another relay":   handover.Signed(sign, signing.Updates, handover.UpdatesBody(key(1), key(1))),
		"another signer":  handover.Signed(c.SignKey(t, 0), signing.Updates, handover.UpdatesBody(key(0), key(1))),
	} {
		require.Equal(t, http.StatusForbidden, ask(key(1), signature), name)
	}
	stranger, err := keyfile.NewSign(path.Join(t.TempDir(), "sign"))
	require.NoError(t, err)
	own := task.SignKey(stranger.Public().(ed25519.PublicKey))
	require.Equal(t, http.StatusForbidden, ask(own, handover.Signed(stranger, signing.Updates,
		handover.UpdatesBody(key(0), own))), "a stranger")
	updates, err := handover.NewRequester(sign, nil).UpstreamStatus(t.Context(), relays[0], nil)
	require.NoError(t, err)
	require.Equal(t, []handover.OpenEpoch{{TaskID: c.Open.ID[:]}}, updates.Epochs)
	same, err := handover.NewRequester(sign, nil).UpstreamStatus(t.Context(), relays[0], updates)
	require.NoError(t, err)
	require.Same(t, updates, same)
}
