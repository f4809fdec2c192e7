//go:build workerd

// These tests run the built worker in real workerd; www/test.sh runs them with -tags workerd.
package edge_test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/doona-dp/doona/onion"
	"github.com/doona-dp/doona/relay/problem"
	"github.com/doona-dp/doona/task"
	"github.com/doona-dp/doona/wasm"
	"github.com/doona-dp/doona/wasm/edge/workerd"
	"github.com/doona-dp/doona/wasm/fixture"
)

// built is the worker's folder; program is workerd.
var built, program string

func TestMain(m *testing.M) { os.Exit(run(m)) }

func run(m *testing.M) int {
	var err error
	if program, err = workerd.Path(filepath.Join("..", "..")); err == nil {
		built, err = os.MkdirTemp("", "doona-edge")
	}
	if err == nil {
		defer os.RemoveAll(built)
		err = wasm.BuildEdge(context.Background(), built)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return m.Run()
}

// outside is all that a worker can reach: the relay and the site's origin, at one address, told
// apart by the Host of the request. It keeps every byte that arrives.
type outside struct {
	*http.Server
	address string
	relay   *fixture.Task
	origin  http.Handler

	mu       sync.Mutex // guards what follows
	captured bytes.Buffer
	received []report
	answers  []problem.Name // to the next submissions
	bundle   []byte         // served instead of the task's
}

// report is one submission as it arrived.
type report struct {
	body  []byte
	lanes [][]onion.Message
	at    time.Time
}

const site = "site.example"

// newOutside signs a draft for a relay of its own and serves it.
func newOutside(t *testing.T, draft *task.Task) *outside {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	o := &outside{address: listener.Addr().String(), origin: http.NotFoundHandler()}
	epochs := task.Epochs{Start: uint64(time.Now().Unix()) - 60, Length: 3600, Count: 1}
	o.relay, err = fixture.Sign(draft, []string{"http://relay.example", "https://second.example"}, epochs)
	require.NoError(t, err)
	o.bundle, err = o.relay.Bundle.Bytes()
	require.NoError(t, err)
	mux := http.NewServeMux()
	mux.HandleFunc("GET relay.example/v1/tasks/{id}", func(w http.ResponseWriter, _ *http.Request) { w.Write(o.bundle) })
	mux.HandleFunc("POST relay.example/v1/tasks/{id}/epochs/{epoch}/reports", o.receive)
	mux.HandleFunc(site+"/", func(w http.ResponseWriter, r *http.Request) { o.origin.ServeHTTP(w, r) })
	o.Server = &http.Server{Handler: mux}
	go o.Serve(recorder{listener, o})
	t.Cleanup(func() { o.Close() })
	return o
}

// recorder keeps what its connections read.
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
	body, err := io.ReadAll(req.Body)
	if err != nil {
		problem.New(problem.Malformed, "%v", err).Write(w)
		return
	}
	lanes, err := o.relay.Open(0, body)
	if err != nil {
		problem.New(problem.DoesNotOpen, "%v", err).Write(w)
		return
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	o.received = append(o.received, report{body, lanes, time.Now()})
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

// reports waits for a number of submissions and returns them.
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

// capture returns all bytes that arrived.
func (o *outside) capture() []byte {
	o.mu.Lock()
	defer o.mu.Unlock()
	return bytes.Clone(o.captured.Bytes())
}

// entry returns a task's part of the configuration, with changes.
func (o *outside) entry(changes map[string]any) map[string]any {
	e := map[string]any{"task": "http://relay.example" + o.relay.Path(), "owner": o.relay.OwnerText(), "maxEpsilon": 1, "maxDelta": 1}
	for key, value := range changes {
		e[key] = value
	}
	return e
}

// start runs the worker with a value of DOONA.
func (o *outside) start(t *testing.T, doona any) *workerd.Process {
	t.Helper()
	vars := map[string]any{}
	if doona != nil {
		vars["DOONA"] = doona
	}
	p, err := workerd.Start(context.Background(), program, workerd.Options{Dir: built, Entry: "entry.mjs", Outbound: o.address, Vars: vars})
	require.NoError(t, err)
	t.Cleanup(func() {
		p.Close()
		if t.Failed() {
			t.Log(p.Log())
		}
	})
	return p
}

// send makes a request of the site, changed as the test needs.
func send(t *testing.T, p *workerd.Process, method, path, body string, change func(*http.Request)) (int, string, http.Header) {
	t.Helper()
	req, err := http.NewRequest(method, p.URL+path, strings.NewReader(body))
	require.NoError(t, err)
	req.Host = site
	req.Header.Set("Content-Type", "application/json")
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

// only is the configuration of one task, x, without delay.
func only(entry map[string]any) map[string]any {
	return map[string]any{"tasks": map[string]any{"x": entry}, "delay": 0}
}

// truthful is a task of 300 categories whose messages are the values, but one in a million.
func truthful() *task.Task { return fixture.NearlyTruthful(fixture.Draft(task.Histogram, 300)) }

// category returns the value in a truthful task's report: a false alarm of a test that compares
// fewer than 1000 has probability below 10⁻³·300⁻¹ per draw of noise; see truthfulNoise.
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

func TestPostedValuesArrive(t *testing.T) {
	o := newOutside(t, truthful())
	p := o.start(t, only(o.entry(nil)))
	want := map[int]int{}
	for _, v := range []int{0, 7, 150, 299} {
		status, answer := post(t, p, fmt.Sprintf(`{"value": %d}`, v))
		require.Equal(t, http.StatusNoContent, status, "%s %s", answer, p.Log())
		want[v]++
	}
	got := map[int]int{}
	for _, r := range o.reports(t, 4) {
		got[category(t, r)]++
	}
	require.Equal(t, want, got)
	require.Empty(t, p.Log())
}
