//go:build !wasm

package edge_test

import (
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/doona-dp/doona/internal/testing/relaytest"
	"github.com/doona-dp/doona/planner"
	"github.com/doona-dp/doona/wasm/edge"
	"github.com/doona-dp/doona/wire/problem"
	"github.com/doona-dp/doona/wire/task"
)

const (
	site   = "site.example"
	secret = "a-secret-of-a-backend-0123456789-abcdef"
	apiKey = "an-api-key-of-the-issuer-0123456789-abc"
)

// cascade starts a first relay with a task for the mean of values in [0, 10] in batches of 20.
func cascade(t *testing.T, change func(*task.Task)) *relaytest.Cascade {
	t.Helper()
	c := relaytest.New(t, relaytest.Options{Task: func(draft *task.Task) {
		calibrated, err := planner.Draft(planner.Query{Name: "edge", Query: task.Mean, Hi: 10, Batch: 20, Honest: 0.9,
			Epsilon: 2, Delta: 1e-4})
		require.NoError(t, err)
		calibrated.Epochs, calibrated.Clients.Quota = draft.Epochs, 100
		*draft = *calibrated
		if change != nil {
			change(draft)
		}
	}})
	c.Start(t, 0)
	return c
}

// withIssuer returns a cascade whose clients need tokens, and starts the issuer. The issuer counts accounts, not
// networks.
func withIssuer(t *testing.T) *relaytest.Cascade {
	t.Helper()
	c := cascade(t, relaytest.WithTokens)
	cfg := c.IssuerConfig()
	cfg.Clients, cfg.APIKeys, cfg.TrustedProxies = "account", filepath.Join(t.TempDir(), "api.keys"), nil
	require.NoError(t, os.WriteFile(cfg.APIKeys, []byte(apiKey+"\n"), 0o600))
	c.StartIssuer(t, cfg)
	// The relay refuses all reports until it has the issuer's key. Then it answers that the token is missing.
	body := c.Seal(t, 0, 1)
	require.Eventually(t, func() bool {
		return errors.Is(c.Post(t.Context(), 0, body, "10.0.0.1"), problem.New(problem.TokenMissing, ""))
	}, relaytest.Patience, 10*time.Millisecond)
	return c
}

// host plays the edge runtime. It sends requests to the real relay and issuer and records those they accept.
type host struct {
	work sync.WaitGroup

	mu     sync.Mutex // guards the fields below
	claims map[string]uint64
	asked  int // calls of claim, successful or not
	sent   []*http.Request
	log    []string
	fails  error // error that claim returns
	refuse bool  // whether to refuse reports without asking the relay
}

func (h *host) Do(req *http.Request) (*http.Response, error) {
	if h.refuse && strings.HasSuffix(req.URL.Path, "/reports") {
		rec := httptest.NewRecorder()
		problem.New(problem.Limit, "").Write(rec)
		return rec.Result(), nil
	}
	resp, err := http.DefaultTransport.RoundTrip(req)
	if err == nil && resp.StatusCode/100 == 2 { // a relay that is not ready yet gets the report again
		h.mu.Lock()
		h.sent = append(h.sent, req)
		h.mu.Unlock()
	}
	return resp, err
}

func (h *host) claim(network, epoch string, most, _ uint64) (bool, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.asked++
	if h.claims[epoch+network] >= most || h.fails != nil {
		return false, h.fails
	}
	h.claims[epoch+network]++
	return true, nil
}

func (h *host) logged(line string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.log = append(h.log, line)
}

// spent counts the host's requests: fetches of the task and of the issuer's key, calls of claim, token requests and
// reports.
type spent struct{ tasks, claims, keys, tokens, reports int }

func (h *host) spent() (s spent) {
	h.work.Wait()
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, req := range h.sent {
		switch path := req.URL.Path; {
		case strings.HasSuffix(path, "/reports"):
			s.reports++
		case strings.HasSuffix(path, "/token-request"):
			s.tokens++
		case strings.HasSuffix(path, "/issuer-directory"):
			s.keys++
		case strings.HasPrefix(path, "/v1/tasks/"):
			s.tasks++
		}
	}
	s.claims = h.asked
	return s
}

// start returns a worker with one task, named x, and its host.
func start(t *testing.T, c *relaytest.Cascade, fields map[string]any) (*edge.Worker, *host) {
	t.Helper()
	h := &host{claims: map[string]uint64{}}
	w, err := edge.New(configOf(t, c, fields), h.host())
	require.NoError(t, err)
	t.Cleanup(func() {
		h.work.Wait()
		jobs, bytes := w.Jobs()
		require.Zero(t, jobs+bytes, "all jobs must have ended")
		if t.Failed() {
			t.Log(h.log)
		}
	})
	return w, h
}

func (h *host) host() edge.Host {
	return edge.Host{HTTP: h, Pause: time.Sleep, Background: func(work func()) { h.work.Go(work) },
		Log: h.logged, CheckQuota: h.claim,
		Secret: func(name string) string {
			return map[string]string{"BACKEND": secret, "ISSUER": apiKey, "SHORT": secret[:31]}[name]
		}}
}

func configOf(t *testing.T, c *relaytest.Cascade, fields map[string]any) *edge.Config {
	t.Helper()
	x := map[string]any{"task": c.TaskURL(0), "owner": c.Owner, "maxEpsilon": 4}
	if c.Open.Clients.Kind == task.ClientToken {
		x["issuerKey"] = "ISSUER"
	}
	for name, value := range fields {
		x[name] = value
	}
	text, err := json.Marshal(map[string]any{"delay": 0, "tasks": map[string]any{"x": x}})
	require.NoError(t, err)
	config, err := edge.ParseConfig(text)
	require.NoError(t, err)
	return config
}

// request returns a valid post of a page, as changed by the given functions.
func request(body string, change ...func(*http.Request)) *http.Request {
	req := httptest.NewRequest(http.MethodPost, "https://"+site+"/doona/x", strings.NewReader(body))
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Origin", "https://"+site)
	req.Header.Set("CF-Connecting-IP", "192.0.2.77")
	for _, c := range change {
		c(req)
	}
	return req
}

func with(name, value string) func(*http.Request) {
	return func(r *http.Request) { r.Header.Set(name, value) }
}

func without(name string) func(*http.Request) { return func(r *http.Request) { r.Header.Del(name) } }

func answer(w http.Handler, req *http.Request) (int, string) {
	rec := httptest.NewRecorder()
	w.ServeHTTP(rec, req)
	return rec.Code, rec.Body.String()
}

// epochOf asks for the open epoch as the page's script does. It returns a function that names the epoch in a post.
func epochOf(t *testing.T, w http.Handler) func(*http.Request) {
	t.Helper()
	status, text := answer(w, request("", func(r *http.Request) { r.URL.Path += edge.EpochPath }))
	require.Equal(t, http.StatusOK, status, text)
	var told struct {
		Epoch string
		End   int64
	}
	require.NoError(t, json.Unmarshal([]byte(text), &told))
	require.Greater(t, told.End, time.Now().Unix())
	return with(edge.EpochHeader, told.Epoch)
}

// unread is a body that must not be read.
type unread struct{ t *testing.T }

func (u unread) Read([]byte) (int, error) {
	u.t.Error("the worker read the body of a post that it must refuse")
	return 0, io.EOF
}

// TestRefusalsInTheOrderOfTheirCost: until the headers fit (a page of the site, an allowed size, the open epoch), the
// worker must contact nobody and read no body. It must not count the network before the body has arrived. It must fetch
// no token and send nothing before the value is valid.
func TestRefusalsInTheOrderOfTheirCost(t *testing.T) {
	c := withIssuer(t)
	w, h := start(t, c, map[string]any{"source": "page"})
	epoch := func(*http.Request) {}
	wrong := []struct {
		spoil   func(*http.Request)
		status  int
		problem string
		spent   spent
	}{
		{func(r *http.Request) { r.URL.Path = "/doona/y" }, 404, "not-found", spent{}},
		{func(r *http.Request) { r.Method = "PUT" }, 405, "not-found", spent{}},
		{with("Content-Type", "text/plain"), 415, "media-type", spent{}},
		{without("Origin"), 403, "foreign-origin", spent{}},
		{func(r *http.Request) { r.ContentLength = 1<<20 + 1 }, 413, "too-large", spent{}},
		{without(edge.EpochHeader), 409, "epoch-not-open", spent{tasks: 1}},
		{func(r *http.Request) { r.ContentLength = 97 }, 413, "too-large", spent{tasks: 1}},
		{with("CF-Connecting-IP", ""), 500, "internal", spent{tasks: 1}},
	}
	for i, fault := range wrong {
		req := request("", epoch)
		for _, later := range wrong[i:] {
			later.spoil(req)
		}
		if fault.problem == "too-large" { // a later fault would override this length
			wrong[i].spoil(req)
		}
		req.Body = io.NopCloser(unread{t})
		status, text := answer(w, req)
		require.Equal(t, fault.status, status, text)
		require.Contains(t, text, `"urn:doona:error:`+fault.problem+`"`, "%d", i)
		require.Equal(t, fault.spent, h.spent(), "%d: %s", i, fault.problem)
		if fault.problem == "epoch-not-open" {
			epoch = epochOf(t, w)
		}
	}

	status, text := answer(w, request(`{"value": 11}`, epoch))
	require.Equal(t, http.StatusNoContent, status, text)
	require.Equal(t, spent{tasks: 1, claims: 1}, h.spent(), "an invalid value uses up the network's quota")
	require.Len(t, h.log, 1)
	require.Contains(t, h.log[0], "refused a value to task x: invalid-value")
	require.NotContains(t, h.log[0], "11")

	status, text = answer(w, request(strings.Repeat(" ", 97), epoch, func(r *http.Request) { r.ContentLength = -1 }))
	require.Equal(t, http.StatusRequestEntityTooLarge, status, text)
	require.Equal(t, spent{tasks: 1, claims: 1}, h.spent())

	for _, used := range []string{`{"value": 3}`, "nothing"} {
		status, text = answer(w, request(used, epoch))
		require.Equal(t, http.StatusNoContent, status, text)
	}
	require.Equal(t, spent{tasks: 1, claims: 3}, h.spent())

	status, text = answer(w, request(`{"value": 3}`, epoch, with("CF-Connecting-IP", "192.0.3.77")))
	require.Equal(t, http.StatusNoContent, status, text)
	require.Equal(t, spent{tasks: 1, claims: 4, keys: 1, tokens: 2, reports: 1}, h.spent())
	require.Len(t, h.log, 1)
}

// TestQuotaOfANetwork: with a forged Origin, a program gets only the network's quota of reports. Without an Origin it
// gets none.
func TestQuotaOfANetwork(t *testing.T) {
	for quota, fields := range map[int]map[string]any{1: {"source": "page"}, 3: {"source": "page", "quota": 3}} {
		c := cascade(t, nil)
		w, h := start(t, c, fields)
		for range 100 {
			status, _ := answer(w, request(`{"value": 3}`, without("Origin")))
			require.Equal(t, http.StatusForbidden, status)
		}
		require.Equal(t, spent{}, h.spent())
		epoch := epochOf(t, w)
		for i := range 20 {
			status, text := answer(w, request(`{"value": 3}`, epoch,
				with("CF-Connecting-IP", []string{"192.0.2.1", "192.0.2.255", "::ffff:192.0.2.8"}[i%3])))
			require.Equal(t, http.StatusNoContent, status, text)
		}
		require.Equal(t, spent{tasks: 1, claims: 20, reports: quota}, h.spent())
		require.Empty(t, h.log)
	}
	c := cascade(t, nil)
	w, _ := start(t, c, map[string]any{"source": "page", "quota": 101})
	status, text := answer(w, request(`{"value": 3}`))
	require.Equal(t, http.StatusInternalServerError, status)
	require.Contains(t, text, "at most the task's quota, 100")
}

// TestLimitsOfABrowserAreRefused: a worker knows no browsers, so it cannot count one browser's reports or events. It
// must refuse a task with a cap or with events by name, however a value arrives, and send nothing.
func TestLimitsOfABrowserAreRefused(t *testing.T) {
	for name, limits := range map[string]task.Epochs{"cap": {Cap: task.Cap{Reports: 1, Window: 2}},
		"events": {Events: task.Events{Most: 1, Window: 2}}} {
		c := cascade(t, func(draft *task.Task) {
			calibrated, err := planner.Draft(planner.Query{Name: "edge", Query: task.Count, Batch: 20, Honest: 0.9,
				TotalEpsilon: 2, TotalDelta: 1e-4, Epochs: draft.Epochs.Count, Cap: limits.Cap, Events: limits.Events,
				Relays: &planner.RelayNoise{}})
			require.NoError(t, err)
			limits.Start, limits.Length, limits.Count = draft.Epochs.Start, draft.Epochs.Length, draft.Epochs.Count
			calibrated.Epochs = limits
			*draft = *calibrated
		})
		w, h := start(t, c, map[string]any{"source": "page"})
		status, text := answer(w, request(`{"value": 1}`))
		require.Equal(t, http.StatusInternalServerError, status)
		require.Contains(t, text, string(edge.Configuration))
		require.Contains(t, text, "invalid "+name+" 1/2: want none without a ledger")
		require.Contains(t, text, "an edge worker cannot")
		require.Equal(t, spent{tasks: 1}, h.spent())
		w, h = start(t, c, map[string]any{"source": "request", "property": "latency"})
		w.Observe(edge.Observation{Latency: 1})
		require.Equal(t, spent{tasks: 1}, h.spent())
		require.Len(t, h.log, 1)
		require.Contains(t, h.log[0], name+" 1/2")
	}
}

func TestOrigins(t *testing.T) {
	c := cascade(t, nil)
	w, _ := start(t, c, map[string]any{"source": "page",
		"origins": []string{"https://app.example", "capacitor://localhost"}})
	for origin, allowed := range map[string]bool{
		"https://site.example": true, "https://app.example": true, "capacitor://localhost": true,
		"": false, "null": false, "http://site.example": false, "https://evil.example": false, "%": false,
		"https://site.example.evil.example": false, "https://site.example:444": false, "https://site.example/": false,
		"https://SITE.example": false, "https://user@site.example": false, "https://app.example:8443": false,
	} {
		status, text := answer(w, request(`{"value": 3}`, with("Origin", origin)))
		require.Equal(t, map[bool]int{true: http.StatusConflict, false: http.StatusForbidden}[allowed], status, "%s: %s",
			origin, text)
	}
	two := request(`{"value": 3}`)
	two.Header.Add("Origin", "https://site.example")
	status, _ := answer(w, two)
	require.Equal(t, http.StatusForbidden, status)

	// Pages of a configured origin may post and read the answer. Pages of other origins may not.
	for origin, listed := range map[string]bool{"https://app.example": true, "https://evil.example": false} {
		for _, method := range []string{"OPTIONS", "POST"} {
			rec := httptest.NewRecorder()
			w.ServeHTTP(rec, request(`{"value": 3}`, with("Origin", origin), func(r *http.Request) { r.Method = method }))
			require.Equal(t, listed && method == "OPTIONS", rec.Code == http.StatusNoContent)
			require.Equal(t, listed, rec.Header().Get("Access-Control-Allow-Origin") == origin)
			require.Equal(t, listed, strings.Contains(rec.Header().Get("Access-Control-Allow-Headers"), edge.EpochHeader))
		}
	}
}

// TestBackend: a backend's post needs the task's secret. A page cannot post even with the secret, and a backend has no
// quota per network.
func TestBackend(t *testing.T) {
	c := cascade(t, nil)
	w, h := start(t, c, map[string]any{"source": "backend", "backendKey": "BACKEND"})
	ok := with("Authorization", "Bearer "+secret)
	for _, refused := range [][]func(*http.Request){
		{without("Origin")}, {without("Origin"), with("Authorization", "Bearer ")},
		{without("Origin"), with("Authorization", secret)}, {without("Origin"), with("Authorization", "Bearer "+secret+"x")},
		{without("Origin"), with("Authorization", "Bearer "+secret[1:])}, {ok}, {ok, with("Origin", "")},
		{ok, with("Origin", "null")},
	} {
		status, text := answer(w, request(`{"value": 3}`, refused...))
		require.Equal(t, http.StatusForbidden, status, text)
		require.NotContains(t, text, secret[:8])
	}
	require.Equal(t, spent{}, h.spent())
	for range 10 {
		status, text := answer(w, request(`{"value": 3}`, without("Origin"), ok))
		require.Equal(t, http.StatusNoContent, status, text)
	}
	status, text := answer(w, request(`{"value": 11}`, without("Origin"), ok))
	require.Equal(t, http.StatusBadRequest, status)
	require.Contains(t, text, "invalid-value")
	status, text = answer(w, request(`{"value": 3`, without("Origin"), ok))
	require.Equal(t, http.StatusBadRequest, status, text)
	for _, length := range []func(*http.Request){ok, func(r *http.Request) { r.ContentLength = -1 }} {
		status, text = answer(w, request(`{"value": 3}`+strings.Repeat(" ", 100), without("Origin"), ok, length))
		require.Equal(t, http.StatusRequestEntityTooLarge, status, text)
	}
	status, _ = answer(w, request("", without("Origin"), ok, func(r *http.Request) { r.URL.Path += edge.EpochPath }))
	require.Equal(t, http.StatusNotFound, status)
	require.Equal(t, spent{tasks: 1, reports: 10}, h.spent())
	require.Empty(t, h.log)

	for _, key := range []string{"SHORT", "NONE"} {
		_, err := edge.New(configOf(t, c, map[string]any{"source": "backend", "backendKey": key}), h.host())
		require.ErrorContains(t, err, "tasks.x.backendKey")
	}
	bare := h.host()
	bare.CheckQuota = nil
	for field, x := range map[string]map[string]any{"tasks.x.source": {"source": "page"},
		"tasks.x.once": {"source": "request", "property": "latency", "once": true}} {
		_, err := edge.New(configOf(t, c, x), bare)
		require.ErrorContains(t, err, field)
	}
}

// TestCostOfReports: concurrent reports share one fetch of the task. One report costs two tokens at most, and n reports
// cost n + 4. The worker's requests contain nothing of the page's request, so relays and issuers see a program.
func TestCostOfReports(t *testing.T) {
	c := withIssuer(t)
	w, h := start(t, c, map[string]any{"source": "backend", "backendKey": "BACKEND"})
	post := func() {
		var all sync.WaitGroup
		for range 10 {
			all.Go(func() {
				status, text := answer(w, request(`{"value": 3}`, without("Origin"), with("Authorization", "Bearer "+secret)))
				if status != http.StatusNoContent {
					t.Error(text)
				}
			})
		}
		all.Wait()
	}
	post()
	first := h.spent()
	require.LessOrEqual(t, first.keys, 10)
	require.Equal(t, spent{tasks: 1, keys: first.keys, tokens: 14, reports: 10}, first)
	post()
	second := h.spent()
	require.LessOrEqual(t, second.tokens, 24)
	require.Equal(t, spent{tasks: 1, keys: first.keys, tokens: second.tokens, reports: 20}, second)
	for _, req := range h.sent {
		require.Empty(t, req.Header.Values("Origin"))
		for _, values := range req.Header {
			require.NotContains(t, strings.Join(values, " "), secret)
			require.NotContains(t, strings.Join(values, " "), "192.0.2")
		}
	}
	require.Empty(t, h.log)
}

// TestOverload: an overloaded worker refuses a post before it contacts anyone, and accepts posts once the load is over.
func TestOverload(t *testing.T) {
	c := cascade(t, nil)
	w, h := start(t, c, map[string]any{"source": "page"})
	refused := func(change ...func(*http.Request)) {
		rec := httptest.NewRecorder()
		req := request("", change...)
		req.Body = io.NopCloser(unread{t})
		w.ServeHTTP(rec, req)
		require.Equal(t, http.StatusServiceUnavailable, rec.Code)
		require.Equal(t, "1", rec.Header().Get("Retry-After"))
	}
	empty := w.Fill()
	refused()
	require.Equal(t, spent{}, h.spent())
	empty()

	empty = w.FillBytes(95)
	epoch := epochOf(t, w)
	refused(epoch)
	require.Equal(t, spent{tasks: 1}, h.spent())
	empty()

	// Once its network was counted, a page must get the usual answer, even under overload. Another answer would reveal
	// whether the quota was used up.
	empty = w.FillBytes(96 + 200)
	status, text := answer(w, request(`{"value": 3}`, epoch, with("CF-Connecting-IP", "192.0.3.77")))
	require.Equal(t, http.StatusNoContent, status, text)
	require.Equal(t, spent{tasks: 1, claims: 1}, h.spent())
	require.Contains(t, strings.Join(h.log, " "), "overloaded")
	empty()

	status, text = answer(w, request(`{"value": 3}`, epoch))
	require.Equal(t, http.StatusNoContent, status, text)
	require.Equal(t, spent{tasks: 1, claims: 2, reports: 1}, h.spent())
}

// slow begins to post a value. It returns a function that sends the rest of the body, and a channel that receives the
// answer's status.
func slow(w http.Handler, change ...func(*http.Request)) (rest func(), answered chan int) {
	read, write := io.Pipe()
	req, answered := request("", change...), make(chan int, 1)
	req.Body, req.ContentLength = read, 12
	go func() {
		status, _ := answer(w, req)
		read.Close() // a server also closes the body after an early answer
		answered <- status
	}()
	io.WriteString(write, `{"val`)
	return func() {
		io.WriteString(write, `ue": 3}`)
		write.Close()
	}, answered
}

// TestHalfABodyTellsNothing: until the rest of a body arrives, the worker neither answers nor counts the network,
// whether or not the quota is used up.
func TestHalfABodyTellsNothing(t *testing.T) {
	c := cascade(t, nil)
	w, h := start(t, c, map[string]any{"source": "page"})
	epoch := epochOf(t, w)
	status, text := answer(w, request(`{"value": 3}`, epoch))
	require.Equal(t, http.StatusNoContent, status, text)
	before := h.spent()

	usedUp, answeredUsedUp := slow(w, epoch)
	free, answeredFree := slow(w, epoch, with("CF-Connecting-IP", "192.0.3.77"))
	time.Sleep(50 * time.Millisecond)
	require.Empty(t, answeredUsedUp)
	require.Empty(t, answeredFree)
	require.Equal(t, before, h.spent())
	usedUp()
	free()
	require.Equal(t, http.StatusNoContent, <-answeredUsedUp)
	require.Equal(t, http.StatusNoContent, <-answeredFree)
	require.Equal(t, spent{tasks: 1, claims: 3, reports: 2}, h.spent())
}

// TestSlowBodiesOfANetwork: slow posts of one network leave capacity for posts of other networks.
func TestSlowBodiesOfANetwork(t *testing.T) {
	c := cascade(t, nil)
	w, _ := start(t, c, map[string]any{"source": "page"})
	epoch := epochOf(t, w)
	var rests []func()
	var answers []chan int
	for range 64 {
		rest, answered := slow(w, epoch)
		rests, answers = append(rests, rest), append(answers, answered)
	}
	status, text := answer(w, request(`{"value": 3}`, epoch))
	require.Equal(t, http.StatusServiceUnavailable, status, text)
	status, text = answer(w, request(`{"value": 3}`, epoch, with("CF-Connecting-IP", "192.0.3.77")))
	require.Equal(t, http.StatusNoContent, status, text)
	for i, rest := range rests {
		rest()
		require.Equal(t, http.StatusNoContent, <-answers[i])
	}
}

// TestRefusedReportsFetchNoTokensAhead: the worker fetches tokens ahead of the reports that need them. After the relay
// refused a report, it must fetch none ahead: reports that are refused would use up the quota of tokens.
func TestRefusedReportsFetchNoTokensAhead(t *testing.T) {
	c := withIssuer(t)
	w, h := start(t, c, map[string]any{"source": "backend", "backendKey": "BACKEND"})
	h.refuse = true
	for i := range 2 {
		status, text := answer(w, request(`{"value": 3}`, without("Origin"), with("Authorization", "Bearer "+secret)))
		require.Equal(t, http.StatusNoContent, status, text)
		require.Equal(t, spent{tasks: 1, keys: 1, tokens: i + 1}, h.spent())
	}
	require.Contains(t, strings.Join(h.log, " "), "dropped a report to task x: limit")
}

// TestPassingRequests: passing requests report their property, with "once" one report per network and epoch. If
// networks cannot be counted, none reports.
func TestPassingRequests(t *testing.T) {
	c := cascade(t, func(draft *task.Task) { draft.Input.Clip = true })
	w, h := start(t, c, map[string]any{"source": "request", "property": "latency", "once": true})
	for _, address := range []string{"192.0.2.1", "192.0.2.2", "192.0.3.1"} {
		w.Observe(edge.Observation{Latency: 3, Visitor: address})
		h.work.Wait()
	}
	require.Equal(t, spent{tasks: 1, claims: 3, reports: 2}, h.spent())
	require.Empty(t, h.log)
	h.fails = errors.New("no storage")
	w.Observe(edge.Observation{Latency: 3, Visitor: "192.0.4.1"})
	require.Equal(t, spent{tasks: 1, claims: 4, reports: 2}, h.spent())
	require.Contains(t, strings.Join(h.log, " "), "dropped a report to task x: internal")
}

// TestNoReportWithoutACount: the worker makes no report of a page if the host cannot count networks.
func TestNoReportWithoutACount(t *testing.T) {
	c := cascade(t, nil)
	w, h := start(t, c, map[string]any{"source": "page"})
	epoch := epochOf(t, w)
	h.fails = errors.New("no storage")
	status, text := answer(w, request(`{"value": 3}`, epoch))
	require.Equal(t, http.StatusInternalServerError, status)
	require.NotContains(t, text, "storage")
	require.Equal(t, spent{tasks: 1, claims: 1}, h.spent())
}
