package issuer_test

import (
	"bufio"
	"bytes"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/doona-dp/doona/internal/testing/relaytest"
	"github.com/doona-dp/doona/issuer"
	"github.com/doona-dp/doona/planner"
	"github.com/doona-dp/doona/shufflerclient"
	"github.com/doona-dp/doona/wire/keyfile"
	"github.com/doona-dp/doona/wire/problem"
	"github.com/doona-dp/doona/wire/task"
	"github.com/doona-dp/doona/wire/token"
)

const apiKey = "an API key of a backend, 32 characters long"

// newCascade creates a task with tokens that clients can report to.
func newCascade(t testing.TB) *relaytest.Cascade {
	t.Helper()
	return relaytest.New(t, relaytest.Options{Task: func(draft *task.Task) {
		calibrated, err := planner.Draft(planner.Query{Name: "test", Query: task.Mean, Hi: 10, Batch: 20, Honest: 0.9,
			Epsilon: 2, Delta: 1e-4})
		require.NoError(t, err)
		calibrated.Epochs = draft.Epochs
		*draft = *calibrated
		relaytest.WithTokens(draft)
	}})
}

// accounts returns the configuration of an issuer that gives each account quota tokens.
func accounts(t testing.TB, c *relaytest.Cascade, quota int) issuer.Config {
	t.Helper()
	path := filepath.Join(c.Dir, "api.keys")
	require.NoError(t, os.WriteFile(path, []byte(strings.Repeat("x", 32)+"\n\n"+apiKey+"\n"), 0o600))
	cfg := c.IssuerConfig()
	cfg.Clients, cfg.APIKeys, cfg.Tasks[0].Quota = "account", path, quota
	return cfg
}

func account(name string) http.Header {
	return http.Header{"Authorization": {"Bearer " + apiKey}, issuer.AccountHeader: {name}}
}

func newClient(t testing.TB, c *relaytest.Cascade, header http.Header) *shufflerclient.Client {
	t.Helper()
	client, err := shufflerclient.New(c.Open,
		shufflerclient.Options{MaxEpsilon: 4, Tokens: shufflerclient.IssuerTokens(http.DefaultClient, header)})
	require.NoError(t, err)
	return client
}

// TestEndToEnd lets two people with the same address report once each, through a real issuer and a real relay.
func TestEndToEnd(t *testing.T) {
	c := newCascade(t)
	c.StartIssuer(t, accounts(t, c, 1))
	c.Start(t, 0)
	for _, name := range []string{"ann", "bob"} {
		client := newClient(t, c, account(name))
		ahead, err := client.Token(t.Context(), 1)
		require.NoError(t, err, "a token for the next epoch before it begins")
		require.Len(t, ahead, token.Size)
		report, err := client.Report(0, []float64{5})
		require.NoError(t, err)
		require.NoError(t, client.Submit(t.Context(), report))
		require.NoError(t, client.Submit(t.Context(), report), "a retry must succeed")
		again, err := client.Report(0, []float64{5})
		require.NoError(t, err)
		require.ErrorIs(t, client.Submit(t.Context(), again), problem.New(problem.Limit, ""), "no second token")
		again.Token = report.Token
		require.ErrorIs(t, client.Submit(t.Context(), again), problem.New(problem.Limit, ""), "no second report")
		again.Token = ahead
		require.ErrorIs(t, client.Submit(t.Context(), again), problem.New(problem.TokenInvalid, ""),
			"another epoch's token")
	}
}

// TestQuotaIsExact sends 50 concurrent requests of an account. The account must get exactly its quota of tokens, and no
// more after a restart of the issuer. Another account has its own quota.
func TestQuotaIsExact(t *testing.T) {
	c := newCascade(t)
	cfg := accounts(t, c, 7)
	issue := func(handler http.Handler, requests, epoch int, name string) (issued int) {
		server := httptest.NewServer(handler)
		defer server.Close()
		var asking sync.WaitGroup
		var mu sync.Mutex
		for range requests {
			asking.Go(func() {
				busy := problem.New(problem.SlowDown, "") // for more than an eighth of the capacity
				err := error(busy)
				for errors.Is(err, busy) {
					_, err = ask(t, server.URL, c, uint64(epoch), request(t, c, uint64(epoch)), account(name))
				}
				mu.Lock()
				defer mu.Unlock()
				if err == nil {
					issued++
				} else {
					require.ErrorIs(t, err, problem.New(problem.Limit, ""))
				}
			})
		}
		asking.Wait()
		return issued
	}
	for restart := range 2 {
		i, err := issuer.New(cfg)
		require.NoError(t, err)
		require.Equal(t, 7-7*restart, issue(i.Handler(), 50, 0, "ann"))
		require.Equal(t, 3, issue(i.Handler(), 3, 0, "bob "+strconv.Itoa(restart)))
		require.Equal(t, 1, issue(i.Handler(), 1, 1, "ann"), "the next epoch must have its own quota")
		require.NoError(t, i.Close())
	}
}

func request(t testing.TB, c *relaytest.Cascade, epoch uint64) []byte {
	t.Helper()
	pending, err := token.Blind(publicKey(t, c, epoch), token.Challenge(c.Open.Task, c.Open.ID, epoch))
	require.NoError(t, err)
	return pending.Request
}

func publicKey(t testing.TB, c *relaytest.Cascade, epoch uint64) *token.PublicKey {
	t.Helper()
	raw, err := os.ReadFile(filepath.Join(c.Dir, "issuer", "task0.keys.directory"))
	require.NoError(t, err)
	keys, err := token.ParseDirectory(raw)
	require.NoError(t, err)
	return keys[c.Open.TokenKeys[epoch]]
}

func ask(t testing.TB, base string, c *relaytest.Cascade, epoch uint64, body []byte, header http.Header) ([]byte,
	error) {
	t.Helper()
	open := *c.Open
	renamed := *c.Open.Task
	renamed.Clients.Issuer.URL = base
	open.Task = &renamed
	return shufflerclient.IssuerTokens(http.DefaultClient, header)(t.Context(), open.TokenRequestURL(epoch), body)
}

// TestSameRequestCountsOnce repeats a token request. The issuer must count it once, because the first answer may have
// been lost.
func TestSameRequestCountsOnce(t *testing.T) {
	c := newCascade(t)
	i, err := issuer.New(accounts(t, c, 2))
	require.NoError(t, err)
	defer i.Close()
	server := httptest.NewServer(i.Handler())
	defer server.Close()
	body := request(t, c, 0)
	first, err := ask(t, server.URL, c, 0, body, account("ann"))
	require.NoError(t, err)
	again, err := ask(t, server.URL, c, 0, body, account("ann"))
	require.NoError(t, err)
	require.Equal(t, first, again)
	_, err = ask(t, server.URL, c, 0, request(t, c, 0), account("ann"))
	require.NoError(t, err)
	again, err = ask(t, server.URL, c, 0, body, account("ann"))
	require.NoError(t, err, "a retry must succeed at the quota, too")
	require.Equal(t, first, again)
	_, err = ask(t, server.URL, c, 0, body, account("bob"))
	require.NoError(t, err, "a copied request counts for the account that sends it")
	_, err = ask(t, server.URL, c, 0, request(t, c, 0), account("ann"))
	require.ErrorIs(t, err, problem.New(problem.Limit, ""))
}

// TestStoreFails breaks the store. A request that the issuer cannot count must get no token, and must succeed when the
// store works again.
func TestStoreFails(t *testing.T) {
	c := newCascade(t)
	cfg := accounts(t, c, 1)
	i, err := issuer.New(cfg)
	require.NoError(t, err)
	defer i.Close()
	server := httptest.NewServer(i.Handler())
	defer server.Close()
	db, err := sql.Open("sqlite", strings.TrimPrefix(cfg.Store, "sqlite:"))
	require.NoError(t, err)
	defer db.Close()
	_, err = db.Exec(`CREATE TRIGGER kept BEFORE INSERT ON issued BEGIN SELECT RAISE(ABORT, 'by the test'); END`)
	require.NoError(t, err)
	body := request(t, c, 0)
	_, err = ask(t, server.URL, c, 0, body, account("ann"))
	var p *problem.Problem
	require.ErrorAs(t, err, &p)
	require.Equal(t, problem.Overloaded, p.Name)
	require.GreaterOrEqual(t, p.RetryAfter, 2*time.Second)
	_, err = db.Exec(`DROP TRIGGER kept`)
	require.NoError(t, err)
	_, err = ask(t, server.URL, c, 0, body, account("ann"))
	require.NoError(t, err)
}

// TestSlowSenders: a client that sends its request slowly must not take capacity from other clients.
func TestSlowSenders(t *testing.T) {
	c := newCascade(t)
	cfg := accounts(t, c, 1)
	cfg.MaxConcurrent = 1
	i, err := issuer.New(cfg)
	require.NoError(t, err)
	defer i.Close()
	server := httptest.NewServer(i.Handler())
	defer server.Close()
	slow, err := net.Dial("tcp", server.Listener.Addr().String())
	require.NoError(t, err)
	defer slow.Close()
	target, err := url.Parse(c.Open.TokenRequestURL(0))
	require.NoError(t, err)
	_, err = fmt.Fprintf(slow,
		"POST %s HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer %s\r\n%s: bob\r\nContent-Type: %s\r\nContent-Length: "+
			"%d\r\nExpect: 100-continue\r\n\r\n",
		target.Path, apiKey, issuer.AccountHeader, token.RequestType, token.RequestSize)
	require.NoError(t, err)
	line, err := bufio.NewReader(slow).ReadString('\n')
	require.NoError(t, err)
	require.Contains(t, line, "100 Continue", "it waits for the body")
	_, err = ask(t, server.URL, c, 0, request(t, c, 0), account("ann"))
	require.NoError(t, err)
}

// TestRefusals sends invalid requests, and requests of clients that may not get a token. The issuer must refuse each
// with the right problem.
func TestRefusals(t *testing.T) {
	c := newCascade(t)
	i, err := issuer.New(accounts(t, c, 1000))
	require.NoError(t, err)
	defer i.Close()
	server := httptest.NewServer(i.Handler())
	defer server.Close()
	good := request(t, c, 0)
	changed := func(at int, b byte) []byte {
		out := bytes.Clone(good)
		out[at] = b
		return out
	}
	for name, r := range map[string]struct {
		body   []byte
		header http.Header
		epoch  uint64
		want   problem.Name
	}{
		"no key": {good, http.Header{issuer.AccountHeader: {"ann"}}, 0, problem.Unauthorized},
		"another key": {good,
			http.Header{issuer.AccountHeader: {"ann"}, "Authorization": {"Bearer " + apiKey + "x"}}, 0,
			problem.Unauthorized},
		"an empty key": {good, http.Header{issuer.AccountHeader: {"ann"}, "Authorization": {"Bearer "}}, 0,
			problem.Unauthorized},
		"another scheme": {good, http.Header{issuer.AccountHeader: {"ann"}, "Authorization": {"Basic " + apiKey}},
			0, problem.Unauthorized},
		"no account":      {good, http.Header{"Authorization": {"Bearer " + apiKey}}, 0, problem.Malformed},
		"a long account":  {good, account(strings.Repeat("a", 257)), 0, problem.Malformed},
		"an account in é": {good, account("é"), 0, problem.Malformed},
		"no such epoch":   {good, account("ann"), 2, problem.EpochNotOpen},
		"another epoch":   {changed(2, good[2]^1), account("ann"), 0, problem.Malformed},
		"another type":    {changed(1, 1), account("ann"), 0, problem.Malformed},
		"empty":           {nil, account("ann"), 0, problem.Malformed},
		"truncated":       {good[:len(good)-1], account("ann"), 0, problem.Malformed},
		"oversized":       {make([]byte, 1<<20), account("ann"), 0, problem.TooLarge},
		"zero": {append(bytes.Clone(good[:3]), make([]byte, 256)...), account("ann"), 0,
			problem.Malformed},
		"above the modulus": {append(bytes.Clone(good[:3]), bytes.Repeat([]byte{0xff}, 256)...), account("ann"), 0,
			problem.Malformed},
	} {
		_, err := ask(t, server.URL, c, r.epoch, r.body, r.header)
		require.ErrorIs(t, err, problem.New(r.want, ""), name)
	}
	status, err := i.Status(t.Context())
	require.NoError(t, err)
	require.Zero(t, status.Tasks[0].Epochs[0].Issued, "refused requests must not be counted")
	for path, want := range map[string]problem.Name{
		"/v1/tasks/" + strings.Repeat("0", 64) + "/epochs/0/issuer-directory": problem.UnknownTask,
		"/v1/tasks/x/epochs/0/issuer-directory":                               problem.UnknownTask,
		"/":                                                                   problem.NotFound,
	} {
		resp, err := http.Get(server.URL + path)
		require.NoError(t, err)
		require.ErrorIs(t, problem.Read(resp), problem.New(want, ""), path)
		resp.Body.Close()
	}
	resp, err := http.Post(server.URL+"/v1/tasks/"+strings.TrimPrefix(c.TaskURL(0), c.Open.Relays[0].URL+"/v1/tasks/")+
		"/epochs/0/token-request", "text/plain", nil)
	require.NoError(t, err)
	defer resp.Body.Close()
	require.ErrorIs(t, problem.Read(resp), problem.New(problem.Unauthorized, ""))
	require.Empty(t, resp.Header.Get("Access-Control-Allow-Origin"), "a page must ask through its backend")
}

// TestAddresses: with networks as clients, pages of any origin get tokens, and each network has its own quota. A proxy
// that the issuer does not trust counts as a client itself.
func TestAddresses(t *testing.T) {
	c := newCascade(t)
	c.StartIssuer(t, c.IssuerConfig())
	from := func(address string) error {
		_, err := ask(t, c.Open.Clients.Issuer.URL, c, 0, request(t, c, 0), http.Header{"X-Forwarded-For": {address}})
		return err
	}
	require.NoError(t, from("203.0.113.1"))
	require.ErrorIs(t, from("203.0.113.2"), problem.New(problem.Limit, ""))
	require.NoError(t, from("198.51.100.1"))
	req, err := http.NewRequestWithContext(t.Context(), http.MethodOptions, c.Open.TokenRequestURL(0), nil)
	require.NoError(t, err)
	resp, err := http.DefaultClient.Do(req)
	require.NoError(t, err)
	resp.Body.Close()
	require.Equal(t, "*", resp.Header.Get("Access-Control-Allow-Origin"))
	resp, err = http.Get(c.Open.DirectoryURL(0))
	require.NoError(t, err)
	resp.Body.Close()
	require.Equal(t, http.StatusOK, resp.StatusCode)
	require.Equal(t, []string{"no-store"}, resp.Header.Values("Cache-Control"), "a cache reveals returning clients")
	require.Empty(t, resp.Header.Values("ETag"))
}

// TestNetworksQuotaIsDrawn: with a quota q above 1, the issuer must give a network q to 2q−1 tokens per epoch, the same
// number before and after a restart. It must give an account that a backend names exactly q.
func TestNetworksQuotaIsDrawn(t *testing.T) {
	c := newCascade(t)
	cfg := c.IssuerConfig()
	const quota = 2
	cfg.Tasks[0].Quota = quota
	name := func(n int) string { return fmt.Sprintf("203.0.%d.0/24", n) }
	drawn := func(i *issuer.Issuer, epoch uint64, n int) int {
		out, err := issuer.Quota(i, epoch, name(n))
		require.NoError(t, err)
		return out
	}
	of := map[int]int{} // network by quota that the issuer drew for it
	for restart := range 2 {
		i, err := issuer.New(cfg)
		require.NoError(t, err)
		server := httptest.NewServer(i.Handler())
		differ := 0
		for n := range 256 {
			of[drawn(i, 0, n)] = n
			if drawn(i, 0, n) != drawn(i, 1, n) {
				differ++
			}
		}
		require.Len(t, of, quota)
		require.Greater(t, differ, 100, "another epoch must give another quota")
		for got := quota; got < 2*quota; got++ {
			from := http.Header{"X-Forwarded-For": {strings.Replace(name(of[got]), "0/24", "1", 1)}}
			for k := range got*(1-restart) + 1 {
				_, err := ask(t, server.URL, c, 0, request(t, c, 0), from)
				if restart == 0 && k < got {
					require.NoError(t, err)
				} else {
					require.ErrorIs(t, err, problem.New(problem.Limit, ""))
				}
			}
		}
		server.Close()
		require.NoError(t, i.Close())
	}
	i, err := issuer.New(accounts(t, newCascade(t), quota))
	require.NoError(t, err)
	defer i.Close()
	for n := range 64 {
		require.Equal(t, quota, drawn(i, 0, n))
	}
}

// TestForeignPages asks for tokens from a page whose origin the task does not list, with networks as clients. The page
// must get the same answer whether or not its network has had a token, and must not be able to read it. The request
// must not cost the network a token.
func TestForeignPages(t *testing.T) {
	c := relaytest.New(t, relaytest.Options{Task: func(draft *task.Task) {
		relaytest.WithTokens(draft)
		draft.Clients.Origins = []string{"https://shop.example"}
	}})
	c.StartIssuer(t, c.IssuerConfig())
	from := func(method, origin string, body []byte) *http.Response {
		req, err := http.NewRequestWithContext(t.Context(), method, c.Open.TokenRequestURL(0), bytes.NewReader(body))
		require.NoError(t, err)
		req.Header = http.Header{"X-Forwarded-For": {"203.0.113.1"}, "Origin": {origin},
			"Content-Type": {token.RequestType}}
		resp, err := http.DefaultClient.Do(req)
		require.NoError(t, err)
		t.Cleanup(func() { resp.Body.Close() })
		return resp
	}
	refused := func() {
		t.Helper()
		for _, method := range []string{http.MethodPost, http.MethodOptions} {
			resp := from(method, "https://advertiser.example", request(t, c, 0))
			require.Equal(t, problem.New(problem.ForeignOrigin, ""), problem.Read(resp))
			require.Empty(t, resp.Header.Get("Access-Control-Allow-Origin"))
		}
	}
	refused()
	own := from(http.MethodPost, "https://shop.example", request(t, c, 0))
	require.Equal(t, http.StatusOK, own.StatusCode)
	require.Equal(t, "https://shop.example", own.Header.Get("Access-Control-Allow-Origin"))
	limited := problem.Read(from(http.MethodPost, "https://shop.example", request(t, c, 0)))
	require.Equal(t, problem.New(problem.Limit, ""), limited)
	refused()
}

// TestEpochsEnd: the issuer issues tokens only for epochs that are open or next. When an epoch ends, it must erase the
// counts together with the epoch's key, so that nothing links tokens to accounts. No account's name may ever be on disk
// or in the log.
func TestEpochsEnd(t *testing.T) {
	c := relaytest.New(t, relaytest.Options{Task: func(draft *task.Task) {
		relaytest.WithTokens(draft)
		draft.Epochs.Count = 3
	}})
	var log bytes.Buffer
	var mu sync.Mutex
	cfg := accounts(t, c, 1)
	cfg.Log = slog.New(slog.NewTextHandler(locked{&mu, &log}, nil))
	i, err := issuer.New(cfg)
	require.NoError(t, err)
	server := httptest.NewServer(i.Handler())
	defer server.Close()
	const secret = "ann-whose-name-is-not-written"
	issue := func(epoch uint64) error {
		_, err := ask(t, server.URL, c, epoch, request(t, c, epoch), account(secret))
		return err
	}
	require.NoError(t, issue(0))
	require.NoError(t, issue(1))
	require.ErrorIs(t, issue(2), problem.New(problem.EpochNotOpen, ""))
	c.Clock.Advance(relaytest.Epoch + 6*time.Minute)
	require.ErrorIs(t, issue(0), problem.New(problem.EpochClosed, ""))
	require.ErrorIs(t, issue(1), problem.New(problem.Limit, ""))
	require.NoError(t, issue(2))

	folder := filepath.Join(c.Dir, "issuer")
	requireAbsent(t, folder, secret)
	require.NoError(t, i.Close())
	i, err = issuer.New(cfg)
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- i.Run(ctx) }()
	require.Eventually(t, func() bool {
		keys, err := keyfile.LoadRSA(filepath.Join(folder, "task0.keys"))
		return err == nil && len(keys.Epochs()) == 2
	}, relaytest.Patience, 10*time.Millisecond)
	status, err := i.Status(t.Context())
	require.NoError(t, err)
	require.Equal(t, []issuer.EpochStatus{{Epoch: 1, Issued: 1}, {Epoch: 2, Issued: 1}}, status.Tasks[0].Epochs)
	cancel()
	require.NoError(t, <-ended)
	db, err := sql.Open("sqlite", filepath.Join(folder, "issuer.db"))
	require.NoError(t, err)
	defer db.Close()
	var first, rows int
	require.NoError(t, db.QueryRow(`SELECT min(epoch), count(*) FROM issued`).Scan(&first, &rows))
	require.Equal(t, []int{1, 2}, []int{first, rows}, "the counts of epoch 0 must be deleted")
	mu.Lock()
	defer mu.Unlock()
	require.NotContains(t, log.String(), secret)
}

// TestKeysEndWithoutTheStore: the issuer must erase an epoch's key even if it cannot erase the epoch's counts. It must
// erase the counts later, although it no longer has their key.
func TestKeysEndWithoutTheStore(t *testing.T) {
	c := relaytest.New(t, relaytest.Options{Task: relaytest.WithTokens})
	c.StartFirst(t) // this relay also confirms the time
	cfg := c.IssuerConfig()
	run := func() (stop func()) {
		i, err := issuer.New(cfg)
		require.NoError(t, err)
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- i.Run(ctx) }()
		return func() { cancel(); require.NoError(t, <-ended) }
	}
	run()()
	db, err := sql.Open("sqlite", strings.TrimPrefix(cfg.Store, "sqlite:"))
	require.NoError(t, err)
	defer db.Close()
	_, err = db.Exec(`INSERT INTO issued VALUES ($1, 0, 'account', 'request');
		CREATE TRIGGER kept BEFORE DELETE ON issued BEGIN SELECT RAISE(ABORT, 'by the test'); END`, c.Open.ID[:])
	require.NoError(t, err)
	c.Clock.Advance(relaytest.Epoch + 6*time.Minute)
	stop := run()
	require.Eventually(t, func() bool {
		keys, err := keyfile.LoadRSA(cfg.Tasks[0].TokenKeys)
		return err == nil && !slices.Contains(keys.Epochs(), 0)
	}, relaytest.Patience, 10*time.Millisecond)
	stop()
	_, err = db.Exec(`DROP TRIGGER kept`)
	require.NoError(t, err)
	defer run()()
	require.Eventually(t, func() bool {
		var rows int
		return db.QueryRow(`SELECT count(*) FROM issued`).Scan(&rows) == nil && rows == 0
	}, relaytest.Patience, 10*time.Millisecond)
}

// locked is a writer that several goroutines share.
type locked struct {
	mu *sync.Mutex
	w  io.Writer
}

func (l locked) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.w.Write(p)
}

func requireAbsent(t *testing.T, folder, secret string) {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(folder, "issuer.db*"))
	require.NoError(t, err)
	require.NotEmpty(t, files)
	for _, file := range files {
		raw, err := os.ReadFile(file)
		require.NoError(t, err)
		require.NotContains(t, string(raw), secret)
	}
}

// TestBadConfigurations: the error for a bad configuration must name the field.
func TestBadConfigurations(t *testing.T) {
	c := newCascade(t)
	other := newCascade(t)
	for want, change := range map[string]func(*issuer.Config){
		"invalid store":         func(cfg *issuer.Config) { cfg.Store = "postgres://" },
		"invalid clients":       func(cfg *issuer.Config) { cfg.Clients = "" },
		"invalid api_keys":      func(cfg *issuer.Config) { cfg.APIKeys = "" },
		"at least one key":      func(cfg *issuer.Config) { cfg.APIKeys = keyFileWith(t, "\n") },
		"a key of 5 characters": func(cfg *issuer.Config) { cfg.APIKeys = keyFileWith(t, "short") },
		"is open to others": func(cfg *issuer.Config) {
			cfg.APIKeys = keyFileWith(t, apiKey)
			require.NoError(t, os.Chmod(cfg.APIKeys, 0o644))
		},
		"invalid admin":           func(cfg *issuer.Config) { cfg.Admin = "127.0.0.1:port" },
		"invalid admin_hosts":     func(cfg *issuer.Config) { cfg.AdminHosts = []string{"a:9085"} },
		"invalid max_concurrent":  func(cfg *issuer.Config) { cfg.MaxConcurrent = 5000 },
		"invalid max_connections": func(cfg *issuer.Config) { cfg.MaxConnections = 7 },
		"invalid skew":            func(cfg *issuer.Config) { cfg.Skew = time.Hour },
		"invalid tasks":           func(cfg *issuer.Config) { cfg.Tasks = nil },
		"invalid quota":           func(cfg *issuer.Config) { cfg.Tasks[0].Quota = 1001 },
		"invalid owner":           func(cfg *issuer.Config) { cfg.Tasks[0].Owner = "" },
		"its owner is":            func(cfg *issuer.Config) { cfg.Tasks[0].Owner = other.Owner },
		"invalid token_keys": func(
			cfg *issuer.Config) {
			cfg.Tasks[0].TokenKeys = other.IssuerConfig().Tasks[0].TokenKeys
		},
		"every task once": func(cfg *issuer.Config) { cfg.Tasks = append(cfg.Tasks, cfg.Tasks[0]) },
		"not a doona token keys": func(cfg *issuer.Config) {
			cfg.Tasks[0].TokenKeys = filepath.Join(c.Dir,
				"owner.key")
		},
		"invalid trusted_proxies": func(cfg *issuer.Config) { cfg.TrustedProxies = []string{"x"} },
	} {
		cfg := accounts(t, c, 1)
		change(&cfg)
		_, err := issuer.New(cfg)
		require.ErrorContains(t, err, want)
	}
	address := relaytest.New(t, relaytest.Options{})
	cfg := accounts(t, c, 1)
	cfg.Tasks = []issuer.TaskConfig{{File: filepath.Join(address.Dir, "task0.bundle"), Owner: address.Owner,
		TokenKeys: cfg.Tasks[0].TokenKeys}}
	_, err := issuer.New(cfg)
	require.ErrorContains(t, err, "invalid clients.kind")
}

// TestInspect: reading the status must not create a store, and must read an existing one.
func TestInspect(t *testing.T) {
	c := newCascade(t)
	cfg := accounts(t, c, 1)
	cfg.Store = "sqlite:" + filepath.Join(t.TempDir(), "issuer.db")
	issued := func() uint64 {
		i, err := issuer.Inspect(cfg)
		require.NoError(t, err)
		defer i.Close()
		status, err := i.Status(t.Context())
		require.NoError(t, err)
		return status.Tasks[0].Epochs[0].Issued
	}
	require.Zero(t, issued())
	require.NoFileExists(t, strings.TrimPrefix(cfg.Store, "sqlite:"))
	i, err := issuer.New(cfg)
	require.NoError(t, err)
	defer i.Close()
	server := httptest.NewServer(i.Handler())
	defer server.Close()
	_, err = ask(t, server.URL, c, 0, request(t, c, 0), account("ann"))
	require.NoError(t, err)
	require.Equal(t, uint64(1), issued())
}

func keyFileWith(t *testing.T, content string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "keys")
	require.NoError(t, os.WriteFile(path, []byte(content), 0o600))
	return path
}

// TestOneProcess: while an issuer runs, a second issuer must not open the same store.
func TestOneProcess(t *testing.T) {
	cfg := accounts(t, newCascade(t), 1)
	first, err := issuer.New(cfg)
	require.NoError(t, err)
	_, err = issuer.New(cfg)
	require.ErrorContains(t, err, "another process uses it: one process at a time")
	require.NoError(t, first.Close())
	second, err := issuer.New(cfg)
	require.NoError(t, err)
	require.NoError(t, second.Close())
}
