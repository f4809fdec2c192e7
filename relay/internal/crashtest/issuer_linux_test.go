package crashtest_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/doona-dp/doona/internal/quickstart"
	"github.com/doona-dp/doona/internal/testing/relaytest"
	"github.com/doona-dp/doona/planner"
	"github.com/doona-dp/doona/wire/keyfile"
	"github.com/doona-dp/doona/wire/problem"
	"github.com/doona-dp/doona/wire/task"
	"github.com/doona-dp/doona/wire/taskfile"
	"github.com/doona-dp/doona/wire/token"
)

// issuerEpochs is how many epochs have issuer keys: more than a run lasts.
const issuerEpochs = 150

// asked is a token request and its answer.
type asked struct {
	epoch          uint64
	from           string // the client's network
	request, reply []byte
}

// askers are clients of an issuer whose disk is repeatedly full. Each network may get one token per epoch.
type askers struct {
	world *world
	open  *taskfile.Open
	keys  map[uint64]*token.PublicKey // by epoch
	file  string                      // path of the private keys
	next  atomic.Int64                // number of the next network

	mu       sync.Mutex // guards the rest
	tokens   []*asked
	refused  int // attempts that got no answer or a request to try again
	limited  int // requests for a second token; all were refused
	again    int // repeated requests; all got the same bytes
	slowest  time.Duration
	failures []error
}

// issuerFigures are the counts that a run with an issuer prints.
type issuerFigures struct {
	diskFigures
	Epochs   uint64  `json:"epochs"`
	Tokens   int     `json:"tokens"`
	Refused  int     `json:"attempts_refused"`
	Repeated int     `json:"repeated"`
	Second   int     `json:"second_requests_refused"`
	KeyLate  float64 `json:"last_key_gone_after_seconds"`
	Seconds  float64 `json:"seconds"`
}

// fullIssuer fills the disk with an issuer's store and keys. The issuer must give no network a second token in an
// epoch, and answer a repeated request with the same bytes.
func fullIssuer(t *testing.T, p plan, times int) any {
	begun := time.Now()
	w, a := newIssuerWorld(t, p)
	serving := w.verifiers[0]
	d := newDisk(t, filepath.Join(w.Dir, "issuer"), serving)
	for _, p := range w.all() {
		require.NoError(t, p.start())
	}
	time.Sleep(time.Until(time.Unix(int64(w.epochs.Start), 0)))
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	var asking, watching sync.WaitGroup
	for range 8 {
		asking.Go(func() { a.keep(ctx, a.ask) })
	}
	asking.Go(func() { a.keep(ctx, a.askAgain) })
	watching.Go(func() { a.watchKeys(t.Context(), ctx) })
	err := fillEach(ctx, []*disk{d}, times, p.pause)
	stop()
	asking.Wait()
	watching.Wait()
	if err = errors.Join(append(a.failures, err)...); err != nil {
		t.Fatal(err, w.logs())
	}
	for _, p := range w.all() {
		require.NoError(t, p.check(), "no process may end: %s", w.logs())
	}
	last, _ := w.epochAt(time.Now())
	require.Less(t, last, uint64(issuerEpochs))
	resp, err := http.Get("http://" + serving.admin + "/metrics")
	require.NoError(t, err)
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	require.NoError(t, err)
	require.NotContains(t, string(text), "\ndoona_issuer_store_errors_total 0\n")
	require.NotZero(t, a.limited)
	require.NotZero(t, a.again)
	return &issuerFigures{diskFigures: d.figures(times), Epochs: last + 1, Tokens: len(a.tokens),
		Refused: a.refused, Repeated: a.again, Second: a.limited, KeyLate: a.slowest.Seconds(),
		Seconds: time.Since(begun).Seconds()}
}

// newIssuerWorld creates an issuer, and two relays that it asks for the time.
func newIssuerWorld(t *testing.T, p plan) (*world, *askers) {
	t.Helper()
	address, admin := relaytest.FreeAddress(t), relaytest.FreeAddress(t)
	draft, err := planner.Draft(planner.Query{Name: "tokens", Query: task.Mean, Hi: 10, Epsilon: 2, Delta: 1e-4,
		Batch: 20, Honest: 0.9})
	require.NoError(t, err)
	draft.Clients = task.Clients{Kind: task.ClientToken, Quota: 1, Issuer: task.Party{URL: "http://" + address}}
	draft.Epochs = task.Epochs{Start: uint64(time.Now().Unix()) + issuerEpochs/2, // time to make the keys
		Length: task.Length(p.epoch / time.Second), Count: issuerEpochs}
	relays := make([]quickstart.Relay, 2)
	for hop := range relays {
		at := relaytest.FreeAddress(t)
		relays[hop] = quickstart.Relay{URL: "http://" + at, Listen: at, Admin: relaytest.FreeAddress(t), Pull: "200ms",
			Skew: skew.String()}
	}
	w := &world{plan: p, epochs: draft.Epochs}
	w.Deployment, err = quickstart.Write(filepath.Join(t.TempDir(), "world"), relays,
		[]quickstart.Draft{{Name: "tokens", Task: draft}})
	require.NoError(t, err)
	for hop, r := range relays {
		w.relays = append(w.relays, &process{name: fmt.Sprint("relay", hop+1), admin: r.Admin, world: w,
			log:  filepath.Join(w.Dir, fmt.Sprintf("relay%d.log", hop+1)),
			args: []string{"relay", "serve", "--config", w.RelayConfig(hop + 1)}})
	}
	folder := filepath.Join(w.Dir, "issuer")
	config := fmt.Sprintf("listen: %s\nadmin: %s\nstore: sqlite:issuer.db\nclients: address\n"+
		"trusted_proxies: [127.0.0.0/8]\nskew: %s\ntasks:\n"+
		"  - {file: ../tokens.bundle, owner: %q, token_keys: tokens.keys}\n",
		address, admin, skew, w.Owner)
	require.NoError(t, os.WriteFile(filepath.Join(folder, "issuer.yaml"), []byte(config), 0o600))
	w.verifiers = []*process{{name: "issuer", admin: admin, world: w, log: filepath.Join(w.Dir, "issuer.log"),
		args: []string{"issuer", "serve", "--config", filepath.Join(folder, "issuer.yaml")}}}
	t.Cleanup(func() {
		for _, p := range w.all() {
			p.end()
		}
	})
	raw, err := os.ReadFile(filepath.Join(folder, "tokens.keys.directory"))
	require.NoError(t, err)
	public, err := token.ParseDirectory(raw)
	require.NoError(t, err)
	a := &askers{world: w, open: w.Bundles[0], keys: map[uint64]*token.PublicKey{},
		file: filepath.Join(folder, "tokens.keys")}
	for epoch, id := range a.open.TokenKeys {
		a.keys[uint64(epoch)] = public[id]
	}
	return w, a
}

// keep repeats do until ctx ends or do returns an error.
func (a *askers) keep(ctx context.Context, do func(ctx context.Context) error) {
	for ctx.Err() == nil {
		sleep(ctx, rand.N(200*time.Millisecond))
		if err := do(ctx); err != nil && ctx.Err() == nil {
			a.mu.Lock()
			a.failures = append(a.failures, err)
			a.mu.Unlock()
			return
		}
	}
}

// ask gets a token of the current epoch for a new network.
func (a *askers) ask(ctx context.Context) error {
	epoch, ok := a.world.epochAt(time.Now())
	if !ok {
		return nil
	}
	pending, err := token.Blind(a.keys[epoch], token.Challenge(a.open.Task, a.open.ID, epoch))
	if err != nil {
		return err
	}
	got := &asked{epoch: epoch, from: relaytest.Network(int(a.next.Add(1))), request: pending.Request}
	got.reply, err = a.until(ctx, got.epoch, got.from, got.request)
	if closed(err) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("a first token: %w", err)
	}
	if _, err := pending.Finalize(got.reply); err != nil {
		return err
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.tokens = append(a.tokens, got)
	return nil
}

// askAgain repeats an answered request, and requests a second token for the same network.
func (a *askers) askAgain(ctx context.Context) error {
	a.mu.Lock()
	var of *asked
	if n := len(a.tokens); n > 0 {
		of = a.tokens[n-1-rand.IntN(min(n, 100))]
	}
	a.mu.Unlock()
	if of == nil {
		return nil
	}
	reply, err := a.until(ctx, of.epoch, of.from, of.request)
	if closed(err) {
		return nil
	}
	if err != nil || !bytes.Equal(reply, of.reply) {
		return fmt.Errorf("a repeated request was answered otherwise: %w", err)
	}
	second, err := token.Blind(a.keys[of.epoch], token.Challenge(a.open.Task, a.open.ID, of.epoch))
	if err != nil {
		return err
	}
	_, err = a.until(ctx, of.epoch, of.from, second.Request)
	if closed(err) {
		return nil
	}
	if !errors.Is(err, problem.New(problem.Limit, "")) {
		return fmt.Errorf("a second token: want a refusal for the quota, got %w", errors.Join(err))
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.again++
	a.limited++
	return nil
}

func closed(err error) bool { return errors.Is(err, problem.New(problem.EpochClosed, "")) }

// until posts the same bytes until the issuer's answer is final.
func (a *askers) until(ctx context.Context, epoch uint64, from string, request []byte) ([]byte, error) {
	for {
		req, err := http.NewRequestWithContext(ctx, http.MethodPost, a.open.TokenRequestURL(epoch),
			bytes.NewReader(request))
		if err != nil {
			return nil, err
		}
		req.Header.Set("Content-Type", token.RequestType)
		req.Header.Set("X-Forwarded-For", from)
		resp, err := line.Do(req)
		if err == nil {
			var reply []byte
			if resp.StatusCode == http.StatusOK {
				reply, err = io.ReadAll(resp.Body)
			} else {
				err = problem.Read(resp)
			}
			resp.Body.Close()
			var p *problem.Problem
			if err == nil || errors.As(err, &p) && p.Name != problem.Overloaded && p.Name != problem.ClockInDoubt {
				return reply, err
			}
		}
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		a.mu.Lock()
		a.refused++
		a.mu.Unlock()
		sleep(ctx, between(20*time.Millisecond, 150*time.Millisecond))
	}
}

// mostLate is how long after an epoch's end its key may remain: the issuer scans every second, and asks others for the
// time.
const mostLate = 5 * time.Second

// watchKeys checks when each epoch's private key disappears from the key file, until done ends.
func (a *askers) watchKeys(ctx, done context.Context) {
	gone := uint64(0)
	for ; done.Err() == nil; sleep(ctx, 50*time.Millisecond) {
		keys, err := keyfile.LoadRSA(a.file)
		if err != nil {
			continue // the issuer is writing the file
		}
		late := time.Since(a.world.over(gone))
		a.mu.Lock()
		switch {
		case !slices.Contains(keys.Epochs(), gone):
			if late < 0 {
				a.failures = append(a.failures, fmt.Errorf("the key of epoch %d is gone before its end", gone))
			}
			a.slowest = max(a.slowest, late)
			gone++
		case late > mostLate:
			a.failures = append(a.failures, fmt.Errorf("the key of epoch %d is there %v after its end", gone, late))
			gone++
		}
		a.mu.Unlock()
	}
}
