// Package edge randomizes values in an edge worker. A page or a backend posts a value, or the worker reads a property
// of a passing request. The worker seals the randomized value and sends the report to the first relay. docs/edge.md is
// the manual; wasm/edge/worker connects the package to Cloudflare's runtime.
//
// The package is plain Go. [Host] holds what the runtime does for one request. The runtime ties all that waits (a
// fetch, a pause) to the request that began it. So the package uses no timers, and no request waits for another's
// fetch: it polls with pauses of its own.
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

// Host holds the runtime's functions for the current request.
type Host struct {
	HTTP       shufflerclient.HTTP // Adds no header Origin: relays take a request with one for a page's.
	Pause      func(time.Duration) // Returns after that time.
	Background func(func())        // Runs work that continues after the answer.
	Log        func(string)        // Logs a line, which never contains a value.
	CheckQuota QuotaCheck          // Nil if the worker has no binding DOONA_VISITORS.
	Secret     func(string) string // Returns the secret with this name, or "".
}

// QuotaCheck counts one more report of a network in an epoch of a task, unless the network already has most reports. It
// returns whether it counted the report. It stores the count until the Unix time end, and fails if it cannot.
type QuotaCheck func(network, epoch string, most, end uint64) (bool, error)

// Observation holds the observed properties of one passing request.
type Observation struct {
	Country string  // "" if unknown.
	Cache   string  // Header cf-cache-status; "" if unknown.
	Latency float64 // In milliseconds.
	Status  int     // HTTP status; 0 if the site's server gave no answer.
	Visitor string  // The visitor's IP address, from which only the network is used.
}

// Worker makes reports for all tasks of one configuration. It is safe for concurrent use.
type Worker struct {
	config   *Config
	observed []string              // names of the tasks with source request
	backends map[string]credential // hashes of the backends' secrets, by task
	host     Host
	load     load

	mu     sync.Mutex // guards the fields below; never held while waiting
	tasks  map[string]connection
	stocks map[string]*stock
	lost   int // number of reports that could not be delivered
}

// connection holds the client of a task that was fetched and checked, or the error of the last attempt.
type connection struct {
	client *shufflerclient.Client
	err    error
	at     time.Time // when the last fetch ended
	asked  time.Time // when a request last began to fetch the task
}

// retryTask is how long the worker waits after a failed fetch before it fetches the task again.
const retryTask = 10 * time.Second

// A request that finds another fetching the task checks again every lookAgain. After fetching, it fetches the task
// itself: the runtime may have ended the other request.
const (
	lookAgain = 20 * time.Millisecond
	fetching  = 2 * time.Second
)

// New returns the worker of a configuration that [ParseConfig] accepted. If the host lacks a secret or binding that the
// configuration names, the error names the field.
func New(c *Config, host Host) (*Worker, error) {
	w := &Worker{config: c, host: host, backends: map[string]credential{}, tasks: map[string]connection{},
		stocks: map[string]*stock{}}
	for _, name := range slices.Sorted(maps.Keys(c.Tasks)) {
		if err := w.equip(name); err != nil {
			return nil, err
		}
	}
	return w, nil
}

// equip looks up the secrets and bindings that a task needs.
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

// task returns the client of a configured task. The first call fetches and checks the task.
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
		"couldn't get the task from its first relay, or the task failed a check", err.Error())
}
