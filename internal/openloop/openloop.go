// Package openloop sends sealed reports to a relay at a fixed rate, however the relay responds: as many independent
// clients would. It draws the clients' values and computes the exact answer, which no party of a deployment knows.
// `doona load` and the load test use it.
//
// Latency counts from the time when a report was due, so a slow relay does not slow the clock (no coordinated
// omission). Requests are preformatted bytes on persistent connections, which leaves the processor to the relay.
package openloop

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/doona-dp/doona/wire/problem"
)

// Report is a sealed report and its fate.
type Report struct {
	Number int // Number of its client, for the caller.
	Body   []byte
	Client string // Its synthetic address, for the forwarding header; "" for none.
	Fate   Fate   // Set by Run.

	Authorization string // The header of that name, for tasks with tokens; "" for none.
}

// Fate is the outcome of a report as far as it is known.
type Fate int

const (
	Waiting Fate = iota // Not sent, or refused temporarily: it may be sent again.
	Taken               // Acknowledged.
	Void                // Refused permanently.
	Unknown             // Sent, but the connection broke before an answer.
)

// Options says how to send reports.
type Options struct {
	URL         *url.URL      // Where reports are posted. Required.
	Header      string        // The forwarding header that carries Report.Client. Default "X-Forwarded-For".
	Rate        float64       // Reports per second; 0: each connection sends when it has its answer.
	Duration    time.Duration // Required.
	Connections int           // Most connections at a time. Default 1024.
	Held        int           // Refused reports that may wait before they precede fresh ones. Default 65536.
	TLS         *tls.Config   // For https.
	Progress    func()        // Called for every offer; may be nil.
	Taken       func(*Report) // Called for every acknowledged report, concurrently; may be nil.
}

// Result summarizes a run.
type Result struct {
	Offered  int            // Reports sent.
	Accepted int            // Of them, those acknowledged.
	Refused  map[string]int // The others, by problem; "connection" if no answer came.
	Late     int            // Sends that were due and not made, as every connection was in use.
	Seconds  float64        // From the first to the last.
	Latency  []float64      // Of accepted reports, in milliseconds since they were due; sorted.
}

// Quantile returns a quantile of the latencies of accepted reports, in ms; 0 if there are none.
func (r *Result) Quantile(q float64) float64 {
	if len(r.Latency) == 0 {
		return 0
	}
	return r.Latency[min(int(q*float64(len(r.Latency))), len(r.Latency)-1)]
}

// run is the state of a run.
type run struct {
	Options
	begun   time.Time
	end     func() // ends the run
	fresh   <-chan *Report
	drained atomic.Bool    // the last fresh report was taken
	again   chan *Report   // refused reports
	open    atomic.Int64   // reports taken from fresh, or about to be, whose fate is Waiting
	due     chan time.Time // sends to make, at a rate
	late    atomic.Int64
	workers sync.WaitGroup

	mu     sync.Mutex // guards result and barred
	result Result
	barred int // answers that say the relay accepts no reports from anyone
}

// hopeless is how many such answers, without any other, end a run.
const hopeless = 100

// Pool returns a closed channel with those reports whose fate is Waiting.
func Pool(reports []*Report) <-chan *Report {
	out := make(chan *Report, len(reports))
	for _, report := range reports {
		if report.Fate == Waiting {
			out <- report
		}
	}
	close(out)
	return out
}

// Run sends reports until the duration is over, ctx ends, or fresh is closed and no report waits. It also stops if
// the first 100 sends all found no connection or a relay with a state rollback, which an operator must repair. It
// sends a refused report again after all others, as the report's client would, or when many wait. Reports that Run
// has not taken stay in fresh; it keeps no report whose fate is known.
func Run(ctx context.Context, o Options, fresh <-chan *Report) *Result {
	if o.Header == "" {
		o.Header = "X-Forwarded-For"
	}
	if o.Connections == 0 {
		o.Connections = 1024
	}
	if o.Held == 0 {
		o.Held = 65536
	}
	r := &run{Options: o, begun: time.Now(), fresh: fresh, again: make(chan *Report, o.Held+o.Connections),
		due: make(chan time.Time, o.Connections)}
	r.result.Refused = map[string]int{}
	ctx, r.end = context.WithTimeout(ctx, o.Duration)
	defer r.end()
	for range o.Connections {
		r.workers.Go(func() { r.work(ctx) })
	}
	r.pace(ctx)
	r.result.Seconds = time.Since(r.begun).Seconds()
	r.workers.Wait()
	r.result.Late = int(r.late.Load())
	slices.Sort(r.result.Latency)
	return &r.result
}

// pace makes sends due at the rate, if there is one, until ctx ends.
func (r *run) pace(ctx context.Context) {
	if r.Rate == 0 {
		<-ctx.Done()
		return
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

// work sends reports over one connection after another.
func (r *run) work(ctx context.Context) {
	c := newConnection(&r.Options)
	defer c.close()
	for {
		var due time.Time
		if r.Rate > 0 {
			select {
			case due = <-r.due:
			case <-ctx.Done():
				return
			}
		}
		report := r.next(ctx)
		if report == nil || ctx.Err() != nil {
			return
		}
		if r.Rate == 0 {
			due = time.Now()
		}
		r.count(report, due, c.offer(report))
	}
}

// next returns a report to send: a fresh one unless too many wait, or nil when ctx has ended.
func (r *run) next(ctx context.Context) *Report {
	if len(r.again) < r.Held && !r.drained.Load() {
		r.open.Add(1) // before it is taken, so that the run does not end in between
		select {
		case report, more := <-r.fresh:
			if more {
				return report
			}
			r.drained.Store(true)
			r.settled()
		case <-ctx.Done():
			return nil
		}
	}
	select {
	case report := <-r.again:
		return report
	case <-ctx.Done():
		return nil
	}
}

// settled ends the run after the last report.
func (r *run) settled() {
	if r.open.Add(-1) == 0 && r.drained.Load() {
		r.end()
	}
}

func (r *run) count(report *Report, due time.Time, outcome error) {
	if r.Progress != nil {
		r.Progress()
	}
	latency := time.Since(due)
	r.mu.Lock()
	r.decide(report, latency, outcome)
	r.mu.Unlock()
	if report.Fate == Waiting {
		r.again <- report
		return
	}
	if report.Fate == Taken && r.Taken != nil {
		r.Taken(report)
	}
	r.settled()
}

// decide counts an outcome and sets the report's fate.
func (r *run) decide(report *Report, latency time.Duration, outcome error) {
	r.result.Offered++
	var p *problem.Problem
	switch {
	case outcome == nil:
		report.Fate = Taken
		r.result.Accepted++
		r.result.Latency = append(r.result.Latency, float64(latency)/float64(time.Millisecond))
	case errors.As(outcome, &p):
		name := string(p.Name)
		if name == "" {
			name = fmt.Sprint("status ", p.Status)
		}
		r.result.Refused[name]++
		if p.Name == problem.StateRolledBack {
			r.barred++
		}
		if p.RetryAfter == 0 && p.Status < http.StatusInternalServerError {
			report.Fate = Void
		}
	case errors.Is(outcome, errNoAnswer):
		r.result.Refused["connection"]++
		report.Fate = Unknown
	default:
		r.result.Refused["connection"]++
		r.barred++
	}
	if r.barred == hopeless && r.result.Offered == hopeless {
		r.end()
	}
}
