// Package openloop offers sealed reports to a relay at a fixed rate, whatever the relay does: as many
// clients who do not know of each other would. It draws their values and adds them up: what no party of a
// deployment knows. It is for `relay load` and for the load test.
//
// Latency is measured from the moment a report was due, so a relay that slows down does not slow
// the clock (no coordinated omission). Requests are written as bytes on kept connections, to leave
// the processor to the relay.
package openloop

import (
	"bufio"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/doona-dp/doona/wire/problem"
)

// Report is a sealed report and what became of it.
type Report struct {
	Body   []byte
	Client string // Its synthetic address, for the forwarding header; "" for none.
	Fate   Fate   // Set by Run.

	Authorization string // The header of that name, for tasks with tokens; "" for none.
}

// Fate is what is known of a report.
type Fate int

const (
	Waiting Fate = iota // Never offered, or refused each time: it may be offered again.
	Taken               // Acknowledged.
	Void                // Refused for good.
	Unknown             // Sent, and the connection broke before an answer.
)

// Options says how to offer reports.
type Options struct {
	URL         *url.URL      // Where reports are posted. Required.
	Header      string        // The forwarding header that holds Report.Client. Default "X-Forwarded-For".
	Rate        float64       // Reports per second; 0: each connection sends as soon as it has its answer.
	Duration    time.Duration // Required.
	Connections int           // At most so many at a time. Default 1024.
	TLS         *tls.Config   // For https.
	Progress    func()        // Called for every offer; may be nil.
}

// Result is what came of a run.
type Result struct {
	Offered  int            // Reports sent.
	Accepted int            // Of them, those acknowledged.
	Refused  map[string]int // Of them, the others: by problem, "connection" where there was no answer.
	Late     int            // Offers that were due and not made, as every connection was in use.
	Seconds  float64        // From the first to the last.
	Latency  []float64      // Of accepted reports, in milliseconds from when they were due; sorted.
}

// Quantile returns a quantile of the latencies of accepted reports, in ms; 0 without any.
func (r *Result) Quantile(q float64) float64 {
	if len(r.Latency) == 0 {
		return 0
	}
	return r.Latency[min(int(q*float64(len(r.Latency))), len(r.Latency)-1)]
}

// run is a run under way.
type run struct {
	Options
	begun   time.Time
	end     func()         // ends the run
	pool    chan *Report   // those that wait
	open    atomic.Int64   // reports whose fate is Waiting
	due     chan time.Time // offers to make
	late    atomic.Int64
	workers sync.WaitGroup

	mu     sync.Mutex // guards result
	result Result
}

// Run offers reports until the duration is over, ctx ends or none waits. A refused report is
// offered again when all others have been, as its client would. Reports that are Taken, Void or
// Unknown already are left out.
func Run(ctx context.Context, o Options, reports []*Report) *Result {
	if o.Header == "" {
		o.Header = "X-Forwarded-For"
	}
	if o.Connections == 0 {
		o.Connections = 1024
	}
	r := &run{Options: o, begun: time.Now(), pool: make(chan *Report, len(reports)),
		due: make(chan time.Time, o.Connections)}
	r.result.Refused = map[string]int{}
	for _, report := range reports {
		if report.Fate == Waiting {
			r.open.Add(1)
			r.pool <- report
		}
	}
	ctx, r.end = context.WithTimeout(ctx, o.Duration)
	defer r.end()
	for range o.Connections {
		r.workers.Go(func() { r.work(ctx) })
	}
	r.pace(ctx)
	close(r.due)
	r.result.Seconds = time.Since(r.begun).Seconds()
	r.workers.Wait()
	r.result.Late = int(r.late.Load())
	slices.Sort(r.result.Latency)
	return &r.result
}

// pace makes offers due.
func (r *run) pace(ctx context.Context) {
	if r.Rate == 0 {
		for {
			select {
			case r.due <- time.Time{}:
			case <-ctx.Done():
				return
			}
		}
	}
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for made := 0; ; {
		for ; float64(made) < time.Since(r.begun).Seconds()*r.Rate; made++ {
			select {
			case r.due <- r.begun.Add(time.Duration(float64(made) / r.Rate * float64(time.Second))):
			default:
				r.late.Add(1)
			}
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
	}
}

// work makes offers over one connection after the other.
func (r *run) work(ctx context.Context) {
	var c connection
	defer c.close()
	for due := range r.due {
		var report *Report
		select {
		case report = <-r.pool:
		case <-ctx.Done():
			return
		}
		if due.IsZero() {
			due = time.Now()
		}
		r.count(report, due, r.offer(&c, report))
	}
}

// errNoAnswer is the outcome of an offer whose report may have arrived.
var errNoAnswer = errors.New("the connection broke before an answer")

func (r *run) offer(c *connection, report *Report) error {
	if err := c.open(r.URL, r.TLS); err != nil {
		return err
	}
	if err := c.send(r.URL, r.Header, report); err != nil {
		c.close()
		return errNoAnswer
	}
	resp, err := http.ReadResponse(c.in, nil)
	if err != nil {
		c.close()
		return errNoAnswer
	}
	var outcome error
	if resp.StatusCode != http.StatusCreated {
		outcome = problem.Read(resp)
	}
	if _, err := io.Copy(io.Discard, resp.Body); err != nil || resp.Close {
		c.close()
	}
	return outcome
}

func (r *run) count(report *Report, due time.Time, outcome error) {
	if r.Progress != nil {
		r.Progress()
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.decide(report, due, outcome)
	switch {
	case report.Fate == Waiting:
		r.pool <- report
	case r.open.Add(-1) == 0:
		r.end()
	}
}

// decide counts an outcome and sets the report's fate.
func (r *run) decide(report *Report, due time.Time, outcome error) {
	r.result.Offered++
	var p *problem.Problem
	switch {
	case outcome == nil:
		report.Fate = Taken
		r.result.Accepted++
		r.result.Latency = append(r.result.Latency, float64(time.Since(due))/float64(time.Millisecond))
	case errors.As(outcome, &p):
		name := string(p.Name)
		if name == "" {
			name = fmt.Sprint("status ", p.Status)
		}
		r.result.Refused[name]++
		if p.RetryAfter == 0 && p.Status < http.StatusInternalServerError {
			report.Fate = Void
		}
	case errors.Is(outcome, errNoAnswer):
		r.result.Refused["connection"]++
		report.Fate = Unknown
	default:
		r.result.Refused["connection"]++
	}
}

// connection is a kept connection; closed, it is opened again.
type connection struct {
	net.Conn
	in *bufio.Reader
}

// patience bounds a dial, and the wait for an answer.
const patience = 30 * time.Second

func (c *connection) open(u *url.URL, config *tls.Config) error {
	if c.Conn == nil {
		var err error
		d := &net.Dialer{Timeout: patience}
		if u.Scheme == "https" {
			c.Conn, err = tls.DialWithDialer(d, "tcp", hostPort(u, "443"), config)
		} else {
			c.Conn, err = d.Dial("tcp", hostPort(u, "80"))
		}
		if err != nil {
			c.Conn = nil
			return err
		}
		c.in = bufio.NewReaderSize(c.Conn, 1024)
	}
	return c.SetDeadline(time.Now().Add(patience))
}

func hostPort(u *url.URL, port string) string {
	if u.Port() != "" {
		port = u.Port()
	}
	return net.JoinHostPort(u.Hostname(), port)
}

func (c *connection) send(u *url.URL, header string, report *Report) error {
	head := fmt.Appendf(make([]byte, 0, 512),
		"POST %s HTTP/1.1\r\nHost: %s\r\nContent-Type: application/msgpack\r\nContent-Length: %d\r\n", u.RequestURI(),
		u.Host, len(report.Body))
	if report.Client != "" {
		head = fmt.Appendf(head, "%s: %s\r\n", header, report.Client)
	}
	if report.Authorization != "" {
		head = fmt.Appendf(head, "Authorization: %s\r\n", report.Authorization)
	}
	_, err := c.Write(append(append(head, '\r', '\n'), report.Body...))
	return err
}

func (c *connection) close() {
	if c.Conn != nil {
		c.Close()
		c.Conn = nil
	}
}
