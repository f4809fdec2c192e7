package main

import (
	"bytes"
	"context"
	"crypto/ecdh"
	"crypto/rand"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync/atomic"
	"time"

	"github.com/evanw/esbuild/pkg/api"

	"github.com/doona-dp/doona/internal/testing/fixture"
	"github.com/doona-dp/doona/planner"
	"github.com/doona-dp/doona/wasm"
	"github.com/doona-dp/doona/wire/task"
)

// kinds lists the queries of the client rows and the value that the client reports. The planner drafts their tasks for
// 5,000 clients, ε = 1 and δ = 10⁻⁶.
var kinds = []struct {
	name  string
	query planner.Query
	value []float64
}{
	{"count", planner.Query{Query: task.Count}, []float64{1}},
	{"sum16", planner.Query{Query: task.Sum, Hi: 65535}, []float64{12345}},
	{"histogram16", planner.Query{Query: task.Histogram, Bins: 16, Labels: true}, []float64{3}},
	{"histogram256", planner.Query{Query: task.Histogram, Bins: 256, Labels: true}, []float64{3}},
	{"vector1000", planner.Query{Query: task.Vector, Protocol: "vectorsum", Dim: 1000, Hi: 1}, make([]float64, 1000)},
}

// kindDraft drafts the task of a query in kinds. The draft names no relays and no verifier.
func kindDraft(q planner.Query) (*task.Task, error) {
	q.Name, q.Batch, q.Honest, q.Epsilon, q.Delta = "bench", 5000, 0.9, 1, 1e-6
	return planner.Draft(q)
}

// server serves two origins: a site with the SDK, and a fake relay that accepts every report. The fake relay also plays
// the peer's two aggregators.
type server struct {
	site, relay string // addresses
	module      []byte
	tasks       map[string]*fixture.SignedTask
	files       map[string]file
	arrived     atomic.Int64 // reports received since the last request for /arrived
	closers     []io.Closer
}

// file is a file of the site, compressed once when the server loads it.
type file struct {
	kind            string
	plain, brotlied []byte
}

// Server returns the server. The first call builds the site and starts the server.
func (s *Setup) Server(ctx context.Context) (*server, error) {
	if s.server != nil {
		return s.server, nil
	}
	folder, err := s.Site(ctx)
	if err != nil {
		return nil, err
	}
	v := &server{tasks: map[string]*fixture.SignedTask{}, files: map[string]file{}}
	progress("compressing the site")
	if err := v.load(folder, s.Peers(ctx)); err != nil {
		return nil, err
	}
	if v.site, err = v.listen(v.serveFile); err != nil {
		return nil, err
	}
	if v.relay, err = v.listen(v.serveRelay); err != nil {
		return nil, err
	}
	s.server = v
	return v, v.sign()
}

// Close stops listening.
func (v *server) Close() {
	for _, c := range v.closers {
		c.Close()
	}
}

func (v *server) listen(handler http.HandlerFunc) (string, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", fmt.Errorf("couldn't listen: %w", err)
	}
	v.closers = append(v.closers, l)
	go http.Serve(l, handler)
	return "http://" + l.Addr().String(), nil
}

// sign signs one task for each of kinds, and several equal count tasks for the rows of first visits, because a browser
// reports only once to a task.
func (v *server) sign() error {
	add := func(name string, query planner.Query) error {
		draft, err := kindDraft(query)
		if err != nil {
			return err
		}
		epochs := task.Epochs{Start: uint64(time.Now().Unix()) - 60, Length: 24 * 3600, Count: 1}
		signed, err := fixture.Sign(draft, []string{v.relay, "https://second.example"}, epochs)
		v.tasks[name] = signed
		return err
	}
	for _, k := range kinds {
		if err := add(k.name, k.query); err != nil {
			return err
		}
	}
	for _, name := range append([]string{"cached1", "cached3", "cached10"}, states...) {
		if err := add(name, kinds[0].query); err != nil {
			return err
		}
	}
	return nil
}

// load reads, bundles and compresses all files of the site.
func (v *server) load(folder string, peers bool) error {
	var err error
	if v.module, err = readModule(folder, wasm.Browser); err != nil {
		return err
	}
	sources := []string{"ours.ts"}
	if peers {
		sources = append(sources, "peer.ts")
	}
	for _, source := range sources {
		code, err := bundled(source)
		if err != nil {
			return err
		}
		v.add(strings.Replace(source, ".ts", ".js", 1), code)
	}
	for _, pattern := range []string{filepath.Join(folder, "doona.js"), filepath.Join(folder, "doona-worker-*.js"),
		filepath.Join(folder, "doona-[0-9a-f]*.wasm"), filepath.Join(folder, "doona-small-*.wasm"),
		filepath.Join("bench", "browser", "first*"),
		filepath.Join("bench", "browser", "arrives*"), filepath.Join("bench", "browser", "host.*")} {
		names, err := filepath.Glob(pattern)
		if err != nil {
			return fmt.Errorf("couldn't list the site: %w", err)
		}
		for _, name := range names {
			content, err := os.ReadFile(name)
			if err != nil {
				return fmt.Errorf("couldn't read the site: %w", err)
			}
			if strings.HasSuffix(name, ".html") { // pages name files without their hashes: insert these
				for _, file := range []string{wasm.Small.File(), "doona-worker.js"} {
					content = bytes.Replace(content, []byte(file), []byte(v.hashed(file)[1:]), 1)
				}
				v.add("plain-"+filepath.Base(name), hints.ReplaceAll(content, nil))
			}
			if !strings.Contains(name, "doona-full") {
				v.add(filepath.Base(name), content)
			}
		}
	}
	v.add("blank.html", []byte("<!doctype html><title>blank</title>"))
	return nil
}

// hints matches a page's preload links.
var hints = regexp.MustCompile(`<link rel="(?:module)?preload".*\n`)

func (v *server) add(name string, content []byte) {
	kind := map[string]string{".html": "text/html; charset=utf-8", ".js": "text/javascript",
		".wasm": "application/wasm", ".svg": "image/svg+xml"}[filepath.Ext(name)]
	v.files["/"+name] = file{kind, content, brotlied(content)}
}

func (v *server) serveFile(w http.ResponseWriter, r *http.Request) {
	f, ok := v.files[r.URL.Path]
	if !ok {
		http.NotFound(w, r)
		return
	}
	w.Header().Set("Content-Type", f.kind)
	w.Header().Set("Cache-Control", "max-age=31536000, immutable")
	if strings.Contains(r.Header.Get("Accept-Encoding"), "br") {
		w.Header().Set("Content-Encoding", "br")
		w.Write(f.brotlied)
		return
	}
	w.Write(f.plain)
}

// offer returns the options that a page passes to the SDK for a task: its address and its owner's key.
func (v *server) offer(name string) map[string]string {
	return map[string]string{"task": v.relay + v.tasks[name].Path(), "owner": v.tasks[name].OwnerText()}
}

// serveRelay serves tasks and the peer's keys, and accepts every report. /arrived returns the number of reports since
// the previous request for it.
func (v *server) serveRelay(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Access-Control-Allow-Origin", "*")
	w.Header().Set("Access-Control-Allow-Headers", "Content-Type")
	w.Header().Set("Access-Control-Allow-Methods", "GET, POST, PUT")
	w.Header().Set("Access-Control-Max-Age", "86400")
	io.Copy(io.Discard, r.Body)
	switch {
	case r.URL.Path == "/arrived":
		fmt.Fprint(w, v.arrived.Swap(0))
	case r.Method == http.MethodOptions:
		w.WriteHeader(http.StatusNoContent)
	case strings.HasSuffix(r.URL.Path, "/hpke_config"):
		w.Header().Set("Content-Type", "application/dap-hpke-config-list")
		w.Write(dapKeys())
	case r.Method != http.MethodGet:
		v.arrived.Add(1)
		w.WriteHeader(http.StatusCreated)
	default:
		v.serveTask(w, r)
	}
}

func (v *server) serveTask(w http.ResponseWriter, r *http.Request) {
	for _, t := range v.tasks {
		if t.Path() != r.URL.Path {
			continue
		}
		bundle, err := t.Bundle.Bytes()
		if err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
			return
		}
		w.Write(bundle)
		return
	}
	http.NotFound(w, r)
}

// dapKeys returns an aggregator's list of one HPKE configuration with a fresh key (draft-ietf-ppm-dap-09 section
// 4.4.1): id, KEM X25519, KDF HKDF-SHA256, AEAD AES-128-GCM and the public key.
func dapKeys() []byte {
	key, err := ecdh.X25519().GenerateKey(rand.Reader)
	if err != nil {
		panic(err) // crypto/rand does not fail
	}
	config := []byte{1, 0, 0x20, 0, 1, 0, 1, 0, 32}
	config = append(config, key.PublicKey().Bytes()...)
	return append(binary.BigEndian.AppendUint16(nil, uint16(len(config))), config...)
}

// bundled bundles and minifies a script of bench/browser and all its imports into one module.
func bundled(source string) ([]byte, error) {
	result := api.Build(api.BuildOptions{
		EntryPoints: []string{filepath.Join("bench", "browser", source)},
		NodePaths:   []string{filepath.Join("bench", "peers", "node_modules")},
		Bundle:      true, Format: api.FormatESModule, Target: api.ES2022,
		MinifyWhitespace: true, MinifyIdentifiers: true, MinifySyntax: true,
		LogLevel: api.LogLevelSilent,
	})
	if len(result.Errors) > 0 {
		return nil, fmt.Errorf("couldn't bundle %s: %s", source, result.Errors[0].Text)
	}
	return result.OutputFiles[0].Contents, nil
}
