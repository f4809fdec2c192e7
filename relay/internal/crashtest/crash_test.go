package crashtest_test

import (
	"context"
	"encoding/json"
	"math/rand/v2"
	"net/http"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/doona-dp/doona/internal/testing/stattest"
	"github.com/doona-dp/doona/wire/handover"
	"github.com/doona-dp/doona/wire/keyfile"
)

// TestCrash kills the processes of a deployment at random moments, under load, with both stores. No acknowledged report
// may be lost or delivered twice, no batch may be released with fewer than n, every chain of manifests must be valid,
// and no key may outlive its epoch. DOONA_FIGURES names a file for the counts.
func TestCrash(t *testing.T) {
	p := short
	if stattest.Long {
		p = full
	}
	var counted [2]*figures
	t.Run("stores", func(t *testing.T) {
		t.Run("sqlite", func(t *testing.T) {
			t.Parallel()
			counted[0] = crash(t, newWorld(t, p, 2, nil), "sqlite")
		})
		if !stattest.Long {
			return // the server's recoveries, and epochs that wait for them, take minutes
		}
		t.Run("postgres", func(t *testing.T) {
			t.Parallel()
			counted[1] = crash(t, newWorld(t, p, 3, startServer(t, "")), "postgres")
		})
	})
	out, err := json.MarshalIndent(counted, "", " ")
	require.NoError(t, err)
	t.Logf("%s", out)
	if path := os.Getenv("DOONA_FIGURES"); path != "" {
		require.NoError(t, os.WriteFile(path, out, 0o644))
	}
}

// crash runs a deployment, kills its processes until there are enough kills, in total and in each phase, and accounts
// for every report.
func crash(t *testing.T, w *world, store string) *figures {
	begun := time.Now()
	keys := w.private(t)
	for _, p := range w.all() {
		require.NoError(t, p.start())
	}
	ctx, cancel := context.WithTimeout(t.Context(), w.plan.patience)
	defer cancel()
	load := startLoad(t.Context(), w, 32, 200*time.Millisecond)
	stopProbing := w.probeAll(t)
	killers := startKillers(ctx, w)
	require.NoError(t, killers.finish(t), "%s", w.logs())
	require.NoError(t, ctx.Err(), "too few kills in time: %d batches, kills %v, by phase %v%s", w.released(),
		killers.kills, killers.inPhase, w.logs())
	all, last := load.end(t)
	w.finishAll(t, last)
	stopProbing()

	f := &figures{Store: store, Hops: len(w.proxies), ByVictim: killers.kills, ByPhase: killers.inPhase,
		Idle:   killers.idle,
		Epochs: last + 1, Unanswered: load.attempts.Load()}
	for _, n := range killers.kills {
		f.Kills += n
	}
	for _, r := range w.proxies {
		f.Repeats += r.repeats
	}
	w.account(t, all, last, f)
	w.checkErased(t, keys, last)
	require.NotZero(t, f.Delivered)
	f.Seconds = time.Since(begun).Seconds()
	return f
}

// probing marks the test's own pulls with the header probe.
type probing struct{ http.RoundTripper }

func (p probing) RoundTrip(req *http.Request) (*http.Response, error) {
	req.Header.Set(probe, "1")
	return p.RoundTripper.RoundTrip(req)
}

// probeAll repeatedly pulls batches that were handed out and are not confirmed, as the next hop may. The proxies check
// that the bytes are the same.
func (w *world) probeAll(t *testing.T) (stop func()) {
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	clients := make([]*handover.Requester, len(w.proxies))
	for hop := range clients {
		path := w.VerifierSign()
		if hop < len(clients)-1 {
			path = filepath.Join(w.folder(hop+1), "sign.key")
		}
		sign, err := keyfile.LoadSign(path)
		require.NoError(t, err)
		clients[hop] = handover.NewRequester(sign, probing{&http.Transport{ResponseHeaderTimeout: 10 * time.Second}})
	}
	go func() {
		defer close(done)
		for ctx.Err() == nil {
			sleep(ctx, rand.N(20*time.Millisecond))
			hop := rand.IntN(len(clients))
			if at, ok := w.proxies[hop].unconfirmed(); ok {
				_, open := w.taskOf(at.task)
				clients[hop].Pull(ctx, open, hop, at.epoch, at.seq) // may fail: killed or confirmed
			}
		}
	}()
	return func() {
		cancel()
		<-done
	}
}
