package world_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/doona-dp/doona/internal/testing/relaytest"
	"github.com/doona-dp/doona/wire/problem"
)

// The world's network has a link between any two parties, and between clients and each party. It knows who sends and
// receives each request, records every answer, and applies the current faults.

// errLink is the error of a failed link.
var errLink = errors.New("the link failed")

// linkFault is a temporary fault of the link from one party to another.
type linkFault struct {
	from, to string // "" means everyone
	what     string
	until    time.Time
}

// What faults do to links.
const (
	linkRefuse  = "refuses"             // nothing passes
	linkSwallow = "swallows requests"   // nothing passes, and the requester notices it after 20 s
	linkLose    = "loses answers"       // the party has processed the request
	linkCut     = "cuts answers"        // after half of the body
	linkSlow    = "is slow"             // 7 s in each direction
	linkReplay  = "replays answers"     // answers to earlier requests of the same kind
	linkOver    = "says it is over"     // in answer to every pull, unsigned
	linkNoEnd   = "gives a foreign end" // the end of another epoch, or other bytes
	linkLie     = "another batch"       // signed by the first relay, under the requested number
	linkEndless = "endless batches"     // signed by the first relay; slots do not open
	linkJunk    = "junk for batches"    // lists that no honest party sends
	linkJunkEnd = "junk for ends"
	linkJunkNow = "junk for the time"
)

// on reports whether the fault affects a link now.
func (f *linkFault) on(from, to string) bool {
	return (f.from == "" || f.from == from) && (f.to == "" || f.to == to) && time.Now().Before(f.until)
}

// network is all links of a world.
type network struct {
	world *world

	mu      sync.Mutex // guards the rest
	faults  []*linkFault
	answers map[string]*recordedResponse // first answer of each kind, for replays
	junk    []byte                       // what links with junk faults answer
}

// recordedResponse is a party's HTTP response.
type recordedResponse struct {
	status int
	header http.Header
	body   []byte
	step   int  // step of the party's disk when the answer began
	junk   bool // the body is junk
}

func (a *recordedResponse) response() *http.Response {
	return &http.Response{StatusCode: a.status, Header: a.header, Body: io.NopCloser(bytes.NewReader(a.body)),
		ContentLength: int64(len(a.body))}
}

// fault returns what the current fault does to a link; "" if there is none.
func (r *network) fault(from, to string) string {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, f := range r.faults {
		if f.on(from, to) {
			return f.what
		}
	}
	return ""
}

func (r *network) add(f *linkFault) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.faults = append(r.faults, f)
}

func (r *network) heal() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.faults = nil
}

// question returns the kind of a request: the last part of its path, or "batch" if that is a number.
func question(req *http.Request) string {
	parts := strings.Split(req.URL.Path, "/")
	if last := parts[len(parts)-1]; strings.Trim(last, "0123456789") == "" {
		return "batch"
	} else {
		return last
	}
}

// carry sends a request over a link, with its faults, and returns the answer.
func (r *network) carry(from, to string, req *http.Request) (*recordedResponse, error) {
	what := r.fault(from, to)
	switch what {
	case linkRefuse:
		return nil, errLink
	case linkSwallow:
		time.Sleep(20 * time.Second)
		return nil, errLink
	case linkSlow:
		time.Sleep(7 * time.Second)
	}
	if lie := r.lie(what, to, req); lie != nil {
		return lie, nil
	}
	a, err := r.world.parties[to].either().ask(from, req)
	if err != nil {
		return nil, err
	}
	r.world.noteAnswer(from, to, req, a)
	r.keep(to, req, a)
	switch what {
	case linkLose:
		return nil, errLink
	case linkCut:
		a.body = a.body[:len(a.body)/2]
	case linkSlow:
		time.Sleep(7 * time.Second)
	}
	return a, nil
}

// keep stores the first answer of each kind for replays.
func (r *network) keep(to string, req *http.Request, a *recordedResponse) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if kind := to + " " + question(req); r.answers[kind] == nil && a.status == http.StatusOK {
		r.answers[kind] = a
	}
}

// lie returns the false answer that a link gives; nil if it gives none.
func (r *network) lie(what, to string, req *http.Request) *recordedResponse {
	kind := question(req)
	switch {
	case what == linkOver && kind == "batch":
		return problemAnswer(problem.Complete)
	case what == linkNoEnd && kind == "end":
		return r.replay(to+" "+kind, []byte("not an end"))
	case what == linkLie && kind == "batch":
		return r.world.account.otherBatch(req)
	case (what == linkEndless || what == linkJunk) && strings.HasPrefix(req.URL.Path, "/v1/updates/"):
		return problemAnswer(problem.NotFound) // without updates, the relay pulls every epoch
	case what == linkEndless && kind == "batch":
		return r.world.account.endlessBatch(req)
	case what == linkJunk && kind == "batch", what == linkJunkEnd && kind == "end", what == linkJunkNow && kind == "time":
		r.mu.Lock()
		defer r.mu.Unlock()
		return &recordedResponse{status: http.StatusOK, header: http.Header{"Content-Type": {"application/msgpack"}},
			body: r.junk, junk: true}
	case what == linkReplay:
		return r.replay(to+" "+kind, nil)
	}
	return nil
}

func problemAnswer(name problem.Name) *recordedResponse {
	w := httptest.NewRecorder()
	problem.New(name, "").Write(w)
	return &recordedResponse{status: w.Code, header: w.Header(), body: w.Body.Bytes()}
}

func (r *network) replay(kind string, otherwise []byte) *recordedResponse {
	r.mu.Lock()
	defer r.mu.Unlock()
	if a := r.answers[kind]; a != nil || otherwise == nil {
		return a
	}
	return &recordedResponse{status: http.StatusOK, header: http.Header{}, body: otherwise}
}

func (r *network) handler(to string) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		host, _, _ := net.SplitHostPort(req.RemoteAddr)
		from := r.world.name(host)
		r.world.noteRequest(from, to, req)
		a, err := r.carry(from, to, req)
		if err == nil && to == "relay1" && question(req) == "batch" && req.Header.Get("Range") == "" {
			r.world.of(taskOf(req)).offered(req, a)
		}
		if err != nil {
			panic(http.ErrAbortHandler)
		}
		for name, values := range a.header {
			w.Header()[name] = values
		}
		// A cut body is shorter than its Content-Length: that breaks the connection.
		w.WriteHeader(a.status)
		if a.junk {
			r.serveJunk(w, from, a.body)
			return
		}
		w.Write(a.body)
	})
}

// clientTransport is the HTTP client of one client in a world. It sends the client's address in a header.
type clientTransport struct {
	network *network
	from    string
	sends   *sent // the report that it is sending
}

// Do implements [shufflerclient.HTTP].
func (c *clientTransport) Do(req *http.Request) (*http.Response, error) {
	req.Header.Set("X-Forwarded-For", c.from)
	to := req.URL.Hostname()
	a, err := c.network.carry("clients", to, req)
	if err != nil {
		return nil, err
	}
	if a.status == http.StatusCreated || to == "issuer" && req.Method == http.MethodPost && a.status == http.StatusOK {
		c.network.world.parties[to].disk.AddCheckpoint(a.step, commitment{acked: c.sends, at: c.network.world.since()})
	}
	return a.response(), nil
}

// life is one run of a party, from its start to its end, with its connections.
type life struct {
	listener *relaytest.PipeListener

	mu    sync.Mutex // guards the rest
	dead  bool
	died  time.Time
	conns []net.Conn
}

// end breaks all connections of the life, so that its later messages do not arrive.
func (l *life) end() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.dead {
		l.died = time.Now()
	}
	l.dead = true
	for _, c := range l.conns {
		c.Close()
	}
	l.conns = nil
}

// hold registers a connection, which will break when the life ends.
func (l *life) hold(c net.Conn) (net.Conn, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.dead {
		c.Close()
		return nil, errLink
	}
	l.conns = append(l.conns, c)
	return c, nil
}

// ask sends a request directly to a party, if it runs.
func (p *party) ask(from string, req *http.Request) (*recordedResponse, error) {
	life := p.alive()
	if life == nil {
		return nil, errLink
	}
	out := req.Clone(context.WithoutCancel(req.Context()))
	out.RequestURI, out.URL.Scheme, out.URL.Host = "", "http", p.name
	var stamped *stampedConn
	transport := &http.Transport{DisableKeepAlives: true, ResponseHeaderTimeout: time.Minute,
		DialContext: func(context.Context, string, string) (net.Conn, error) {
			stamped = &stampedConn{Conn: life.listener.Dial("127.0.0.1:1"), party: p}
			return life.hold(stamped)
		}}
	resp, err := transport.RoundTrip(out)
	if err != nil {
		return nil, errLink
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		return nil, errLink
	}
	return &recordedResponse{status: resp.StatusCode, header: resp.Header, body: body,
		step: int(stamped.step.Load())}, nil
}

// stampedConn is a connection to a party. It records the step of the party's disk at which the answer began.
type stampedConn struct {
	net.Conn
	party *party
	once  sync.Once
	step  atomic.Int64
}

func (h *stampedConn) Read(b []byte) (int, error) {
	n, err := h.Conn.Read(b)
	h.once.Do(func() { h.step.Store(int64(h.party.disk.Steps())) })
	return n, err
}

// transport returns the transport for a party's own requests during a life.
func (p *party) transport(l *life) *http.Transport {
	return &http.Transport{DialContext: func(_ context.Context, _, address string) (net.Conn, error) {
		to, _, err := net.SplitHostPort(address)
		if err != nil || p.world.ends[to] == nil {
			return nil, errLink
		}
		return l.hold(p.world.ends[to].Dial(p.address + ":1"))
	}}
}
