// Package openloop sends sealed reports to a relay at a fixed rate, no matter how fast the relay answers, as many
// independent clients would. It draws the clients' values and computes the exact answer, which no party of a real
// deployment knows. `doona load` and the load test use it.
//
// Latency counts from the time when a report was due, so a slow relay cannot hide its own delays (no coordinated
// omission). Requests are bytes that are formatted in advance and sent on persistent connections. So most of the
// processor time is left for the relay.
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

// LoadReport is a sealed report and what became of it.
type LoadReport struct {
	Number int // Number of the report's client; only the caller uses it.
	Body   []byte
	Client string // The client's synthetic address, for the header Options.Header; "" for none.
	Fate   Fate   // Run sets it.

	Authorization string // The Authorization header, for tasks with tokens; "" for none.
}

// Fate is what became of a report, as far as it is known.
type Fate int

const (
	Waiting Fate = iota // Not sent yet, or refused temporarily: Run may send it again.
	Taken               // The relay accepted it.
	Void                // The relay refused it permanently.
	Unknown             // Sent, but the connection broke before an answer: the relay may have it. Run sends it again.
)

// Options says how to send reports.
type Options struct {
	URL         *url.URL          // Reports are posted here. Required.
	Header      string            // Header that carries LoadReport.Client. Default "X-Forwarded-For".
	Rate        float64           // Reports per second; 0: each connection sends the next report when an answer comes.
	Duration    time.Duration     // Maximum length of the run. Required.
	Connections int               // Number of connections. Default 1024.
	MaxWaiting  int               // From this many refused reports on, Run sends them before new ones. Default 65536.
	TLS         *tls.Config       // For https.
	Progress    func()            // Called after every answer or failure; may be nil.
	Taken       func(*LoadReport) // Called, concurrently, for every report that the relay accepts; may be nil.
}

// Result summarizes a run.
type Result struct {
	Offered  int            // Sends, including repeated ones.
	Accepted int            // Sends that the relay accepted.
	Refused  map[string]int // Number of other sends by problem; "connection" if no answer came.
	Late     int            // Sends that were due but skipped, because all connections were in use.
	Seconds  float64        // Length of the run, in seconds.
	Latency  []float64      // Per accepted report, in milliseconds since it was due; sorted.
}

// Quantile returns the q-quantile of the latencies of accepted reports, in ms. It returns 0 if there are none.
func (r *Result) Quantile(q float64) float64 {
	if len(r.Latency) == 0 {
		return 0
	}
	return r.Latency[min(int(q*float64(len(r.Latency))), len(r.Latency)-1)]
}

type run struct {
	Options
	start   time.Time
	end     func() // cancels the run's context
	fresh   <-chan *LoadReport
	drained atomic.Bool      // whether fresh is closed and empty
	retries chan *LoadReport // refused reports that wait to be sent again
	pending atomic.Int64     // reports taken from fresh, or about to be, that are sent again until their fate is known
	due     chan time.Time   // times at which sends are due, if there is a rate
	late    atomic.Int64
	workers sync.WaitGroup

	mu          sync.Mutex // guards result and unavailable
	result      Result
	unavailable int // failures that affect every client: no answer, or a relay with a state rollback
}

// maxUnavailable ends a run after this many sends, if the relay was unavailable for all of them.
const maxUnavailable = 100

// Pool returns a closed channel that holds the reports whose fate is Waiting.
func Pool(reports []*LoadReport) <-chan *LoadReport {
	out := make(chan *LoadReport, len(reports))
	for _, report := range reports {
		if report.Fate == Waiting {
			out <- report
		}
	}
	close(out)
	return out
}

// Run sends reports until the duration is over, ctx ends, or fresh is closed and no report waits. It also stops if each
// of the first 100 sends got no answer, or met a relay with a state rollback, which an operator must repair. Run sends
// a report again that was refused or got no answer, after all new ones, as the report's client would: the relay counts
// the same bytes once. If MaxWaiting such reports wait, it sends them first. Reports that Run has not sent stay in
// fresh. Run keeps no report whose fate is known.
func Run(ctx context.Context, o Options, fresh <-chan *LoadReport) *Result {
	if o.Header == "" {
		o.Header = "X-Forwarded-For"
	}
	if o.Connections == 0 {
		o.Connections = 1024
	}
	if o.MaxWaiting == 0 {
		o.MaxWaiting = 65536
	}
	r := &run{Options: o, start: time.Now(), fresh: fresh, retries: make(chan *LoadReport, o.MaxWaiting+o.Connections),
		due: make(chan time.Time, o.Connections)}
	r.result.Refused = map[string]int{}
	ctx, r.end = context.WithTimeout(ctx, o.Duration)
	defer r.end()
	for range o.Connections {
		r.workers.Go(func() { r.work(ctx) })
	}
	r.pace(ctx)
	r.result.Seconds = time.Since(r.start).Seconds()
	r.workers.Wait()
	r.result.Late = int(r.late.Load())
	slices.Sort(r.result.Latency)
	return &r.result
}

// pace schedules sends at the given rate, if there is one, until ctx ends.
func (r *run) pace(ctx context.Context) {
	if r.Rate == 0 {
		<-ctx.Done()
		return
	}
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for scheduled := 0; ; {
		for ; float64(scheduled) < time.Since(r.start).Seconds()*r.Rate; scheduled++ {
			select {
			case r.due <- r.start.Add(time.Duration(float64(scheduled) / r.Rate * float64(time.Second))):
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

// work sends reports over one connection, which it reopens, until the run ends.
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

// next returns a new report to send, unless more than MaxWaiting refused ones wait or no new one is left: then it
// returns a refused one. It returns nil when ctx has ended.
func (r *run) next(ctx context.Context) *LoadReport {
	if len(r.retries) < r.MaxWaiting && !r.drained.Load() {
		r.pending.Add(1) // before the report is received from fresh, so that the run does not end in between
		select {
		case report, more := <-r.fresh:
			if more {
				return report
			}
			r.drained.Store(true)
			r.done()
		case <-ctx.Done():
			return nil
		}
	}
	select {
	case report := <-r.retries:
		return report
	case <-ctx.Done():
		return nil
	}
}

// done ends the run if this was the last report.
func (r *run) done() {
	if r.pending.Add(-1) == 0 && r.drained.Load() {
		r.end()
	}
}

func (r *run) count(report *LoadReport, due time.Time, outcome error) {
	if r.Progress != nil {
		r.Progress()
	}
	latency := time.Since(due)
	r.mu.Lock()
	again := r.decide(report, latency, outcome)
	r.mu.Unlock()
	if again {
		r.retries <- report
		return
	}
	if report.Fate == Taken && r.Taken != nil {
		r.Taken(report)
	}
	r.done()
}

// decide counts the outcome of a send and sets the report's fate. It returns whether to send the report again. A report
// whose answer was lost stays Unknown if the relay refuses it later.
func (r *run) decide(report *LoadReport, latency time.Duration, outcome error) (again bool) {
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
			r.unavailable++
		}
		again = p.RetryAfter > 0 || p.Status >= http.StatusInternalServerError
		if !again && report.Fate != Unknown {
			report.Fate = Void
		}
	default:
		again = true
		r.result.Refused["connection"]++
		r.unavailable++
		if errors.Is(outcome, errNoAnswer) {
			report.Fate = Unknown
		}
	}
	if r.unavailable == maxUnavailable && r.result.Offered == maxUnavailable {
		r.end()
	}
	return again
}
