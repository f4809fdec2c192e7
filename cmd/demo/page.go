package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/doona-dp/doona/internal/display"
	"github.com/doona-dp/doona/verifier/report"
	"github.com/doona-dp/doona/wire/problem"
	"github.com/doona-dp/doona/wire/task"
)

// liveTask is the name of the task to which you can report on the demo's page.
const liveTask = "live"

type page struct {
	www   string
	tasks map[string]*pageTask // By name, as in the page's addresses.
	alone *attack
	month *monthMaker
	hosts *display.Hosts
}

// listenSite opens the address of the page. It returns an error if the page is not built.
func (o *options) listenSite() (net.Listener, error) {
	if _, err := os.Stat(filepath.Join(o.www, "index.html")); err != nil {
		return nil, fmt.Errorf("couldn't find the page in %s: run 'make build', or use --headless", o.www)
	}
	l, err := net.Listen("tcp", o.listen)
	if err != nil {
		return nil, fmt.Errorf("couldn't serve the page: %w", err)
	}
	return l, nil
}

// originsOf returns the origins of pages that are served at a loopback address. For another address it returns none,
// because the names of this machine are unknown. Then pages of any origin may report.
func originsOf(site net.Listener) []string {
	at := site.Addr().(*net.TCPAddr)
	if !at.IP.IsLoopback() && !at.IP.IsUnspecified() {
		return nil
	}
	port := fmt.Sprintf(":%d", at.Port)
	if at.Port == 80 { // the default port, which browsers omit in origins
		port = ""
	}
	return []string{"http://127.0.0.1" + port, "http://[::1]" + port, "http://localhost" + port}
}

func (w *world) servePage(ctx context.Context, cmd *cobra.Command, o *options, l net.Listener,
	tasks map[string]*pageTask) error {
	p := &page{o.www, tasks, w.attack, &monthMaker{ctx: ctx, seed: o.seed}, o.hosts.Hosts(cmd, o.listen)}
	server := &http.Server{Handler: p.handler(w.main.Open.Relays[0].URL), ReadHeaderTimeout: 10 * time.Second}
	fmt.Fprintf(cmd.ErrOrStderr(), "\nAdd a report of your own: http://%s (end with Ctrl-C)\n", l.Addr())
	fmt.Fprintf(cmd.ErrOrStderr(), "A site's month:           http://%s/month/\n", l.Addr())
	fmt.Fprintf(cmd.ErrOrStderr(), "Private Core Web Vitals:  http://%s/examples/web-vitals/\n", l.Addr())
	fmt.Fprintf(cmd.ErrOrStderr(), "What the verifier sees:   http://%s/verifier/\n", l.Addr())
	stopped := context.AfterFunc(ctx, func() { server.Close() })
	defer stopped()
	if err := server.Serve(l); !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("couldn't serve the page: %w", err)
	}
	return nil
}

// handler serves the built pages, the verifier's pages, and each task's state, chart and simulated clients. The pages
// may contact only this server and the first relay.
func (p *page) handler(relay string) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /api/month", p.month.serve)
	mux.HandleFunc("GET /api/month/charts/{chart}", p.month.serveChart)
	mux.HandleFunc("GET /api/{task}", p.of(serveState))
	mux.HandleFunc("GET /api/{task}/chart", p.of(serveChart))
	mux.HandleFunc("POST /api/{task}/fill", p.of(serveFill))
	mux.HandleFunc("POST /api/alone", p.alone.serve)
	mux.Handle("GET /", http.FileServer(http.Dir(p.www)))
	site := report.NewSite()
	others := slices.DeleteFunc(slices.Sorted(maps.Keys(p.tasks)), func(name string) bool { return name == liveTask })
	for _, name := range append([]string{liveTask}, others...) {
		r := p.tasks[name].task
		site.Add(r.Verifier, nil)
		at := "/verifier/tasks/" + r.Open.ID.String() + "/"
		mux.Handle("GET /verifier/"+name+"/", http.RedirectHandler(at, http.StatusFound))
	}
	mux.Handle("GET /verifier/", http.StripPrefix("/verifier", site.Handler()))
	return display.Protect(display.PagePolicy("'wasm-unsafe-eval'", relay), p.hosts.Guard(mux))
}

func (p *page) of(serve func(*pageTask, http.ResponseWriter, *http.Request) error) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		c := p.tasks[r.PathValue("task")]
		if c == nil {
			http.NotFound(w, r)
			return
		}
		w.Header().Set("Cache-Control", "no-store")
		if err := serve(c, w, r); err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
		}
	}
}

func serveState(c *pageTask, w http.ResponseWriter, _ *http.Request) error {
	s, err := c.state()
	if err != nil {
		return err
	}
	w.Header().Set("Content-Type", "application/json")
	return json.NewEncoder(w).Encode(s)
}

// serveChart draws a task's estimates. The request gives the width in pixels.
func serveChart(c *pageTask, w http.ResponseWriter, r *http.Request) error {
	width, err := strconv.Atoi(r.FormValue("width"))
	if err != nil || width < 260 || width > 4000 {
		problem.New(problem.Malformed, "invalid width: want 260 to 4000").Write(w)
		return nil
	}
	s, err := c.state()
	if err != nil {
		return err
	}
	w.Header().Set("Content-Type", "image/svg+xml")
	_, err = io.WriteString(w, string(s.chart(width)))
	return err
}

// serveFill adds simulated clients to an epoch: as many as requested, or else one less than a batch. It answers how
// many reports of the epoch are in batches that will be released. So a page can tell whether its earlier report will
// be.
func serveFill(c *pageTask, w http.ResponseWriter, r *http.Request) error {
	t := c.task.Open
	size := t.Batch.Size
	ask := struct {
		Epoch    uint64 `json:"epoch"`
		Clients  uint64 `json:"clients"`
		Reported bool   `json:"reported"` // whether a person has reported; the page says so once
	}{Clients: size - 1}
	err := json.NewDecoder(http.MaxBytesReader(w, r.Body, 1024)).Decode(&ask)
	if err != nil || ask.Epoch >= t.Epochs.Count || ask.Clients > size {
		problem.New(problem.Malformed, `want {"epoch": below %d, "clients": at most %d}`, t.Epochs.Count, size).Write(w)
		return nil
	}
	if ask.Reported {
		c.joined(ask.Epoch)
	}
	err = c.play(r.Context(), ask.Epoch, ask.Clients)
	reports := c.reports(ask.Epoch)
	switch over := time.Now().Unix() >= int64(t.Epochs.End(ask.Epoch)); {
	case err == nil:
		reports -= reports % size // only full batches; a report from before these clients is in one of them
	case !over:
		return err
	case t.Claim.Assumption != task.NoneHonest: // otherwise a last, smaller batch is released, too
		problem.New(problem.EpochClosed, "the epoch ended before its batch was full: report in the next epoch").Write(w)
		return nil
	}
	w.Header().Set("Content-Type", "application/json")
	return json.NewEncoder(w).Encode(map[string]uint64{"reports": reports})
}
