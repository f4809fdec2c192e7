package main

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"time"

	"github.com/doona-dp/doona/internal/testing/fixture"
	"github.com/doona-dp/doona/internal/testing/workerd"
	"github.com/doona-dp/doona/wasm"
	"github.com/doona-dp/doona/wire/task"
)

// edgeWorker measures what a value posted to an edge worker costs. edge/cpu is workerd's CPU time per request in ms,
// including HTTP and the report to the relay. edge/gzip is the size of the upload in bytes. Peer and limit are workers
// that do nothing: the peer with the entry script of syumai/workers, which starts Go for each request; the limit with
// ours, which starts Go once.
var edgeWorker = Group{Names: []string{"edge/cpu", "edge/gzip"}, Run: measureEdge}

// emptyWorker is the source of a worker that answers 204.
const emptyWorker = `package main

import (
	"net/http"

	"github.com/syumai/workers"
)

func main() {
	workers.ServeNonBlock(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNoContent) }))
	workers.Ready()
	select {}
}
`

// Each of edgeRuns runs sends edgeRequests requests, one at a time, after edgeWarm requests to warm up.
const (
	edgeRuns     = 3
	edgeRequests = 250
	edgeWarm     = 50
)

func measureEdge(ctx context.Context, s *Setup) ([]Row, error) {
	dirs, err := buildWorkers(ctx)
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(filepath.Dir(dirs[0]))
	sizes := make([]float64, len(dirs))
	for i, dir := range dirs {
		if sizes[i], err = uploadSize(dir); err != nil {
			return nil, err
		}
	}
	program, err := workerd.Path(".")
	if err != nil {
		if _, err = s.Chromium(ctx); err != nil {
			return nil, err
		}
		if program, err = workerd.Path("."); err != nil {
			return nil, err
		}
	}
	progress("measuring workers in workerd")
	costs := make([][]float64, len(dirs))
	for range edgeRuns {
		for i, entry := range []string{"entry.mjs", "worker.mjs", "entry.mjs"} {
			cost, err := workerCost(ctx, program, dirs[i], entry, i == 0)
			if err != nil {
				return nil, err
			}
			costs[i] = append(costs[i], cost)
		}
	}
	const peer, floor = "an empty worker of syumai/workers", "an empty worker, Go started once"
	return []Row{
		newRow("edge/cpu", "ms", lower, costs[0]...).against(peer, costs[1]...).within(floor, median(costs[2])),
		newRow("edge/gzip", "bytes", lower, sizes[0]).against(peer, sizes[1]).within(floor, sizes[2]),
	}, nil
}

// buildWorkers builds three workers and returns their folders: ours, an empty worker with the standard entry script,
// and an empty worker with our entry script.
func buildWorkers(ctx context.Context) ([]string, error) {
	progress("building the edge workers")
	root, err := os.MkdirTemp("", "doona-bench")
	if err != nil {
		return nil, fmt.Errorf("couldn't make a folder: %w", err)
	}
	dirs := []string{filepath.Join(root, "edge"), filepath.Join(root, "stock"), filepath.Join(root, "once")}
	source := filepath.Join(root, "main.go")
	if err := os.WriteFile(source, []byte(emptyWorker), 0o600); err != nil {
		return nil, fmt.Errorf("couldn't write the empty worker: %w", err)
	}
	if err := wasm.BuildEdge(ctx, dirs[0]); err != nil {
		return nil, err
	}
	for _, dir := range dirs[1:] {
		if err := wasm.BuildWorker(ctx, source, dir); err != nil {
			return nil, err
		}
	}
	return dirs, wasm.ReplaceEntry(dirs[2])
}

// uploadSize returns the total size of a worker's files in bytes, each compressed by gzip at its best level.
func uploadSize(dir string) (total float64, err error) {
	files, err := os.ReadDir(dir)
	if err != nil {
		return 0, fmt.Errorf("couldn't read the worker: %w", err)
	}
	for _, f := range files {
		content, err := os.ReadFile(filepath.Join(dir, f.Name()))
		if err != nil {
			return 0, fmt.Errorf("couldn't read the worker: %w", err)
		}
		total += float64(len(gzipped(content)))
	}
	return total, nil
}

// workerCost returns the median CPU time of one request, in milliseconds. If reports is set, it counts a request's CPU
// time until the relay has received the report.
func workerCost(ctx context.Context, program, dir, entry string, reports bool) (float64, error) {
	relay, config, arrived, err := edgeRelay()
	if err != nil {
		return 0, err
	}
	defer relay.Close()
	p, err := workerd.Start(ctx, program,
		workerd.Options{Dir: dir, Entry: entry, Outbound: relay.Listener.Addr().String(), Vars: config})
	if err != nil {
		return 0, err
	}
	defer p.Close()
	var costs []float64
	for i := range edgeWarm + edgeRequests {
		before, err := p.CPU()
		if err != nil {
			return 0, err
		}
		want := arrived.Load() + 1
		if err := postValue(p.URL + "/doona/x"); err != nil {
			return 0, fmt.Errorf("%w\n%s", err, p.Log())
		}
		for began := time.Now(); reports && arrived.Load() < want; time.Sleep(time.Millisecond) {
			if time.Since(began) > 30*time.Second {
				return 0, fmt.Errorf("the relay received no report within 30 s; the worker's log:\n%s", p.Log())
			}
		}
		time.Sleep(2 * time.Millisecond) // workerd may still work after its answer
		after, err := p.CPU()
		if err != nil {
			return 0, err
		}
		if i >= edgeWarm {
			costs = append(costs, float64(after-before)/float64(time.Millisecond))
		}
	}
	return median(costs), nil
}

// edgeRelay starts a fake first relay that serves a histogram task of 16 bins and counts the reports that arrive.
func edgeRelay() (*httptest.Server, map[string]any, *atomic.Int64, error) {
	arrived := &atomic.Int64{}
	var bundle []byte
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		if req.Method == http.MethodGet {
			w.Write(bundle)
			return
		}
		io.Copy(io.Discard, req.Body)
		w.WriteHeader(http.StatusCreated)
		arrived.Add(1)
	}))
	epochs := task.Epochs{Start: uint64(time.Now().Unix()) - 60, Length: 3600, Count: 1}
	f, err := fixture.Sign(fixture.Draft(task.Histogram, 16), []string{server.URL, "https://second.example"}, epochs)
	if err == nil {
		bundle, err = f.Bundle.Bytes()
	}
	if err != nil {
		server.Close()
		return nil, nil, nil, err
	}
	x := map[string]any{"task": server.URL + f.Path(), "owner": f.OwnerText(), "maxEpsilon": 1, "source": "backend",
		"backendKey": "BACKEND"}
	return server, map[string]any{"BACKEND": edgeSecret,
		"DOONA": map[string]any{"delay": 0, "tasks": map[string]any{"x": x}}}, arrived, nil
}

// edgeSecret is the bearer token with which the bench posts values to the worker.
const edgeSecret = "the-secret-of-a-backend-0123456789abc"

func postValue(url string) error {
	req, err := http.NewRequest(http.MethodPost, url, strings.NewReader(`{"value": 3}`))
	if err != nil {
		return fmt.Errorf("couldn't post: %w", err)
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Authorization", "Bearer "+edgeSecret)
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return fmt.Errorf("couldn't post: %w", err)
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusNoContent {
		return fmt.Errorf("couldn't post a value to the worker: status %s, want 204", resp.Status)
	}
	return nil
}
