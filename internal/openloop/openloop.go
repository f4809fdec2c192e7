// Package openloop offers sealed reports to a relay at a fixed rate, whatever the relay does: as many
// clients who do not know of each other would. It draws their values and adds them up: what no party of a
// deployment knows. It is for `doona load` and for the load test.
//
// Latency is measured from the moment a report was due, so a relay that slows down does not slow
// the clock (no coordinated omission). Requests are written as bytes on kept connections, to leave
// the processor to the relay.
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

// Report is a sealed report and what became of it.
type Report struct {
	Number int // Its client's, for the caller.
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
	Held        int           // So many refused reports wait, then they go before fresh ones. Default 65536.
	TLS         *tls.Config   // For https.
	Progress    func()        // Called for every offer; may be nil.
	Taken       func(*Report) // Called for every report that was acknowledged, from many goroutines; may be nil.
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
	end     func() // ends the run
	fresh   <-chan *Report
	drained atomic.Bool    // whether the last fresh one has been taken
	again   chan *Report   // those that were refused
	open    atomic.Int64   // reports that are taken from fresh, or about to be, and whose fate is Waiting
	due     chan time.Time // offers to make, at a rate
	late    atomic.Int64
	workers sync.WaitGroup

	mu     sync.Mutex // guards result and barred
	result Result
	barred int // how many answers said that nothing is taken here, whoever sends it
}

// hopeless is how many such answers, and no other, end a run: more would say the same.
const hopeless = 100

// Pool returns a closed channel that gives those of some reports whose fate is Waiting.
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

// Run offers reports until the duration is over, ctx ends, or fresh is closed and none waits, or the first 100 offers
// all found no connection, or a relay that was set back, which an operator must mend first. A refused report is offered
// again when all others have been, as its client would, or when many wait. What Run has not taken stays in
// fresh; it keeps no report whose fate is known.
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

// pace makes offers due, where there is a rate, until ctx ends.
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

// work makes offers over one connection after the other.
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

// next returns a report to offer: a fresh one, if not too many wait, or nil when ctx has ended.
func (r *run) next(ctx context.Context) *Report {
	if len(r.again) < r.Held && !r.drained.Load() {
		r.open.Add(1) // before it is taken, lest the run ends meanwhile
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
		if p.Name == problem.SetBack {
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
