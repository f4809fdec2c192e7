package service

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/doona-dp/doona/internal/display"
)

// Admin serves a program's state to its operator, at an address that must not be public.
type Admin struct {
	Ready        func(context.Context) error        // returns why the program cannot work, or nil if it can
	Warnings     func() []string                    // returns what a ready program cannot do; nil: nothing
	Status       func(context.Context) (any, error) // returns the body of /status, which Handler encodes as JSON
	UpdateGauges func(context.Context)              // sets the gauges in Metrics; called before each scrape
	Metrics      *Metrics
	Address      string   // host:port to listen on
	Hosts        []string // host names that requests may use besides Address: the setting admin_hosts
}

const settingAdminHosts = "admin_hosts"

// HandleHealth answers balancers at /healthz of a public address: 204, or 503 without a reason while ready returns an
// error. Anybody may ask, and ready may write to a disk, so it is called at most once a second.
func (m *Mux) HandleHealth(ready func(context.Context) error) {
	m.HandleFunc("GET /healthz", health(ready))
}

func health(ready func(context.Context) error) http.HandlerFunc {
	var mu sync.Mutex
	var last error
	var at time.Time
	return func(w http.ResponseWriter, req *http.Request) {
		mu.Lock()
		defer mu.Unlock()
		if time.Since(at) >= time.Second {
			ctx, stop := context.WithTimeout(context.WithoutCancel(req.Context()), ReadTimeout)
			defer stop()
			last, at = ready(ctx), time.Now()
		}
		w.Header().Set("Cache-Control", "no-store")
		if last != nil {
			http.Error(w, "not ready", http.StatusServiceUnavailable)
			return
		}
		w.WriteHeader(http.StatusNoContent)
	}
}

// handleLevel answers at /log-level: GET returns the level of the log, and PUT sets it until the program ends.
func handleLevel(mux *http.ServeMux, log *slog.Logger) {
	level := levelOf(log)
	if level == nil {
		return
	}
	mux.HandleFunc("GET /log-level", func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprintln(w, level.Level())
	})
	mux.HandleFunc("PUT /log-level", func(w http.ResponseWriter, req *http.Request) {
		text, err := io.ReadAll(io.LimitReader(req.Body, 16))
		if err == nil {
			err = level.SetLevel(strings.TrimSpace(string(text)))
		}
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		w.WriteHeader(http.StatusNoContent)
	})
}

// adminWait is how long an answer waits for a database that does not answer. Probes wait for 15 seconds, and Prometheus
// for 10.
const adminWait = 5 * time.Second

// within serves requests whose context ends after adminWait.
func within(handle http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, req *http.Request) {
		ctx, stop := context.WithTimeout(req.Context(), adminWait)
		defer stop()
		handle(w, req.WithContext(ctx))
	}
}

// Handler returns /healthz, /readyz, /metrics, /status and, if the level of log can be changed, /log-level.
func (a *Admin) Handler(log *slog.Logger) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNoContent) })
	mux.HandleFunc("GET /readyz", within(func(w http.ResponseWriter, req *http.Request) {
		if err := a.Ready(req.Context()); err != nil {
			http.Error(w, "not ready: "+err.Error(), http.StatusServiceUnavailable)
			return
		}
		if a.Warnings != nil {
			if lines := a.Warnings(); len(lines) > 0 {
				fmt.Fprintln(w, "ready, but:\n"+strings.Join(lines, "\n"))
				return
			}
		}
		w.WriteHeader(http.StatusNoContent)
	}))
	scrape := a.Metrics.Handler()
	mux.HandleFunc("GET /metrics", within(func(w http.ResponseWriter, req *http.Request) {
		a.UpdateGauges(req.Context())
		scrape.ServeHTTP(w, req)
	}))
	mux.HandleFunc("GET /status", within(Answer(log, func(w http.ResponseWriter, req *http.Request) error {
		status, err := a.Status(req.Context())
		if err != nil {
			return err
		}
		out, err := json.Marshal(status)
		if err != nil {
			return fmt.Errorf("couldn't encode the status: %w", err)
		}
		return Write(w, "application/json", display.JSON(out))
	})))
	handleLevel(mux, log)
	return display.Protect(display.Bare, display.NewHosts(settingAdminHosts, log, a.Address, a.Hosts).Guard(mux))
}
