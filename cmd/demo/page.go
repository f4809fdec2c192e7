package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/spf13/cobra"

	"github.com/doona-dp/doona/relay/problem"
	"github.com/doona-dp/doona/verifier"
)

// state is what the page polls at /api/demo.
type state struct {
	TaskURL   string  `json:"task_url"`
	Owner     string  `json:"owner"`
	Title     string  `json:"title"`
	Unit      string  `json:"unit"`
	Query     string  `json:"query"`
	Lo        float64 `json:"lo"`
	Hi        float64 `json:"hi"`
	Bins      uint64  `json:"bins"`
	Batch     uint64  `json:"batch"`
	Hops      int     `json:"hops"`
	Simulated bool    `json:"simulated"`
	verifier.Guarantee
	Epoch   epochState `json:"epoch"`
	History []row      `json:"history"`
}

type epochState struct {
	Number uint64    `json:"number"`
	EndsAt time.Time `json:"ends_at"`
}

// row is a released epoch. Truth is that of the simulated clients alone: the person's value is
// known to no one here.
type row struct {
	Epoch uint64          `json:"epoch"`
	Users uint64          `json:"users"`
	Truth verifier.Values `json:"truth"`
	verifier.Answer
}

// page serves the site on which a person reports.
type page struct {
	o    *options
	road *road
	rows [][]float64

	mu    sync.Mutex             // guards crowd and next
	crowd map[uint64][][]float64 // Rows of the simulated clients, by epoch.
	next  int                    // Where in rows the next crowd starts.
}

func (w *world) servePage(ctx context.Context, cmd *cobra.Command, o *options, rows [][]float64) error {
	if _, err := os.Stat(filepath.Join(o.www, "index.html")); err != nil {
		return fmt.Errorf("couldn't find the page in %s: run 'make build', or use --headless", o.www)
	}
	l, err := net.Listen("tcp", o.listen)
	if err != nil {
		return fmt.Errorf("couldn't serve the page: %w", err)
	}
	p := &page{o: o, road: w.live, rows: rows, crowd: map[uint64][][]float64{}}
	server := &http.Server{Handler: p.handler(), ReadHeaderTimeout: 10 * time.Second}
	fmt.Fprintf(cmd.ErrOrStderr(), "\nAdd a report of your own: http://%s (end with Ctrl-C)\n", l.Addr())
	stopped := context.AfterFunc(ctx, func() { server.Close() })
	defer stopped()
	if err := server.Serve(l); !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("couldn't serve the page: %w", err)
	}
	return nil
}

func (p *page) handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /api/demo", p.state)
	mux.HandleFunc("POST /api/fill", p.fill)
	mux.Handle("GET /", http.FileServer(http.Dir(p.o.www)))
	policy := "default-src 'self'; script-src 'self' 'wasm-unsafe-eval'; connect-src 'self' " + p.road.open.Relays[0].URL
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Security-Policy", policy)
		w.Header().Set("Referrer-Policy", "no-referrer")
		w.Header().Set("X-Content-Type-Options", "nosniff")
		mux.ServeHTTP(w, r)
	})
}

func (p *page) state(w http.ResponseWriter, _ *http.Request) {
	report, err := p.road.verifier.Report()
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	t := p.road.open
	number, running := t.Epochs.At(uint64(time.Now().Unix()))
	if !running {
		number = t.Epochs.Count - 1
	}
	s := state{
		TaskURL: p.road.url, Owner: p.road.owner, Title: p.title(), Unit: p.unit(), Query: t.Query,
		Lo: t.Input.Lo.Float64(), Hi: t.Input.Hi.Float64(), Bins: t.Input.Bins, Batch: t.Batch.Size, Hops: p.o.hops,
		Simulated: true, Guarantee: report.Guarantee,
		Epoch: epochState{number, time.Unix(int64(t.Epochs.End(number)), 0).UTC()}, History: []row{},
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, e := range report.Ledger.Epochs {
		exact, err := truth(t.Task, p.o, p.crowd[e.Epoch])
		if err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
			return
		}
		s.History = append(s.History, row{e.Epoch, e.Users, exact, e.Answer})
	}
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Cache-Control", "no-store")
	json.NewEncoder(w).Encode(s)
}

// fill adds the simulated clients that complete the batch a person's report is in.
func (p *page) fill(w http.ResponseWriter, r *http.Request) {
	var ask struct {
		Epoch uint64 `json:"epoch"`
	}
	if err := json.NewDecoder(http.MaxBytesReader(w, r.Body, 1024)).Decode(&ask); err != nil || ask.Epoch >= p.road.open.Epochs.Count {
		problem.New(problem.Malformed, `want {"epoch": number}`).Write(w)
		return
	}
	if err := p.road.send(r.Context(), p.o, ask.Epoch, p.gather(ask.Epoch), func() {}); err != nil {
		http.Error(w, err.Error(), http.StatusBadGateway)
		return
	}
	w.WriteHeader(http.StatusNoContent)
}

// gather picks the rows of the next crowd, one client short of a batch.
func (p *page) gather(epoch uint64) [][]float64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	crowd := make([][]float64, p.road.open.Batch.Size-1)
	for i := range crowd {
		crowd[i] = p.rows[p.next%len(p.rows)]
		p.next++
	}
	p.crowd[epoch] = append(p.crowd[epoch], crowd...)
	return crowd
}

// title and unit describe the question; they are known for the flights only.
func (p *page) title() string {
	if p.o.input == "" && p.o.column == "delay_minutes" {
		return "How late was your flight?"
	}
	return "Your " + p.o.column
}

func (p *page) unit() string {
	if p.o.input == "" && p.o.column == "delay_minutes" {
		return "minutes"
	}
	return ""
}
