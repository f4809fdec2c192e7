// Package edge is the local randomizer in an edge worker: it takes posted values, or reads a
// property of a request that passes, randomizes and seals at the edge, and sends the report to the
// first relay. docs/edge.md is its manual; wasm/edge/worker holds the glue to Cloudflare's runtime.
//
// The package is plain Go. What a runtime gives a request is a [Host], because of one rule of that
// runtime: everything that waits (an answer, a pause) belongs to the request that began it. So
// nothing here uses timers, and no request waits for what another one fetches.
package edge

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/http"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/doona-dp/doona/internal/invalid"
	"github.com/doona-dp/doona/shufflerclient"
	"github.com/doona-dp/doona/wire/problem"
)

// Host is what the runtime does for the request at hand.
type Host struct {
	HTTP       shufflerclient.HTTP
	Pause      func(time.Duration) // Returns after that time.
	Background func(func())        // Runs work that outlives the answer.
	Log        func(string)        // Never sees a value.
	First      First               // Nil without the binding DOONA_VISITORS.
	Secret     func(string) string // The secret of a name; "" where there is none.
}

// First says whether a visitor is new to an epoch of a task, and remembers that it was, until the
// Unix time end. It is an error where that cannot be known.
type First func(visitor, epoch string, end uint64) (bool, error)

// Observation is what is seen of a request that passes.
type Observation struct {
	Country string  // "" where unknown.
	Cache   string  // "" where unknown.
	Latency float64 // Milliseconds.
	Status  int     // 0 where the origin gave no answer.
	Visitor string  // The network address; only compared with others'.
}

// Worker reports to the tasks of one configuration. It is safe for concurrent use.
type Worker struct {
	config   *Config
	observed []string // names of the tasks with a property
	host     Host

	mu    sync.Mutex // guards what follows; never held while waiting
	tasks map[string]connection
	pools map[string]*pool
	lost  int // reports dropped
}

// connection is a checked task, or why there is none.
type connection struct {
	client *shufflerclient.Client
	err    error
	at     time.Time
}

// retryTask is how long a task that could not be had is left alone.
const retryTask = 10 * time.Second

// patience bounds the pauses between attempts to deliver one report. The longest delay, the token and
// it fit into the runtime's 30 s.
const patience = 6 * time.Second

// New returns the worker of a configuration that [ParseConfig] accepted. It is an error about a field
// if the host lacks what the configuration asks for.
func New(c *Config, host Host) (*Worker, error) {
	w := &Worker{config: c, host: host, tasks: map[string]connection{}, pools: map[string]*pool{}}
	for _, name := range slices.Sorted(maps.Keys(c.Tasks)) {
		if c.Tasks[name].Once && host.First == nil {
			return nil, invalid.Field("tasks."+name+".once", "true",
				"the Durable Object binding DOONA_VISITORS of class Visitors in wrangler.jsonc")
		}
		if key := c.Tasks[name].IssuerKey; key != "" && host.Secret(key) == "" {
			return nil, invalid.Field("tasks."+name+".issuerKey", strconv.Quote(key),
				"the name of a secret: wrangler secret put "+key)
		}
		if c.Tasks[name].Property != "" {
			w.observed = append(w.observed, name)
		}
	}
	return w, nil
}

// Observe reports a request's properties to every task that asks for one, after the request has
// been answered. Whether a request is in the sample does not depend on it.
func (w *Worker) Observe(o Observation) {
	for _, name := range w.observed {
		if rand.Float64() >= w.config.Tasks[name].sample() {
			continue
		}
		value := []float64{w.config.Tasks[name].value(&o)}
		w.host.Background(func() {
			if err := w.Report(context.Background(), name, o.Visitor, value); err != nil {
				w.dropped(name, err)
			}
		})
	}
}

// Report randomizes and seals a value, and delivers the report in the background at a random
// moment. When it returns, the value is no longer needed. Of a visitor who has reported in this epoch
// it does nothing, if the task says once. Errors are a [*problem.Problem], and one
// about the value has no part of the value in it.
func (w *Worker) Report(ctx context.Context, name, visitor string, value []float64) error {
	pause := time.Duration(0)
	if most := w.config.delay(); most > 0 {
		pause = rand.N(most) // before randomizing: the moment says nothing of the value
	}
	client, err := w.task(ctx, name)
	if err != nil {
		return err
	}
	epoch, ok := client.Task().Epochs.At(uint64(time.Now().Unix()))
	if !ok {
		return newProblem(problem.EpochNotOpen, http.StatusConflict, "no epoch of the task is open now", "")
	}
	if w.config.Tasks[name].Once {
		// Remembered before the value is touched: whatever fails from here on, there is no second draw.
		first, err := w.first(client, name, visitor, epoch)
		if err != nil || !first {
			return err
		}
	}
	report, err := client.Report(epoch, value)
	if err != nil {
		return valueProblem(err)
	}
	w.host.Background(func() {
		if err := w.deliver(ctx, name, client, report, pause); err != nil {
			w.dropped(name, err)
		}
		w.refill(ctx, name, client, epoch)
	})
	return nil
}

// deliver gets a token where the task needs one, and after a pause posts the report.
func (w *Worker) deliver(ctx context.Context, name string, client *shufflerclient.Client,
	report *shufflerclient.Report, pause time.Duration) (err error) {
	if report.Token, err = w.token(ctx, name, client, report.Epoch); err != nil {
		return err
	}
	w.host.Pause(pause)
	return client.Submit(deadline{ctx, time.Now().Add(patience)}, report)
}

// erased is how long after an epoch its visitors are forgotten, in seconds: clocks differ by minutes.
const erased = 600

func (w *Worker) first(client *shufflerclient.Client, name, visitor string, epoch uint64) (bool, error) {
	of := client.Task()
	if visitor == "" {
		return false, newProblem(problem.Internal, http.StatusInternalServerError, "the request names no address", "")
	}
	first, err := w.host.First(visitor, fmt.Sprintf("%s/%d", of.ID, epoch), of.Epochs.End(epoch)+erased)
	if err != nil {
		w.host.Log(fmt.Sprintf("doona: couldn't tell visitors to task %s apart: %v", name, err))
		return false, newProblem(problem.Internal, http.StatusInternalServerError,
			"the worker can't tell visitors apart now", "")
	}
	return first, nil
}

// deadline is a context that has ended at a time, without a timer to tell of it.
type deadline struct {
	context.Context
	at time.Time
}

func (d deadline) Deadline() (time.Time, bool) { return d.at, true }

func (d deadline) Err() error {
	if time.Now().After(d.at) {
		return context.DeadlineExceeded
	}
	return d.Context.Err()
}

// pause waits between two attempts.
func (w *Worker) pause(_ context.Context, d time.Duration) error {
	w.host.Pause(d)
	return nil
}

// dropped says that a report was lost, why (a reason of the relay or of the network), and how many
// this instance has lost.
func (w *Worker) dropped(name string, err error) {
	w.mu.Lock()
	w.lost++
	lost := w.lost
	w.mu.Unlock()
	w.host.Log(fmt.Sprintf("doona: dropped a report to task %s: %v (%d dropped)", name, err, lost))
}

// task returns the checked task of a name, fetched when first asked for. Requests that find none
// fetch it each by itself.
func (w *Worker) task(ctx context.Context, name string) (*shufflerclient.Client, error) {
	w.mu.Lock()
	known := w.tasks[name]
	w.mu.Unlock()
	if known.client != nil || known.err != nil && time.Since(known.at) < retryTask {
		return known.client, known.err
	}
	client, err := w.connect(ctx, name)
	w.mu.Lock()
	defer w.mu.Unlock()
	w.tasks[name] = connection{client, err, time.Now()}
	return client, err
}

func (w *Worker) connect(ctx context.Context, name string) (*shufflerclient.Client, error) {
	c := w.config.Tasks[name]
	client, err := shufflerclient.Connect(ctx, shufflerclient.Options{
		Task: c.URL, Owner: c.Owner, MaxEpsilon: c.MaxEpsilon, MaxDelta: c.MaxDelta,
		HTTP: w.host.HTTP, Pause: w.pause, Tokens: issuerTokens(w.host.HTTP, w.host.Secret(c.IssuerKey)),
	})
	if err == nil {
		err = c.fits("tasks."+name, client.Task().Task)
	}
	if err == nil {
		return client, nil
	}
	var field *invalid.FieldError
	if errors.As(err, &field) {
		return nil, newProblem(Configuration, http.StatusInternalServerError,
			"the worker's configuration and the task do not agree", err.Error())
	}
	return nil, newProblem(TaskUnavailable, http.StatusBadGateway,
		"the task could not be had from its first relay, or was refused", err.Error())
}
