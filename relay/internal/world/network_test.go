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

// The world's network: between any two parties, and between clients and a party, there is a road. It knows
// who asks whom, takes note of every answer, and does what the faults of the moment say.

// errRoad is what a client sees of a road that is broken.
var errRoad = errors.New("the road is broken")

// roadFault is something that a road does for a while, to what from asks of to.
type roadFault struct {
	from, to string // "" stands for everybody
	what     string
	until    time.Time
}

// The faults of roads.
const (
	roadRefuse  = "refuses"             // nothing passes
	roadSwallow = "swallows requests"   // nothing passes, and who asks notices late
	roadLose    = "loses answers"       // the request is done
	roadCut     = "cuts answers"        // after half
	roadSlow    = "is slow"             // 7 s, both ways
	roadReplay  = "replays answers"     // of other requests of the same kind
	roadOver    = "says it is over"     // to every pull, unsigned
	roadNoEnd   = "gives a foreign end" // of another epoch, or bytes of its own
	roadLie     = "another batch"       // signed by the first relay, under the number asked for
	roadEndless = "endless batches"     // signed by the first relay, without slots
	roadJunk    = "junk for batches"    // lists that no party sends
	roadJunkEnd = "junk for ends"
	roadJunkNow = "junk for the time"
)

// place says whether a fault is of a road, now.
func (f *roadFault) on(from, to string) bool {
	return (f.from == "" || f.from == from) && (f.to == "" || f.to == to) && time.Now().Before(f.until)
}

// roads are all roads of a world.
type roads struct {
	world *world

	mu      sync.Mutex // guards the rest
	faults  []*roadFault
	answers map[string]*answer // the first of every kind of question, to be replayed
	junk    []byte             // what is answered by roads that do so
}

// answer is what a party answered.
type answer struct {
	status int
	header http.Header
	body   []byte
	step   int  // of the party's disk, when the answer began
	junk   bool // body is
}

// response is the answer as a client has it.
func (a *answer) response() *http.Response {
	return &http.Response{StatusCode: a.status, Header: a.header, Body: io.NopCloser(bytes.NewReader(a.body)),
		ContentLength: int64(len(a.body))}
}

// fault returns what the road does now.
func (r *roads) fault(from, to string) string {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, f := range r.faults {
		if f.on(from, to) {
			return f.what
		}
	}
	return ""
}

func (r *roads) add(f *roadFault) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.faults = append(r.faults, f)
}

// heal ends all faults.
func (r *roads) heal() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.faults = nil
}

// question is the kind of a request: its path without numbers and ids.
func question(req *http.Request) string {
	parts := strings.Split(req.URL.Path, "/")
	if last := parts[len(parts)-1]; strings.Trim(last, "0123456789") == "" {
		return "batch"
	} else {
		return last
	}
}

// carry takes a request from somebody to a party, and its answer back.
func (r *roads) carry(from, to string, req *http.Request) (*answer, error) {
	what := r.fault(from, to)
	switch what {
	case roadRefuse:
		return nil, errRoad
	case roadSwallow:
		time.Sleep(20 * time.Second)
		return nil, errRoad
	case roadSlow:
		time.Sleep(7 * time.Second)
	}
	if lie := r.lie(what, to, req); lie != nil {
		return lie, nil
	}
	a, err := r.world.parties[to].either().ask(from, req)
	if err != nil {
		return nil, err
	}
	r.world.saw(from, to, req, a)
	r.keep(to, req, a)
	switch what {
	case roadLose:
		return nil, errRoad
	case roadCut:
		a.body = a.body[:len(a.body)/2]
	case roadSlow:
		time.Sleep(7 * time.Second)
	}
	return a, nil
}

// keep remembers an answer for roads that replay.
func (r *roads) keep(to string, req *http.Request, a *answer) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if kind := to + " " + question(req); r.answers[kind] == nil && a.status == http.StatusOK {
		r.answers[kind] = a
	}
}

// lie returns what the road answers by itself, or nil.
func (r *roads) lie(what, to string, req *http.Request) *answer {
	kind := question(req)
	switch {
	case what == roadOver && kind == "batch":
		return problemAnswer(problem.Complete)
	case what == roadNoEnd && kind == "end":
		return r.replay(to+" "+kind, []byte("not an end"))
	case what == roadLie && kind == "batch":
		return r.world.account.otherBatch(req)
	case (what == roadEndless || what == roadJunk) && strings.HasPrefix(req.URL.Path, "/v1/updates/"):
		return problemAnswer(problem.NotFound) // who has no news asks for every batch
	case what == roadEndless && kind == "batch":
		return r.world.account.endlessBatch(req)
	case what == roadJunk && kind == "batch", what == roadJunkEnd && kind == "end", what == roadJunkNow && kind == "time":
		r.mu.Lock()
		defer r.mu.Unlock()
		return &answer{status: http.StatusOK, header: http.Header{"Content-Type": {"application/msgpack"}},
			body: r.junk, junk: true}
	case what == roadReplay:
		return r.replay(to+" "+kind, nil)
	}
	return nil
}

func problemAnswer(name problem.Name) *answer {
	w := httptest.NewRecorder()
	problem.New(name, "").Write(w)
	return &answer{status: w.Code, header: w.Header(), body: w.Body.Bytes()}
}

func (r *roads) replay(kind string, otherwise []byte) *answer {
	r.mu.Lock()
	defer r.mu.Unlock()
	if a := r.answers[kind]; a != nil || otherwise == nil {
		return a
	}
	return &answer{status: http.StatusOK, header: http.Header{}, body: otherwise}
}

// handler is the end of the roads to a party that others dial.
func (r *roads) handler(to string) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		host, _, _ := net.SplitHostPort(req.RemoteAddr)
		from := r.world.name(host)
		r.world.heard(from, to, req)
		a, err := r.carry(from, to, req)
		if err == nil && to == "relay1" && question(req) == "batch" && req.Header.Get("Range") == "" {
			r.world.account.offered(req, a)
		}
		if err != nil {
			panic(http.ErrAbortHandler)
		}
		for name, values := range a.header {
			w.Header()[name] = values
		}
		// A body that was cut is shorter than its header says: the connection then breaks.
		w.WriteHeader(a.status)
		if a.junk {
			r.serveJunk(w, from, a.body)
			return
		}
		w.Write(a.body)
	})
}

// clientRoad is the HTTP client of a world's client, whose address it puts into a header.
type clientRoad struct {
	roads *roads
	from  string
	sends *sent // what it sends now
}

// Do is that of [shufflerclient.HTTP].
func (c *clientRoad) Do(req *http.Request) (*http.Response, error) {
	req.Header.Set("X-Forwarded-For", c.from)
	to := req.URL.Hostname()
	a, err := c.roads.carry("clients", to, req)
	if err != nil {
		return nil, err
	}
	if a.status == http.StatusCreated || to == "issuer" && req.Method == http.MethodPost && a.status == http.StatusOK {
		c.roads.world.parties[to].disk.Mark(a.step, said{acked: c.sends, at: c.roads.world.since()})
	}
	return a.response(), nil
}

// life is one run of a party, from start to crash, with its connections.
type life struct {
	listener *relaytest.PipeListener

	mu    sync.Mutex // guards the rest
	dead  bool
	died  time.Time
	conns []net.Conn
}

// end breaks all connections: nothing that the party says from now on is heard.
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

// hold takes a connection's side that is not the party's.
func (l *life) hold(c net.Conn) (net.Conn, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.dead {
		c.Close()
		return nil, errRoad
	}
	l.conns = append(l.conns, c)
	return c, nil
}

// ask hands a request to a party that is alive.
func (p *party) ask(from string, req *http.Request) (*answer, error) {
	life := p.alive()
	if life == nil {
		return nil, errRoad
	}
	out := req.Clone(context.WithoutCancel(req.Context()))
	out.RequestURI, out.URL.Scheme, out.URL.Host = "", "http", p.name
	var hears *hearing
	transport := &http.Transport{DisableKeepAlives: true, ResponseHeaderTimeout: time.Minute,
		DialContext: func(context.Context, string, string) (net.Conn, error) {
			hears = &hearing{Conn: life.listener.Dial("127.0.0.1:1"), party: p}
			return life.hold(hears)
		}}
	resp, err := transport.RoundTrip(out)
	if err != nil {
		return nil, errRoad
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		return nil, errRoad
	}
	return &answer{status: resp.StatusCode, header: resp.Header, body: body, step: int(hears.step.Load())}, nil
}

// hearing is a connection to a party that notes how far its disk is when it says something.
type hearing struct {
	net.Conn
	party *party
	once  sync.Once
	step  atomic.Int64
}

func (h *hearing) Read(b []byte) (int, error) {
	n, err := h.Conn.Read(b)
	h.once.Do(func() { h.step.Store(int64(h.party.disk.Steps())) })
	return n, err
}

// transport is what a party dials others with, in one of its lives: roads begin where it does.
func (p *party) transport(l *life) *http.Transport {
	return &http.Transport{DialContext: func(_ context.Context, _, address string) (net.Conn, error) {
		to, _, err := net.SplitHostPort(address)
		if err != nil || p.world.ends[to] == nil {
			return nil, errRoad
		}
		return l.hold(p.world.ends[to].Dial(p.address + ":1"))
	}}
}
