//go:build workerd

// These tests run the built worker in the real runtime workerd. scripts/test.sh runs them with -tags workerd.
package edge_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"math"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/doona-dp/doona/internal/testing/fixture"
	"github.com/doona-dp/doona/internal/testing/relaytest"
	"github.com/doona-dp/doona/internal/testing/workerd"
	"github.com/doona-dp/doona/randomizer"
	"github.com/doona-dp/doona/wasm/edge"
	"github.com/doona-dp/doona/wire/problem"
	"github.com/doona-dp/doona/wire/task"
)

// built is the folder of the built worker, pages the folder of its page script, scriptTag the HTML that loads that
// script, and program the path of workerd.
var built, pages, scriptTag, program string

func TestMain(m *testing.M) { os.Exit(run(m)) }

func run(m *testing.M) int {
	dir, err := os.MkdirTemp("", "doona-edge")
	if err == nil {
		defer os.RemoveAll(dir)
		built, pages = filepath.Join(dir, "worker"), filepath.Join(dir, "page")
		program, err = workerd.Path(filepath.Join("..", ".."))
	}
	if err == nil {
		build := exec.Command("go", "run", "./www/build", "-edge", dir)
		build.Dir, build.Stderr = filepath.Join("..", ".."), os.Stderr
		var said []byte
		said, err = build.Output()
		scriptTag = string(said)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return m.Run()
}

// outside plays the relay and the site's server, at one address; the request's header Host tells them apart. It records
// every byte that arrives.
type outside struct {
	*http.Server
	address string
	relay   *fixture.SignedTask
	origin  http.Handler

	mu       sync.Mutex // guards the fields below
	captured bytes.Buffer
	received []report
	answers  []problem.Name // problems to answer the next reports with
	bundle   []byte         // sent instead of the task's bundle
}

// report is one report that arrived at the relay.
type report struct {
	head  string // the request's line and headers
	body  []byte
	lanes [][]task.Message
}

// newOutside signs a draft as a task with an open epoch, whose relay is the returned server.
func newOutside(t *testing.T, draft *task.Task) *outside {
	t.Helper()
	return newOutsideIn(t, draft, task.Epochs{Start: uint64(time.Now().Unix()) - 60, Length: 3600, Count: 1})
}

func newOutsideIn(t *testing.T, draft *task.Task, epochs task.Epochs) *outside {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	o := &outside{address: listener.Addr().String(), origin: http.NotFoundHandler()}
	o.relay, err = fixture.Sign(draft, []string{"http://relay.example", "https://second.example"}, epochs)
	require.NoError(t, err)
	o.bundle, err = o.relay.Bundle.Bytes()
	require.NoError(t, err)
	mux := http.NewServeMux()
	mux.HandleFunc("GET relay.example/v1/tasks/{id}/keys",
		func(w http.ResponseWriter, _ *http.Request) { w.Write(o.bundle) })
	mux.HandleFunc("POST relay.example/v1/tasks/{id}/epochs/{epoch}/reports", o.receive)
	mux.HandleFunc(site+"/", func(w http.ResponseWriter, r *http.Request) { o.origin.ServeHTTP(w, r) })
	o.Server = &http.Server{Handler: mux}
	go o.Serve(recorder{listener, o})
	t.Cleanup(func() { o.Close() })
	return o
}

// recorder is a listener that records the bytes of its connections.
type recorder struct {
	net.Listener
	o *outside
}

func (r recorder) Accept() (net.Conn, error) {
	conn, err := r.Listener.Accept()
	return recorded{conn, r.o}, err
}

type recorded struct {
	net.Conn
	o *outside
}

func (c recorded) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	c.o.mu.Lock()
	defer c.o.mu.Unlock()
	c.o.captured.Write(p[:n])
	return n, err
}

func (o *outside) receive(w http.ResponseWriter, req *http.Request) {
	head := fmt.Sprint(req.Method, req.URL, req.Proto, req.Header, req.ContentLength, req.TransferEncoding)
	body, err := io.ReadAll(req.Body)
	if err != nil {
		problem.New(problem.Malformed, "%v", err).Write(w)
		return
	}
	epoch, err := strconv.ParseUint(req.PathValue("epoch"), 10, 64)
	if err != nil {
		problem.New(problem.NotFound, "%v", err).Write(w)
		return
	}
	lanes, err := o.relay.Open(epoch, body)
	if err != nil {
		problem.New(problem.DoesNotOpen, "%v", err).Write(w)
		return
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	o.received = append(o.received, report{head, body, lanes})
	if len(o.answers) > 0 {
		name := o.answers[0]
		o.answers = o.answers[1:]
		if name != "" {
			problem.New(name, "as the test asked").Write(w)
			return
		}
	}
	w.WriteHeader(http.StatusCreated)
}

// reports waits until n reports have arrived and returns them.
func (o *outside) reports(t *testing.T, n int) []report {
	t.Helper()
	var got []report
	require.Eventually(t, func() bool {
		o.mu.Lock()
		defer o.mu.Unlock()
		got = append([]report(nil), o.received...)
		return len(got) >= n
	}, 30*time.Second, 5*time.Millisecond)
	require.Len(t, got, n)
	return got
}

func (o *outside) capture() []byte {
	o.mu.Lock()
	defer o.mu.Unlock()
	return bytes.Clone(o.captured.Bytes())
}

// entry returns the configuration of the server's task, with changes. Without a source in changes, it is for a backend.
func (o *outside) entry(changes map[string]any) map[string]any {
	e := map[string]any{"task": "http://relay.example" + o.relay.Path(), "owner": o.relay.OwnerText(), "maxEpsilon": 1,
		"maxDelta": 1}
	for key, value := range changes {
		e[key] = value
	}
	return sourced(e)
}

// sourced adds the field source if it is missing: "request" if the task has a property, else "backend".
func sourced(e map[string]any) map[string]any {
	switch {
	case e["source"] != nil:
	case e["property"] != nil:
		e["source"] = "request"
	default:
		e["source"], e["backendKey"] = "backend", "BACKEND"
	}
	return e
}

// start runs the worker with a value of the variable DOONA.
func (o *outside) start(t *testing.T, doona any, objects ...workerd.Object) *workerd.Process {
	t.Helper()
	vars := map[string]any{"BACKEND": secret}
	if doona != nil {
		vars["DOONA"] = doona
	}
	return o.startWith(t, vars, objects...)
}

func (o *outside) startWith(t *testing.T, vars map[string]any, objects ...workerd.Object) *workerd.Process {
	t.Helper()
	p, err := workerd.Start(context.Background(), program,
		workerd.Options{Dir: built, Entry: "entry.mjs", Outbound: o.address, Vars: vars, Objects: objects})
	require.NoError(t, err)
	t.Cleanup(func() {
		p.Close()
		if t.Failed() {
			t.Log(p.Log())
		}
	})
	return p
}

// send sends a request as the site's backend, modified by change.
func send(t *testing.T, p *workerd.Process, method, path, body string, change func(*http.Request)) (int, string,
	http.Header) {
	t.Helper()
	req, err := http.NewRequest(method, p.URL+path, strings.NewReader(body))
	require.NoError(t, err)
	req.Host = site
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Authorization", "Bearer "+secret)
	if change != nil {
		change(req)
	}
	resp, err := http.DefaultTransport.RoundTrip(req)
	require.NoError(t, err)
	defer resp.Body.Close()
	answer, err := io.ReadAll(resp.Body)
	require.NoError(t, err)
	return resp.StatusCode, string(answer), resp.Header
}

func post(t *testing.T, p *workerd.Process, body string) (int, string) {
	t.Helper()
	status, answer, _ := send(t, p, http.MethodPost, "/doona/x", body, nil)
	return status, answer
}

// only returns a configuration with one task, named x, and no delay.
func only(entry map[string]any) map[string]any {
	return map[string]any{"tasks": map[string]any{"x": entry}, "delay": 0}
}

// truthful returns a draft with 300 categories whose reports equal the value, except for one in a million.
func truthful() *task.Task { return fixture.NearlyTruthful(fixture.Draft(task.Histogram, 300)) }

// category returns the category in a report of a truthful task.
func category(t *testing.T, r report) int {
	t.Helper()
	require.Len(t, r.lanes, 1)
	require.Len(t, r.lanes[0], 1)
	m := r.lanes[0][0]
	require.False(t, m.Cover)
	value := 0
	for _, b := range m.Body {
		value = value<<8 | int(b)
	}
	return value
}

// requireValues compares the values that arrived with those sent and allows one difference. A report is noise with
// probability 2⁻²⁰, so two differences in 1000 reports have probability below 10⁻⁶.
func requireValues(t *testing.T, sent []int, got []report) {
	t.Helper()
	count := map[int]int{}
	for _, v := range sent {
		count[v]++
	}
	missing := len(sent)
	for _, r := range got {
		if v := category(t, r); count[v] > 0 {
			count[v]--
			missing--
		}
	}
	require.Len(t, got, len(sent))
	require.LessOrEqual(t, missing, 1, "values that were sent and did not arrive: %v", count)
}

func body(v any) string { return fmt.Sprintf(`{"value": %v}`, v) }

func TestPostedValuesArrive(t *testing.T) {
	o := newOutside(t, truthful())
	p := o.start(t, only(o.entry(nil)))
	sent := []int{0, 7, 150, 299}
	for _, v := range sent {
		status, answer := post(t, p, body(v))
		require.Equal(t, http.StatusNoContent, status, answer)
		require.Empty(t, answer)
	}
	requireValues(t, sent, o.reports(t, len(sent)))
	require.Empty(t, p.Log())
	require.Equal(t, 1, strings.Count(string(o.capture()), "GET /v1/tasks/"), "the worker must fetch the task once")
}

func TestRequestsThatAreRefused(t *testing.T) {
	o := newOutside(t, truthful())
	p := o.start(t, map[string]any{"delay": 0, "tasks": map[string]any{
		"x":       o.entry(nil),
		"page":    o.entry(map[string]any{"source": "page", "origins": []string{"https://app.example"}}),
		"country": o.entry(map[string]any{"property": "country", "categories": []string{"AU"}}),
	}}, visitors)
	own := "http://" + site
	for _, c := range []struct {
		name, method, path, body string
		change                   func(*http.Request)
		status                   int
		problem                  string
	}{
		{"not a number", "POST", "/doona/x", body("NaN"), nil, 400, "invalid-value"},
		{"infinite", "POST", "/doona/x", body("1e999"), nil, 400, "invalid-value"},
		{"text", "POST", "/doona/x", body(`"3"`), nil, 400, "invalid-value"},
		{"nothing", "POST", "/doona/x", "", nil, 400, "invalid-value"},
		{"too many", "POST", "/doona/x", body("[1, 2]"), nil, 400, "invalid-value"},
		{"no category", "POST", "/doona/x", body("300"), nil, 400, "invalid-value"},
		{"between categories", "POST", "/doona/x", body("1.5"), nil, 400, "invalid-value"},
		{"large", "POST", "/doona/x", body(strings.Repeat("1", 96)), nil, 413, "too-large"},
		{"larger", "POST", "/doona/x", body(strings.Repeat("1", 1<<20)), nil, 413, "too-large"},
		{"method", "GET", "/doona/x", "", nil, 405, "not-found"},
		{"preflight", "OPTIONS", "/doona/page", "", with("Origin", "http://evil.example"), 405, "not-found"},
		{"no such task", "POST", "/doona/y", body(1), nil, 404, "not-found"},
		{"no task", "POST", "/doona/", body(1), nil, 404, "not-found"},
		{"a property's task", "POST", "/doona/country", body(1), nil, 404, "not-found"},
		{"a backend's epoch", "POST", "/doona/x/epoch", "", nil, 404, "not-found"},
		{"another site's page", "POST", "/doona/page", body(1), with("Origin", "http://evil.example"), 403,
			"foreign-origin"},
		{"a program", "POST", "/doona/page", body(1), nil, 403, "foreign-origin"},
		{"a program asks for the epoch", "POST", "/doona/page/epoch", "", nil, 403, "foreign-origin"},
		{"a page without an epoch", "POST", "/doona/page", body(1), with("Origin", own), 409, "epoch-not-open"},
		{"a page that knows the secret", "POST", "/doona/x", body(1), with("Origin", own), 403, "foreign-origin"},
		{"a wrong secret", "POST", "/doona/x", body(1), with("Authorization", "Bearer "+secret+"x"), 403, "unauthorized"},
		{"no secret", "POST", "/doona/x", body(1), without("Authorization"), 403, "unauthorized"},
		{"a form", "POST", "/doona/x", body(1), with("Content-Type", "text/plain"), 415, "media-type"},
	} {
		t.Run(c.name, func(t *testing.T) {
			status, answer, head := send(t, p, c.method, c.path, c.body, c.change)
			require.Equal(t, c.status, status, answer)
			require.Equal(t, problem.ContentType, head.Get("Content-Type"))
			require.Contains(t, answer, `"urn:doona:error:`+c.problem+`"`)
			require.Empty(t, head.Get("Access-Control-Allow-Origin"))
		})
	}
	status, _, head := send(t, p, "OPTIONS", "/doona/page", "", with("Origin", "https://app.example"))
	require.Equal(t, http.StatusNoContent, status)
	require.Equal(t, "https://app.example", head.Get("Access-Control-Allow-Origin"))
	status, _, _ = send(t, p, "POST", "/doona/page", body(5), fromPage(t, p, "/doona/page", "192.0.2.1"))
	require.Equal(t, http.StatusNoContent, status)
	requireValues(t, []int{5}, o.reports(t, 1)) // the refused posts led to no report
	require.Empty(t, p.Log())
}

// visitors is the binding of the Durable Objects that count reports of networks.
var visitors = workerd.Object{Binding: "DOONA_VISITORS", Class: "Visitors"}

// fromPage returns a function that makes a request look like a page's post in the open epoch from an IP address.
func fromPage(t *testing.T, p *workerd.Process, path, address string) func(*http.Request) {
	t.Helper()
	change := func(r *http.Request) {
		r.Header.Del("Authorization")
		r.Header.Set("Origin", "http://"+site)
		r.Header.Set("CF-Connecting-IP", address)
	}
	status, text, _ := send(t, p, http.MethodPost, path+edge.EpochPath, "", change)
	require.Equal(t, http.StatusOK, status, text)
	var told struct{ Epoch string }
	require.NoError(t, json.Unmarshal([]byte(text), &told))
	return func(r *http.Request) {
		change(r)
		r.Header.Set(edge.EpochHeader, told.Epoch)
	}
}

// TestBadConfiguration: with an invalid configuration the worker accepts no value, and the site's own requests still
// pass.
func TestBadConfiguration(t *testing.T) {
	o := newOutside(t, truthful())
	o.origin = http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, "the page") })
	for name, c := range map[string]struct {
		config any
		field  string
	}{
		"none":      {nil, "DOONA"},
		"text":      {"nonsense", "DOONA"},
		"no tasks":  {map[string]any{}, "tasks"},
		"no owner":  {only(o.entry(map[string]any{"owner": ""})), "tasks.x.owner"},
		"no bound":  {only(o.entry(map[string]any{"maxEpsilon": 0})), "tasks.x.maxEpsilon"},
		"once":      {only(o.entry(map[string]any{"property": "latency", "once": true})), "tasks.x.once"},
		"no source": {only(o.entry(map[string]any{"source": "", "backendKey": ""})), "tasks.x.source"},
		"visitors":  {only(o.entry(map[string]any{"source": "page"})), "DOONA_VISITORS"},
		"secret":    {only(o.entry(map[string]any{"source": "backend", "backendKey": "NONE"})), "tasks.x.backendKey"},
		"unknown":   {only(o.entry(map[string]any{"propertie": "country"})), "propertie"},
		"too small": {only(o.entry(map[string]any{"maxEpsilon": 0.5})), "MaxEpsilon"},
		"categories": {map[string]any{"tasks": map[string]any{"x": o.entry(nil),
			"y": o.entry(map[string]any{"property": "country", "categories": []string{}})}}, "tasks.y.categories"},
	} {
		t.Run(name, func(t *testing.T) {
			p := o.start(t, c.config)
			for range 2 {
				status, answer := post(t, p, body(1))
				require.Equal(t, http.StatusInternalServerError, status)
				require.Contains(t, answer, `"urn:doona:error:configuration"`)
				require.Contains(t, answer, c.field)
			}
			status, answer, _ := send(t, p, "GET", "/", "", nil)
			require.Equal(t, http.StatusOK, status)
			require.Equal(t, "the page", answer)
			o.reports(t, 0)
		})
	}
}

// TestBadTasks: the worker makes no report for a task that differs from the configured one, or whose parameters do not
// prove the claimed (ε, δ).
func TestBadTasks(t *testing.T) {
	lie := truthful()
	lie.Claim = fixture.Draft(task.Histogram, 300).Claim // the claim of a draft that does protect values
	wide := newOutside(t, lie)
	other := newOutside(t, truthful())
	for name, c := range map[string]struct {
		o      *outside
		change map[string]any
		bundle func([]byte) []byte
		text   string
		status int
	}{
		"claim": {o: wide, text: "claim", status: 500},
		"another owner": {o: newOutside(t, truthful()), change: map[string]any{"owner": other.relay.OwnerText()},
			text: "owner"},
		"another task": {o: newOutside(t, truthful()), bundle: func([]byte) []byte { return other.bundle },
			text: "its id is"},
		"another id": {o: newOutside(t, truthful()),
			change: map[string]any{"task": "http://relay.example" + other.relay.Path()}, text: "its id is"},
		"tampered": {o: newOutside(t, truthful()), bundle: func(b []byte) []byte { b[40] ^= 1; return b },
			text: "couldn't"},
		"truncated": {o: newOutside(t, truthful()), bundle: func(b []byte) []byte { return b[:len(b)-1] },
			text: "couldn't"},
		"trailing": {o: newOutside(t, truthful()), bundle: func(b []byte) []byte { return append(b, 0) },
			text: "couldn't"},
	} {
		t.Run(name, func(t *testing.T) {
			if c.bundle != nil {
				c.o.bundle = c.bundle(bytes.Clone(c.o.bundle))
			}
			if c.status == 0 {
				c.status = http.StatusBadGateway
			}
			p := c.o.start(t, only(c.o.entry(c.change)))
			for range 3 {
				status, answer := post(t, p, body(1))
				require.Equal(t, c.status, status, answer)
				require.Contains(t, answer, c.text)
			}
			c.o.reports(t, 0)
			require.Equal(t, 1, strings.Count(string(c.o.capture()), "GET /v1/tasks/"),
				"the worker fetched the task again without waiting")
		})
	}
}

func TestNoRelay(t *testing.T) {
	o := newOutside(t, truthful())
	p := o.start(t, only(o.entry(nil)))
	o.Close()
	status, answer := post(t, p, body(1))
	require.Equal(t, http.StatusBadGateway, status)
	require.Contains(t, answer, `"urn:doona:error:task-unavailable"`)
}

func TestEpochThatIsNotOpen(t *testing.T) {
	for _, epochs := range []task.Epochs{{Start: 1 << 39, Length: 60, Count: 1}, {Start: 1, Length: 60, Count: 1}} {
		o := newOutsideIn(t, truthful(), epochs)
		p := o.start(t, only(o.entry(nil)))
		status, answer := post(t, p, body(1))
		require.Equal(t, http.StatusConflict, status)
		require.Contains(t, answer, `"urn:doona:error:epoch-not-open"`)
		o.reports(t, 0)
	}
}

// TestDelivery: a retry sends the same bytes. The worker drops an undeliverable report and logs that, without the
// value.
func TestDelivery(t *testing.T) {
	o := newOutside(t, truthful())
	p := o.start(t, only(o.entry(nil)))
	o.answers = []problem.Name{problem.Overloaded, problem.Internal, ""}
	post(t, p, body(17))
	got := o.reports(t, 3)
	require.Equal(t, got[0].body, got[1].body)
	require.Equal(t, got[0].body, got[2].body)
	require.Empty(t, p.Log())

	o.answers = []problem.Name{problem.EpochClosed, problem.Replayed, problem.Limit}
	for range 3 {
		post(t, p, body(17))
	}
	o.reports(t, 6)
	require.Eventually(t, func() bool { return strings.Count(p.Log(), "\n") >= 2 }, 5*time.Second, 5*time.Millisecond)
	require.Contains(t, p.Log(), "doona: dropped a report to task x: epoch-closed")
	require.Contains(t, p.Log(), "doona: dropped a report to task x: limit")
	require.Contains(t, p.Log(), "(2 dropped)")
	require.NotContains(t, p.Log(), "replayed")
	require.NotContains(t, p.Log(), "17")
}

// TestRequestsThatOverlap: one instance serves overlapping requests with slow bodies, pauses and slow answers. A
// request that waited for another or for a Go timer would end in status 500 or lose its report.
func TestRequestsThatOverlap(t *testing.T) {
	o := newOutside(t, truthful())
	config := only(o.entry(nil))
	config["delay"] = 2
	p := o.start(t, config)
	var sent []int
	var wait sync.WaitGroup
	statuses := make([]int, 64)
	for i := range statuses {
		sent = append(sent, i)
		wait.Go(func() {
			reader, writer := io.Pipe()
			go func() {
				text := body(i)
				io.WriteString(writer, text[:5])
				time.Sleep(time.Duration(i%8) * 20 * time.Millisecond)
				io.WriteString(writer, text[5:])
				writer.Close()
			}()
			req, err := http.NewRequest(http.MethodPost, p.URL+"/doona/x", reader)
			if err != nil {
				return
			}
			req.Header.Set("Content-Type", "application/json")
			req.Header.Set("Authorization", "Bearer "+secret)
			resp, err := http.DefaultTransport.RoundTrip(req)
			if err != nil {
				return
			}
			resp.Body.Close()
			statuses[i] = resp.StatusCode
		})
	}
	wait.Wait()
	for _, status := range statuses {
		require.Equal(t, http.StatusNoContent, status)
	}
	requireValues(t, sent, o.reports(t, len(sent)))
	require.Empty(t, p.Log())
}

// quickly posts a value as the backend does. Goroutines may call it, as it returns errors.
func quickly(p *workerd.Process, body string) (int, error) {
	req, err := http.NewRequest(http.MethodPost, p.URL+"/doona/x", strings.NewReader(body))
	if err != nil {
		return 0, err
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Authorization", "Bearer "+secret)
	resp, err := http.DefaultTransport.RoundTrip(req)
	if err != nil {
		return 0, err
	}
	defer resp.Body.Close()
	_, err = io.Copy(io.Discard, resp.Body)
	return resp.StatusCode, err
}

// TestOrderIsNotKept: the worker sends reports in random order. The probability that 40 reports keep the order of their
// requests is 1/40!.
func TestOrderIsNotKept(t *testing.T) {
	o := newOutside(t, truthful())
	config := only(o.entry(nil))
	config["delay"] = 2
	p := o.start(t, config)
	var sent []int
	for i := range 40 {
		sent = append(sent, i)
		post(t, p, body(i))
	}
	got := o.reports(t, len(sent))
	requireValues(t, sent, got)
	inversions := 0
	for i := range got {
		for j := range i {
			if category(t, got[j]) > category(t, got[i]) {
				inversions++
			}
		}
	}
	require.NotZero(t, inversions)
}

// TestNothingOfTheValueLeaves searches all that the worker sends or prints for posted values, as text and as doubles.
// What goes to the relay is the same for every value, except for sealed bytes of one size.
func TestNothingOfTheValueLeaves(t *testing.T) {
	draft := fixture.Draft(task.Mean, 0)
	draft.Input.Clip = true
	o := newOutside(t, draft)
	p := o.start(t, only(o.entry(nil)))
	var values []float64
	for range 100 {
		values = append(values, rand.Float64()) // a text of 16 digits can be found
	}
	values = append(values, 0, 1, -1e300, 1e300)
	for _, v := range values {
		status, answer := post(t, p, fmt.Sprintf(`{"value": %.17g}`, v))
		require.Equal(t, http.StatusNoContent, status, answer)
	}
	post(t, p, `{"value": [0.31415926535, 0.2718281828]}`) // the worker refuses it and must not quote it
	o.reports(t, len(values))
	everything := append(o.capture(), p.Log()...)
	for _, v := range append(values[:100:100], 0.31415926535, 0.2718281828) {
		text := strconv.FormatFloat(v, 'g', -1, 64)
		require.NotContains(t, string(everything), text[2:12])
		for _, order := range []binary.AppendByteOrder{binary.LittleEndian, binary.BigEndian} {
			raw := order.AppendUint64(nil, math.Float64bits(v))
			require.False(t, bytes.Contains(everything, raw))
		}
	}
	require.Empty(t, p.Log())
	first := o.reports(t, len(values))[0]
	for _, r := range o.reports(t, len(values)) {
		require.Equal(t, first.head, r.head)
		require.Len(t, r.body, len(first.body))
	}
}

type seen struct {
	Method, Path, Body string
	Header             http.Header
}

// TestPropertiesOfPassingRequests: a request and its answer pass the worker unchanged. Then the worker reports the
// observed properties to each task that asks for one.
func TestPropertiesOfPassingRequests(t *testing.T) {
	o := newOutside(t, fixture.NearlyTruthful(fixture.Draft(task.Histogram, 6)))
	var mu sync.Mutex
	var arrived []seen
	packed := []byte("\x1f\x8b\x08\x00 not really gzip")
	o.origin = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		text, _ := io.ReadAll(r.Body)
		mu.Lock()
		arrived = append(arrived, seen{r.Method, r.URL.RequestURI(), string(text), r.Header})
		mu.Unlock()
		w.Header()["Set-Cookie"] = []string{"a=1, b", "c=2"}
		w.Header().Set("X-Large", strings.Repeat("x", 4000))
		w.Header().Set("Content-Type", "application/octet-stream")
		w.Header().Set("CF-Cache-Status", r.Header.Get("Cache-Wanted"))
		w.WriteHeader(http.StatusTeapot)
		w.Write(packed)
	})
	p := o.start(t, map[string]any{"delay": 0, "tasks": map[string]any{
		"country": o.entry(map[string]any{"property": "country", "categories": []string{"AU", "NZ", "DE", "FR", "US"}}),
		"cache": o.entry(map[string]any{"property": "cache",
			"categories": []string{"MISS", "HIT", "EXPIRED", "STALE", "DYNAMIC"}}),
		"status": o.entry(map[string]any{"property": "status", "categories": []string{"1xx", "2xx", "3xx", "4xx", "5xx"}}),
		"posted": o.entry(nil),
	}})
	change := func(r *http.Request) {
		r.Header = http.Header{"Content-Type": {"text/csv"}, "Cookie": {"secret=1; b=2"}, "Cf-Ipcountry": {"NZ"},
			"Cache-Wanted":  {"HIT"},
			"Authorization": {"Basic eA=="}, "X-Twice": {"1", "2"}, "Accept-Encoding": {"identity"},
			"User-Agent": {"test"}}
	}
	status, answer, head := send(t, p, "PUT", "/a/b%20c?d=e&f", "the body", change)
	require.Equal(t, http.StatusTeapot, status)
	require.Equal(t, string(packed), answer)
	require.Equal(t, []string{"a=1, b", "c=2"}, head["Set-Cookie"])
	require.Equal(t, strings.Repeat("x", 4000), head.Get("X-Large"))

	// The SDK's files may be in the folder /doona/, which is also the prefix of posts.
	for _, method := range []string{"GET", "HEAD"} {
		status, _, _ = send(t, p, method, "/doona/doona.global.js", "", change)
		require.Equal(t, http.StatusTeapot, status)
	}
	status, _, _ = send(t, p, "POST", "/doona/doona.global.js", "", change)
	require.Equal(t, http.StatusNotFound, status)
	submission := "\x92\x01\xc5\x03\xe2" + strings.Repeat("\xff\x00", 497) // A page's, of a set; it is not for the worker.
	path := "/v1/sets/" + strings.Repeat("ab", 32) + "/epochs/7/reports"
	status, _, _ = send(t, p, "POST", path, submission, change)
	require.Equal(t, http.StatusTeapot, status)
	o.reports(t, 12)
	mu.Lock()
	require.Equal(t, "/doona/doona.global.js", arrived[2].Path)
	require.Len(t, arrived, 4)
	require.Equal(t, path, arrived[3].Path)
	require.Equal(t, submission, arrived[3].Body)
	arrived = arrived[:1]
	mu.Unlock()

	// The expected categories: NZ is 1, HIT is 1, 4xx is 3.
	requireValues(t, []int{1, 1, 3, 1, 1, 3, 1, 1, 3, 1, 1, 3}, o.reports(t, 12))
	got := arrived[0]
	require.Equal(t, "PUT", got.Method)
	require.Equal(t, "/a/b%20c?d=e&f", got.Path)
	require.Equal(t, "the body", got.Body)
	expected := &http.Request{}
	change(expected)
	for name, values := range expected.Header {
		require.Equal(t, strings.Join(values, ", "), strings.Join(got.Header[name], ", "), name)
		delete(got.Header, name)
	}
	delete(got.Header, "Content-Length")
	require.Empty(t, got.Header, "the worker must not add headers")

	for _, r := range o.reports(t, 12) {
		require.NotContains(t, r.head, "NZ")
		require.NotContains(t, r.head, "secret")
	}

	// If the site's server gives no answer, the visitor must see that, and each task must still get a value.
	o.origin = http.HandlerFunc(func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) })
	req, err := http.NewRequest(http.MethodGet, p.URL, nil)
	require.NoError(t, err)
	req.Host = site
	once := &http.Transport{DisableKeepAlives: true} // does not retry
	_, err = once.RoundTrip(req)
	require.Error(t, err, "the visitor's connection must end without an answer")
	requireValues(t, []int{1, 1, 3, 1, 1, 3, 1, 1, 3, 1, 1, 3, 5, 5, 5}, o.reports(t, 15))
}

// TestLatency: a latency is the milliseconds until the headers of the site's answer. The histogram has 300 bins over
// [0, 3) s, so a request that took a second is in bin 99 or above.
func TestLatency(t *testing.T) {
	draft := fixture.Draft(task.Histogram, 300)
	draft.Input.Labels, draft.Input.Clip, draft.Input.Hi = false, true, randomizer.NewRational(3000, 1)
	o := newOutside(t, fixture.NearlyTruthful(draft))
	o.origin = http.HandlerFunc(func(http.ResponseWriter, *http.Request) { time.Sleep(time.Second) })
	p := o.start(t, only(o.entry(map[string]any{"property": "latency"})))
	send(t, p, "GET", "/", "", nil)
	require.GreaterOrEqual(t, category(t, o.reports(t, 1)[0]), 99, "a second is 100 bins of 10 ms")
}

// TestSample: "sample": 0.5 reports about half of 200 requests. Their number is binomial and outside 61 to 139 with
// probability below 10⁻⁶.
func TestSample(t *testing.T) {
	o := newOutside(t, truthful())
	p := o.start(t, only(o.entry(map[string]any{"property": "country", "sample": 0.5,
		"categories": manyCountries(299)})))
	for range 200 {
		send(t, p, "GET", "/", "", nil)
	}
	time.Sleep(time.Second)
	n := 0
	for deadline := time.Now().Add(10 * time.Second); time.Now().Before(deadline); time.Sleep(500 * time.Millisecond) {
		o.mu.Lock()
		now := len(o.received)
		o.mu.Unlock()
		if now == n && n > 0 {
			break
		}
		n = now
	}
	require.Greater(t, n, 60)
	require.Less(t, n, 140)
}

// manyCountries returns n codes of the form of ISO 3166.
func manyCountries(n int) (codes []string) {
	for i := range n {
		codes = append(codes, string([]byte{'A' + byte(i/26), 'A' + byte(i%26)}))
	}
	return codes
}

// deployment connects a worker to a cascade through a proxy that records the worker's requests.
func deployment(t *testing.T) (*outside, *requests) {
	t.Helper()
	sent := &requests{}
	onward := httptest.NewServer(&httputil.ReverseProxy{Rewrite: func(r *httputil.ProxyRequest) {
		sent.add(r.In)
		r.Out.URL.Scheme, r.Out.URL.Host = "http", r.In.Host
	}})
	t.Cleanup(onward.Close)
	return &outside{address: onward.Listener.Addr().String()}, sent
}

// requests records the requests that a worker sent.
type requests struct {
	mu   sync.Mutex
	list []seen
}

func (r *requests) add(req *http.Request) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.list = append(r.list, seen{Method: req.Method, Path: req.URL.Path, Header: req.Header.Clone()})
}

// headers returns the values of one header, over all requests whose path ends in suffix.
func (r *requests) headers(suffix, name string) (all []string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, q := range r.list {
		if strings.HasSuffix(q.Path, suffix) {
			all = append(all, q.Header.Get(name))
		}
	}
	return all
}

func sealed(t *testing.T, c *relaytest.Cascade) func() bool {
	return func() bool { return c.Status(t, 0).Epochs[0].Batches == 1 }
}

// TestRealRelay: a real relay accepts the worker's reports and seals a batch of them.
func TestRealRelay(t *testing.T) {
	c := cascade(t, nil)
	o, _ := deployment(t)
	p := o.start(t, only(sourced(map[string]any{"task": c.TaskURL(0), "owner": c.Owner, "maxEpsilon": 4})))
	for i := range 20 {
		status, answer := post(t, p, body(i/2))
		require.Equal(t, http.StatusNoContent, status, answer)
	}
	require.Eventually(t, sealed(t, c), 20*time.Second, 20*time.Millisecond)
	require.Empty(t, p.Log())
}

// TestTokens: each report spends its own token from a real issuer. Each token request names a new account that
// identifies nobody.
func TestTokens(t *testing.T) {
	c := withIssuer(t)
	o, sent := deployment(t)
	entry := sourced(map[string]any{"task": c.TaskURL(0), "owner": c.Owner, "maxEpsilon": 4, "issuerKey": "KEY"})

	p := o.startWith(t, map[string]any{"DOONA": only(entry), "BACKEND": secret})
	status, answer := post(t, p, body(1))
	require.Equal(t, http.StatusInternalServerError, status)
	require.Contains(t, answer, "tasks.x.issuerKey")

	p = o.startWith(t, map[string]any{"DOONA": only(entry), "BACKEND": secret, "KEY": strings.Repeat("x", 40)})
	status, answer = post(t, p, body(1))
	require.Equal(t, http.StatusNoContent, status, answer)
	require.Eventually(t, func() bool { return strings.Contains(p.Log(), "unauthorized") }, 10*time.Second,
		10*time.Millisecond)
	require.Empty(t, sent.headers("/reports", "Authorization"))
	require.NotContains(t, p.Log(), "xxx", "the log contains the API key")
	before := len(sent.headers("/token-request", "Doona-Account"))

	p = o.startWith(t, map[string]any{"DOONA": only(entry), "BACKEND": secret, "KEY": apiKey})
	for i := range 20 {
		status, answer, _ := send(t, p, "POST", "/doona/x", body(i/2), with("CF-Connecting-IP", "192.0.2.77"))
		require.Equal(t, http.StatusNoContent, status, answer)
	}
	require.Eventually(t, sealed(t, c), 20*time.Second, 20*time.Millisecond)
	spent := sent.headers("/reports", "Authorization")
	require.Len(t, spent, 20)
	slices.Sort(spent)
	require.Len(t, slices.Compact(spent), 20)
	accounts := sent.headers("/token-request", "Doona-Account")[before:]
	slices.Sort(accounts)
	require.Len(t, slices.Compact(accounts), len(accounts), "two token requests name the same account")
	require.Greater(t, len(accounts), 20, "the worker must also request tokens for its stock")
	require.LessOrEqual(t, len(accounts), 24)
	require.Empty(t, strings.Join(sent.headers("", "Origin"), ""))
	for _, name := range []string{"Authorization", "Cf-Connecting-Ip", "X-Forwarded-For", "Doona-Account", "Cookie"} {
		require.NotContains(t, strings.Join(sent.headers("", name), " "), "192.0.2.77")
		require.NotContains(t, strings.Join(sent.headers("", name), " "), secret, "the worker must not pass on the backend's secret")
		require.NotContains(t, strings.Join(sent.headers("/reports", name), " "), apiKey,
			"the relay must not get the API key")
	}
	require.Empty(t, p.Log())
}

// TestStrangers: with a real relay and issuer, 100 posts without Origin and 100 with a guessed secret lead to no report
// and no token. With a forged Origin, one network gets its quota: here one report, which costs at most two tokens.
func TestStrangers(t *testing.T) {
	c := withIssuer(t)
	o, sent := deployment(t)
	of := map[string]any{"task": c.TaskURL(0), "owner": c.Owner, "maxEpsilon": 4, "issuerKey": "KEY"}
	page, backend := maps.Clone(of), maps.Clone(of)
	page["source"] = "page"
	p := o.startWith(t, map[string]any{"BACKEND": secret, "KEY": apiKey, "DOONA": map[string]any{"delay": 0,
		"tasks": map[string]any{"page": page, "x": sourced(backend)}}}, visitors)
	for i := range 100 {
		for _, path := range []string{"/doona/page", "/doona/page/epoch", "/doona/x"} {
			status, answer, _ := send(t, p, "POST", path, body(i%10), func(r *http.Request) {
				r.Header.Set("Authorization", fmt.Sprint("Bearer ", secret, i))
				r.Header.Set("CF-Connecting-IP", fmt.Sprintf("192.0.%d.1", i))
			})
			require.Equal(t, http.StatusForbidden, status, answer)
		}
	}
	require.Empty(t, sent.headers("", "Host"), "the worker must contact nobody for a refused post")

	forged := fromPage(t, p, "/doona/page", "198.51.100.1")
	for i := range 100 {
		status, answer, _ := send(t, p, "POST", "/doona/page", body(i%10), func(r *http.Request) {
			forged(r)
			r.Header.Set("CF-Connecting-IP", fmt.Sprintf("198.51.100.%d", i))
		})
		require.Equal(t, http.StatusNoContent, status, answer)
	}
	require.Eventually(t, func() bool { return len(sent.headers("/token-request", "Host")) == 2 }, 10*time.Second,
		10*time.Millisecond)
	time.Sleep(100 * time.Millisecond)
	require.Len(t, sent.headers("/reports", "Host"), 1)
	require.Len(t, sent.headers("/token-request", "Host"), 2)
	require.Empty(t, strings.Join(sent.headers("", "Origin"), ""), "the worker must not pass on the page's Origin")
	require.Empty(t, p.Log())
}

// patient returns a copy of the built worker that waits this many milliseconds for a body.
func patient(t *testing.T, milliseconds string) (dir string) {
	t.Helper()
	dir = t.TempDir()
	require.NoError(t, os.CopyFS(dir, os.DirFS(built)))
	entry := filepath.Join(dir, "entry.mjs")
	text, err := os.ReadFile(entry)
	require.NoError(t, err)
	changed := strings.Replace(string(text), "bodyPatience = 10_000;", "bodyPatience = "+milliseconds+";", 1)
	require.NotEqual(t, string(text), changed)
	require.NoError(t, os.WriteFile(entry, []byte(changed), 0o600))
	return dir
}

// TestHalfABodyInWorkerd: the worker answers half a body only when the time for a body is over. The answer is the same
// whether or not the network's quota is used up, and no report is made.
func TestHalfABodyInWorkerd(t *testing.T) {
	o := newOutside(t, truthful())
	p, err := workerd.Start(context.Background(), program, workerd.Options{Dir: patient(t, "1_000"), Entry: "entry.mjs",
		Outbound: o.address, Vars: map[string]any{"DOONA": only(o.entry(map[string]any{"source": "page"}))},
		Objects: []workerd.Object{visitors}})
	require.NoError(t, err)
	t.Cleanup(func() { p.Close() })
	forged := fromPage(t, p, "/doona/x", "192.0.2.1")
	status, answer, _ := send(t, p, "POST", "/doona/x", body(1), forged)
	require.Equal(t, http.StatusNoContent, status, answer)

	half := func(address string) string {
		req, err := http.NewRequest("POST", p.URL+"/doona/x", io.MultiReader(strings.NewReader(`{"val`), stalled{t}))
		require.NoError(t, err)
		forged(req)
		req.Host, req.ContentLength = site, 12
		req.Header.Set("Content-Type", "application/json")
		req.Header.Set("CF-Connecting-IP", address)
		began := time.Now()
		resp, err := http.DefaultTransport.RoundTrip(req)
		require.NoError(t, err)
		defer resp.Body.Close()
		require.Greater(t, time.Since(began), 900*time.Millisecond)
		text, err := io.ReadAll(resp.Body)
		require.NoError(t, err)
		require.Equal(t, http.StatusBadRequest, resp.StatusCode, string(text))
		return string(text)
	}
	require.Equal(t, half("192.0.2.1"), half("192.0.3.1"))

	status, answer, _ = send(t, p, "POST", "/doona/x", body(2), func(r *http.Request) {
		forged(r)
		r.Header.Set("CF-Connecting-IP", "192.0.3.1")
	})
	require.Equal(t, http.StatusNoContent, status, answer)
	requireValues(t, []int{1, 2}, o.reports(t, 2)) // the two halves of a body did not count for the quota
	require.Empty(t, p.Log())
}

// stalled is a body that gives no byte until the test ends.
type stalled struct{ t *testing.T }

func (s stalled) Read([]byte) (int, error) {
	<-s.t.Context().Done()
	return 0, io.ErrUnexpectedEOF
}

// TestReportsOfANetwork: the quota per epoch applies to an IPv4 /24 and an IPv6 /48. Pages and passing requests that
// report to the same task share it.
func TestReportsOfANetwork(t *testing.T) {
	o := newOutside(t, truthful())
	p := o.start(t, map[string]any{"delay": 0, "tasks": map[string]any{
		"x":       o.entry(map[string]any{"source": "page", "quota": 2}),
		"country": o.entry(map[string]any{"property": "country", "categories": manyCountries(299), "once": true}),
	}}, visitors)
	post := fromPage(t, p, "/doona/x", "")
	var sent []int
	for i, v := range []struct {
		address string
		taken   bool
	}{
		{"192.0.2.1", true}, {"192.0.2.1", true}, {"192.0.2.2", false}, {"192.0.3.1", true}, {"192.0.2.1", false},
		{"2001:db8:1::1", true}, {"2001:db8:1:2:3:4:5:6", true}, {"2001:0db8:0001::9", false},
		{"2001:db8:2::1", true}, {"2001:db8::1", true}, {"::1", true}, {"0:0:0:1::", true}, {"0:0:0:1::", false},
	} {
		if v.taken {
			sent = append(sent, i)
		}
		status, answer, _ := send(t, p, "POST", "/doona/x", body(i), func(r *http.Request) {
			post(r)
			r.Header.Set("CF-Connecting-IP", v.address)
		})
		require.Equal(t, http.StatusNoContent, status, "%s %s", answer, p.Log())
	}
	o.reports(t, len(sent))
	require.NotContains(t, string(o.capture()), "192.0.2")
	for _, address := range []string{"192.0.2.1", "192.0.3.1", "203.0.113.1", "203.0.113.2"} {
		send(t, p, "GET", "/", "", with("CF-Connecting-IP", address))
	}
	sent = append(sent, 299) // of 203.0.113.0/24, the only network without a page's report
	status, answer, _ := send(t, p, "POST", "/doona/x", body(1), post)
	require.Equal(t, http.StatusInternalServerError, status)
	require.Contains(t, answer, "no address")
	time.Sleep(100 * time.Millisecond)
	requireValues(t, sent, o.reports(t, len(sent)))
	require.Empty(t, p.Log())
}
