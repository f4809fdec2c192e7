// Package edge is the local randomizer in an edge worker. It takes values that pages or backends post, or reads a
// property of a passing request. It randomizes and seals the value at the edge and sends the report to the first
// relay. docs/edge.md is its manual; wasm/edge/worker connects it to Cloudflare's runtime.
//
// The package is plain Go. [Host] holds what the runtime does for one request, because the runtime has one rule:
// everything that waits (an answer, a pause) belongs to the request that began it. So this package uses no timers,
// and no request waits for another's fetch: it polls after a pause of its own.
package edge

import (
	"context"
	"errors"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/doona-dp/doona/internal/invalid"
	"github.com/doona-dp/doona/shufflerclient"
)

// Host is what the runtime does for the current request.
type Host struct {
	HTTP       shufflerclient.HTTP // Adds no header: relays distinguish pages from programs by Origin.
	Pause      func(time.Duration) // Returns after that time.
	Background func(func())        // Runs work that outlives the answer.
	Log        func(string)        // Never sees a value.
	CheckQuota QuotaCheck          // Nil without the binding DOONA_VISITORS.
	Secret     func(string) string // Returns the secret of a name, or "".
}

// QuotaCheck counts a report of a network in an epoch of a task, durably until the Unix time end. It reports whether
// the network had fewer than most before. It fails if the count is unavailable.
type QuotaCheck func(network, epoch string, most, end uint64) (bool, error)

// Observation holds the observed properties of a passing request.
type Observation struct {
	Country string  // "" if unknown.
	Cache   string  // "" if unknown.
	Latency float64 // Milliseconds.
	Status  int     // 0 if the origin gave no answer.
	Visitor string  // The network address; only compared with others.
}

// Worker reports to the tasks of one configuration. It is safe for concurrent use.
type Worker struct {
	config   *Config
	observed []string              // names of the tasks of source request
	backends map[string]credential // credentials of backends, by task
	host     Host
	load     load

	mu    sync.Mutex // guards what follows; never held while waiting
	tasks map[string]connection
	pools map[string]*pool
	lost  int // number of dropped reports
}

// connection is a checked task, or the error of fetching it.
type connection struct {
	client *shufflerclient.Client
	err    error
	at     time.Time // when err occurred
	asked  time.Time // when a request last began to fetch the task
}

// retryTask is how long the worker waits after a failed fetch of a task.
const retryTask = 10 * time.Second

// A request that finds another one fetching the task polls every lookAgain. It fetches the task itself if the other
// takes longer than fetching: the runtime may have ended it.
const (
	lookAgain = 20 * time.Millisecond
	fetching  = 2 * time.Second
)

// New returns the worker of a configuration that [ParseConfig] accepted. It is an error about a field
// if the host lacks what the configuration asks for.
func New(c *Config, host Host) (*Worker, error) {
	w := &Worker{config: c, host: host, backends: map[string]credential{}, tasks: map[string]connection{},
		pools: map[string]*pool{}}
	for _, name := range slices.Sorted(maps.Keys(c.Tasks)) {
		if err := w.equip(name); err != nil {
			return nil, err
		}
	}
	return w, nil
}

// equip gets from the host what a task needs.
func (w *Worker) equip(name string) error {
	t, at := w.config.Tasks[name], "tasks."+name
	if key := t.IssuerKey; key != "" && w.host.Secret(key) == "" {
		return invalid.Field(at+".issuerKey", strconv.Quote(key), "the name of a secret: wrangler secret put "+key)
	}
	if w.host.CheckQuota == nil && (t.Source == FromPage || t.Once) {
		return invalid.Field(at+"."+map[bool]string{true: "once", false: "source"}[t.Once], "without DOONA_VISITORS",
			"the Durable Object binding DOONA_VISITORS of class Visitors in wrangler.jsonc")
	}
	switch t.Source {
	case FromBackend:
		secret := w.host.Secret(t.BackendKey)
		if !secretPattern.MatchString(secret) {
			return invalid.Field(at+".backendKey", strconv.Quote(t.BackendKey),
				"the name of a secret of 32 characters or more of A-Z a-z 0-9 + / = _ . ~ -: wrangler secret put "+
					t.BackendKey)
		}
		w.backends[name] = credentialOf("Bearer " + secret)
	case FromRequest:
		w.observed = append(w.observed, name)
	}
	return nil
}

// task returns the checked task of a name. It fetches the task at the first call.
func (w *Worker) task(ctx context.Context, name string) (*shufflerclient.Client, error) {
	for {
		w.mu.Lock()
		known := w.tasks[name]
		mine := known.client == nil && time.Since(known.at) >= retryTask && time.Since(known.asked) >= fetching
		if mine {
			w.tasks[name] = connection{at: known.at, asked: time.Now()}
		}
		w.mu.Unlock()
		switch {
		case known.client != nil, time.Since(known.at) < retryTask:
			return known.client, known.err
		case mine:
			client, err := w.connect(ctx, name)
			w.mu.Lock()
			defer w.mu.Unlock()
			w.tasks[name] = connection{client: client, err: err, at: time.Now()}
			return client, err
		}
		w.host.Pause(lookAgain)
	}
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
