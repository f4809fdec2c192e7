// Command testserver is the server of the browser tests. Its site serves build/www with a very strict content security
// policy. On another origin it runs a fake first relay, which has the keys of all hops and opens every submission. The
// fake relay can also answer like a dishonest one. cmd/demo, by contrast, runs real relays and a verifier.
//
// It prints {"site", "relay", "tasks": {name: {task, owner}}, "sets": {name: {url, owner}}} on one line and serves until
// it is killed. With -pages it serves the verifier's pages instead (pages.go).
package main

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"html"
	"io"
	"net"
	"net/http"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"

	"github.com/doona-dp/doona/wire/endpoint"
	"github.com/doona-dp/doona/wire/task"
)

func main() {
	dir := flag.String("dir", filepath.Join("build", "www"), "folder to serve")
	pages := flag.Bool("pages", false, "serve the verifier's pages in many states instead")
	proxy := flag.String("proxy", "", "URL of a site's path that leads to the relay; adds the task \"first party\", which names it")
	drafts := flag.String("drafts", "", `file of drafts to sign: {name: {"epochs": count, "draft": task}}`)
	more := flag.String("set", "", "also serve the set \"site\", the tables of a site of 5,000 visitors a day, or \"year\"")
	flag.Parse()
	serve := func() error { return run(*dir, *proxy, *drafts, *more) }
	if *pages {
		serve = runPages
	}
	if err := serve(); err != nil {
		fmt.Fprintln(os.Stderr, "testserver:", err)
		os.Exit(1)
	}
}

func run(dir, proxy, drafts, set string) error {
	relayAt, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return fmt.Errorf("couldn't listen: %w", err)
	}
	siteAt, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return fmt.Errorf("couldn't listen: %w", err)
	}
	relayURL, siteURL := "http://"+relayAt.Addr().String(), "http://"+siteAt.Addr().String()
	all, err := scenarios(relayURL, siteURL, proxy)
	if err == nil && drafts != "" {
		err = addDrafts(all, drafts, relayURL)
	}
	if err != nil {
		return err
	}
	r := newRelay(all)
	if r.sets, err = newSets(relayURL, siteURL, set); err != nil {
		return err
	}
	offered, err := r.addStream(relayURL)
	if err != nil {
		return err
	}
	years, err := r.addYears(relayURL, "years", year(10, nil))
	if err != nil {
		return err
	}
	// The pace allows 20 reports in 365 days, as the cap.
	capped, err := r.addYears(relayURL, "capped years", limited(365, task.Cap{Reports: 20, Window: 365},
		task.Cap{Reports: 2, Window: 42}))
	if err != nil {
		return err
	}
	rarely := *rareLabels() // addYears changes it.
	eventful, err := r.addYears(relayURL, "years with events", &rarely)
	if err != nil {
		return err
	}
	wa := &watch{}
	go http.Serve(relayAt, wa.wrap(r.handler()))
	temp, err := os.MkdirTemp("", "doona-testserver-")
	if err != nil {
		return fmt.Errorf("couldn't make a folder: %w", err)
	}
	defer os.RemoveAll(temp)
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	t, err := startTokens(ctx, filepath.Join(temp, "tokens"), wa)
	if err != nil {
		return err
	}
	real, err := startSetRelays(ctx, filepath.Join(temp, "set"), wa)
	if err != nil {
		return err
	}
	if err := announce(siteURL, relayURL, all, r.offerSets(siteURL, real, t),
		map[string]offer{"tokens": t.offer, "stream": offered, "years": years, "capped years": capped,
			"years with events": eventful}); err != nil {
		return err
	}
	go http.Serve(siteAt, site(dir, relayURL+" "+real.relayURL, r, t, wa))
	<-ctx.Done()
	return nil
}

// offer contains the options with which a page connects to a task or stream.
type offer struct {
	Task   string `json:"task,omitempty"`
	Stream string `json:"stream,omitempty"`
	Owner  string `json:"owner"`

	Recovery string `json:"recovery,omitempty"`
	// Candidates are the keys of relays that the page allows to replace relays of the stream.
	Candidates []string `json:"candidates,omitempty"`
	Stride     int      `json:"stride,omitempty"` // days between two visits, in the tests of the stream "years"
}

func announce(site, relay string, all map[string]*scenario, sets map[string]setOffer, tasks map[string]offer) error {
	for name, s := range all {
		tasks[name] = offer{Task: s.Relays[0].URL + s.Path(), Owner: s.OwnerText()}
	}
	return json.NewEncoder(os.Stdout).Encode(map[string]any{"site": site, "relay": relay, "tasks": tasks, "sets": sets})
}

// serviceWorker is a script that passes on and counts all requests of the site's pages, including those to the relay.
const serviceWorker = `let passed = 0;
addEventListener('install', () => skipWaiting());
addEventListener('activate', (event) => event.waitUntil(clients.claim()));
addEventListener('message', ({ ports: [port] }) => port.postMessage(passed));
addEventListener('fetch', (event) => {
  passed++;
  event.respondWith(fetch(event.request));
});
`

// frame serves a page that contains the page of the query parameter "of" in an iframe. Opened at localhost instead of
// 127.0.0.1, it is a foreign site to browsers.
func frame(w http.ResponseWriter, req *http.Request) {
	w.Header().Del("Content-Security-Policy")
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	query := req.URL.Query()
	fmt.Fprintf(w, "<!doctype html><title>frame</title><iframe %s src=%q></iframe>", query.Get("attributes"),
		html.EscapeString(query.Get("of")))
}

// site serves the built pages, a blank page and scripts of tests. Tests control the server with requests below
// /test/.
func site(dir, relayURL string, r *relay, t *tokens, wa *watch) http.Handler {
	mux := http.NewServeMux()
	mux.Handle("GET /", http.FileServer(http.Dir(dir)))
	mux.HandleFunc("GET /blank.html", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/html; charset=utf-8")
		io.WriteString(w, "<!doctype html><html lang=en><title>blank</title><p>blank</p></html>")
	})
	mux.HandleFunc("GET /doona"+endpoint.SetPath, r.serveSet)
	mux.HandleFunc("GET /doona"+endpoint.SetKeysPath, r.serveSet)
	mux.HandleFunc("GET /test/badsets", r.badSets)
	mux.HandleFunc("POST /test/openset/{set}/{day}", r.openSet)
	mux.HandleFunc("GET /frame.html", frame)
	mux.HandleFunc("GET /service-worker.js", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/javascript")
		io.WriteString(w, serviceWorker)
	})
	for _, script := range []string{"cases.mjs", "event-visits.mjs"} {
		mux.HandleFunc("GET /test/"+script, func(w http.ResponseWriter, req *http.Request) {
			http.ServeFile(w, req, filepath.Join("www", "test", script))
		})
	}
	mux.HandleFunc("POST /test/take", r.take)
	mux.HandleFunc("POST /test/letters", r.takeLetters)
	mux.HandleFunc("POST /test/decide", r.decide)
	mux.HandleFunc("POST /test/fail", r.fail)
	mux.HandleFunc("POST /test/requests", wa.take)
	mux.HandleFunc("POST /test/stream", r.setStream)
	mux.HandleFunc("POST /test/renew", r.renew)
	mux.HandleFunc("POST /test/account", r.account)
	mux.HandleFunc("POST /test/login", t.login)
	mux.HandleFunc("POST /test/token", t.token)
	policy := "default-src 'self'; script-src 'self' 'wasm-unsafe-eval'; connect-src 'self' " + relayURL + " " +
		t.relayURL + " " + t.issuerURL
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		w.Header().Set("Content-Security-Policy", policy)
		mux.ServeHTTP(w, req)
	})
}
