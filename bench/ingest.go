package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/doona-dp/doona/internal/openloop"
	"github.com/doona-dp/doona/internal/quickstart"
	"github.com/doona-dp/doona/internal/testing/pgtest"
	"github.com/doona-dp/doona/randomizer"
	"github.com/doona-dp/doona/wire/keyfile"
	"github.com/doona-dp/doona/wire/onion"
	"github.com/doona-dp/doona/wire/task"
)

// ingest is the rate of a first relay: durable reports per second of its process's CPU time. The limit, measured in
// the same run, is bench/bare: the same HTTP server, one open and values of the same sizes, without anything that
// makes it a relay. The peer is a floor instead of a competitor: bare HPKE opens of the same envelopes. p99 is the
// latency of 256 clients who each send as soon as they have an answer; its peer is the bare server's.
var ingest = Group{Names: ingestNames(), Run: measureIngest}

func ingestNames() (names []string) {
	for _, name := range []string{"relay/ingest/sqlite", "relay/ingest/postgres", "relay/ingest/sqlite/b16",
		"relay/ingest/postgres/b16"} {
		names = append(names, name, name+"/p99")
	}
	return names
}

// ingestRuns is how often each server is measured, by turns.
const ingestRuns = 5

// connections is how many clients post at a time.
const connections = 256

func measureIngest(ctx context.Context, s *Setup) (rows []Row, err error) {
	bins, err := s.Folder("ingest")
	if err != nil {
		return nil, err
	}
	if _, err := command(ctx, "go", "build", "-o", bins+"/", "./cmd/relay", "./bench/bare"); err != nil {
		return nil, err
	}
	postgres, err := pgtest.Start()
	if err != nil {
		return nil, err
	}
	defer postgres.Stop()
	stores := map[string]func(folder string) (string, error){
		"sqlite":   intoSQLite,
		"postgres": func(string) (string, error) { return postgres.Database() },
	}
	for _, size := range []struct {
		suffix         string
		slots, reports int
	}{{"", 1, 12_000}, {"/b16", 16, 4_000}} {
		progress("sealing %d reports of %d slots", size.reports, size.slots)
		f, err := newField(filepath.Join(bins, fmt.Sprint("b", size.slots)), size.slots, size.reports)
		if err != nil {
			return nil, err
		}
		for _, store := range []string{"sqlite", "postgres"} {
			name := "relay/ingest/" + store + size.suffix
			if !s.wanted(name) && !s.wanted(name+"/p99") {
				continue
			}
			got, err := f.measure(ctx, bins, name, stores[store])
			if err != nil {
				return nil, fmt.Errorf("%s: %w", name, err)
			}
			rows = append(rows, got...)
		}
	}
	return rows, nil
}

// field is a deployment whose first relay is measured, with reports for it.
type field struct {
	*quickstart.Deployment
	listen, admin string
	reports       []*openloop.LoadReport
	opens         float64 // bare HPKE opens per second of CPU time
}

// newField lays out two relays and seals reports of some slots.
func newField(dir string, slots, reports int) (*field, error) {
	f := &field{reports: make([]*openloop.LoadReport, reports)}
	var addresses [4]string
	for i := range addresses {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			return nil, fmt.Errorf("couldn't listen: %w", err)
		}
		addresses[i] = l.Addr().String()
		l.Close()
	}
	f.listen, f.admin = addresses[0], addresses[1]
	var err error
	f.Deployment, err = quickstart.Write(dir, []quickstart.Relay{
		{URL: "http://" + addresses[0], Listen: addresses[0], Admin: addresses[1],
			TrustedProxies: []string{"127.0.0.0/8"}},
		{URL: "http://" + addresses[2], Listen: addresses[2], Admin: addresses[3]},
	}, []quickstart.Draft{{Name: "ingest", Task: ingestTask(slots, reports)}})
	if err != nil {
		return nil, err
	}
	if err := f.seal(slots); err != nil {
		return nil, err
	}
	return f, f.measureOpens()
}

// ingestTask is a task whose batch is never full, so that none is sealed while reports are counted.
func ingestTask(slots, reports int) *task.Task {
	return &task.Task{
		Name: "ingest", Query: task.Count, Protocol: "opaque", Rule: "none", KEM: task.KEMX25519,
		Input:   task.Input{Lo: randomizer.NewRational(0, 1), Hi: randomizer.NewRational(1, 1)},
		Claim:   task.NewClaim("1", "1e-6"),
		Batch:   task.Batch{Size: uint64(reports) + 1, Honest: randomizer.NewRational(9, 10), Min: 1},
		Slots:   task.Slots{Padding: task.PaddingFull, Lanes: 1, PerLane: uint64(slots), MessageBytes: 8},
		Epochs:  task.Epochs{Start: uint64(time.Now().Unix()), Length: 24 * 3600, Count: 1},
		Clients: task.Clients{Kind: task.ClientAddress, Quota: 1},
	}
}

func (f *field) seal(slots int) error {
	open := f.Bundles[0]
	sealer, err := onion.NewSealer(open.Task, open.ID, open.KeyLists)
	if err != nil {
		return err
	}
	return inParallel(runtime.NumCPU(), len(f.reports), func(i int) error {
		messages := make([]task.Message, slots)
		for j := range messages {
			messages[j] = task.Message{Body: make([]byte, 8)}
		}
		body, err := sealer.Seal(0, [][]task.Message{messages})
		f.reports[i] = &openloop.LoadReport{Body: body, Client: fmt.Sprintf("10.%d.%d.1", i>>8, i&0xff)}
		return err
	})
}

// measureOpens opens envelopes and does nothing else.
func (f *field) measureOpens() error {
	opener, err := f.opener()
	if err != nil {
		return err
	}
	var rates []float64
	for range ingestRuns {
		before, err := openloop.CPUSeconds(os.Getpid())
		if err != nil {
			return err
		}
		for _, report := range f.reports {
			if _, err := opener.OpenEnvelope(report.Body); err != nil {
				return err
			}
		}
		after, err := openloop.CPUSeconds(os.Getpid())
		if err != nil {
			return err
		}
		rates = append(rates, float64(len(f.reports))/(after-before))
	}
	f.opens = median(rates)
	return nil
}

func (f *field) opener() (*onion.Opener, error) {
	keys, err := keyfile.LoadHPKE(f.keys())
	if err != nil {
		return nil, err
	}
	key, err := keys.Key(0)
	if err != nil {
		return nil, err
	}
	return onion.NewOpener(f.Bundles[0].Task, f.Bundles[0].ID, 0, 0, key)
}

func (f *field) keys() string { return filepath.Join(f.Dir, "relay1", "ingest.keys") }

// side is a server that takes reports. It has the rate and the 99th percentile of latency of each run.
type side struct {
	args        func(folder string) []string
	rates, p99s []float64
}

// measure has the relay and the bare server take all reports by turns, each time into a new store.
func (f *field) measure(ctx context.Context, bins, name string, store func(string) (string, error)) ([]Row, error) {
	ours, bare := f.sides(bins)
	for run := range ingestRuns {
		progress("%s %d of %d", name, run+1, ingestRuns)
		turn := []*side{ours, bare}
		if run%2 == 1 {
			turn[0], turn[1] = bare, ours
		}
		for _, one := range turn {
			if err := f.take(ctx, one, store); err != nil {
				return nil, err
			}
		}
	}
	const limit = "same HTTP server, one open, the same stored bare"
	return []Row{newRow(name, "reports/cpu-s", higher, ours.rates...).against("bare HPKE opens", f.opens).
		within(limit, median(bare.rates)),
		newRow(name+"/p99", "ms", lower, ours.p99s...).against(limit, bare.p99s...)}, nil
}

// sides are the relay and the bare server.
func (f *field) sides(bins string) (ours, bare *side) {
	return &side{args: func(folder string) []string {
			return []string{filepath.Join(bins, "relay"), "serve", "--config", filepath.Join(folder, "relay.yaml")}
		}}, &side{args: func(string) []string {
			return []string{filepath.Join(bins, "bare"), "--bundle", filepath.Join(f.Dir, "ingest.bundle"),
				"--keys", f.keys(), "--listen", f.listen, "--admin", f.admin}
		}}
}

// take starts a server on a new store, posts every report once and notes how many it took per second of
// its CPU time, and how long 99 of 100 waited at most. The server has a copy of the first relay's folder:
// a relay's keys are good for one store only.
func (f *field) take(ctx context.Context, one *side, store func(string) (string, error)) error {
	folder, err := os.MkdirTemp(f.Dir, "run")
	if err != nil {
		return fmt.Errorf("couldn't make a folder: %w", err)
	}
	defer os.RemoveAll(folder)
	if err := quickstart.Copy(folder, filepath.Join(f.Dir, "relay1")); err != nil {
		return err
	}
	where, err := store(folder)
	if err != nil {
		return err
	}
	args := one.args(folder)
	cmd := exec.CommandContext(ctx, args[0], append(args[1:], "--store", where)...)
	var problems bytes.Buffer
	cmd.Stderr = &problems
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("couldn't start %s: %w", filepath.Base(args[0]), err)
	}
	defer func() {
		cmd.Process.Signal(syscall.SIGTERM)
		cmd.Wait()
	}()
	if err := ready("http://" + f.admin + "/readyz"); err != nil {
		return fmt.Errorf("%w\n%s", err, &problems)
	}
	before, err := openloop.CPUSeconds(cmd.Process.Pid)
	if err != nil {
		return err
	}
	p99, err := f.post(ctx)
	if err != nil {
		return fmt.Errorf("%w\n%s", err, &problems)
	}
	after, err := openloop.CPUSeconds(cmd.Process.Pid)
	one.rates, one.p99s = append(one.rates, float64(len(f.reports))/(after-before)), append(one.p99s, p99)
	return err
}

// post sends all reports, each from a network of its own, and returns the 99 % quantile of the latencies, in ms.
func (f *field) post(ctx context.Context) (float64, error) {
	target, err := url.Parse(f.Bundles[0].ReportsURL(0))
	if err != nil {
		return 0, fmt.Errorf("couldn't read an address: %w", err)
	}
	for _, report := range f.reports {
		report.Fate = openloop.Waiting
	}
	got := openloop.Run(ctx, openloop.Options{URL: target, Connections: connections, Duration: 10 * time.Minute},
		openloop.Pool(f.reports))
	if got.Accepted != len(f.reports) || got.Offered != got.Accepted {
		return 0, fmt.Errorf("%d of %d reports were taken; %v", got.Accepted, got.Offered, got.Refused)
	}
	return got.Quantile(.99), nil
}

// inParallel runs do for 0 to n-1 on some goroutines and returns the first error.
func inParallel(workers, n int, do func(int) error) error {
	var next atomic.Int64
	failed := make([]error, workers)
	var all sync.WaitGroup
	for w := range workers {
		all.Go(func() {
			for i := next.Add(1) - 1; i < int64(n) && failed[w] == nil; i = next.Add(1) - 1 {
				failed[w] = do(int(i))
			}
		})
	}
	all.Wait()
	return errors.Join(failed...)
}

// ready waits for an address to answer with success.
func ready(url string) error {
	for range 200 {
		resp, err := http.Get(url)
		if err == nil {
			resp.Body.Close()
			if resp.StatusCode < 300 {
				return nil
			}
		}
		time.Sleep(50 * time.Millisecond)
	}
	return fmt.Errorf("%s isn't ready after 10 s", url)
}
