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
	"strings"
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

// ingest measures how many reports a first relay stores durably per second of its CPU time. The limit is bench/bare:
// the same HTTP server, one HPKE opening per report and values of the same sizes, without a relay's checks. The peer
// only opens the same envelopes. Rows p99 are the 99th percentile of latency in ms, with 256 clients who each send as
// soon as they have an answer; the peer is bench/bare.
var ingest = Group{Names: ingestNames(), Run: measureIngest}

func ingestNames() (names []string) {
	for _, name := range []string{"relay/ingest/sqlite", "relay/ingest/postgres", "relay/ingest/sqlite/b16",
		"relay/ingest/postgres/b16"} {
		names = append(names, name, name+"/p99")
	}
	return names
}

// ingestRuns is how often each server is measured; relay and bare server alternate.
const ingestRuns = 5

// connections is the number of clients that post concurrently.
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

// field is a deployment whose first relay is measured, with sealed reports to send to it.
type field struct {
	*quickstart.Deployment
	listen, admin string
	url           string // takes the reports
	reports       []*openloop.LoadReport
	opens         float64 // envelopes that HPKE alone opens per second of CPU time
}

// newField writes the files of a deployment with two relays, and seals reports with that number of slots each.
func newField(dir string, slots, reports int) (*field, error) {
	f, err := deploy(dir, []quickstart.Draft{{Name: "ingest", Task: ingestTask(slots, reports)}})
	if err != nil {
		return nil, err
	}
	f.reports = make([]*openloop.LoadReport, reports)
	if err := f.seal(slots); err != nil {
		return nil, err
	}
	return f, f.measureOpens()
}

// deploy writes the files of a deployment with two relays. The first draft's task takes the reports.
func deploy(dir string, drafts []quickstart.Draft, sets ...quickstart.Set) (*field, error) {
	var addresses [4]string
	for i := range addresses {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			return nil, fmt.Errorf("couldn't listen: %w", err)
		}
		addresses[i] = l.Addr().String()
		l.Close()
	}
	f := &field{listen: addresses[0], admin: addresses[1]}
	var err error
	f.Deployment, err = quickstart.Write(dir, []quickstart.Relay{
		{URL: "http://" + addresses[0], Listen: addresses[0], Admin: addresses[1],
			TrustedProxies: []string{"127.0.0.0/8"}},
		{URL: "http://" + addresses[2], Listen: addresses[2], Admin: addresses[3]},
	}, drafts, sets...)
	if err == nil {
		f.url = f.Bundles[0].ReportsURL(0)
	}
	return f, err
}

// ingestTask returns a task whose batch never fills, so that the relay seals no batch during the measurement.
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

// measureOpens opens all reports' envelopes several times, and keeps the median rate in opens.
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

// side is one of the two measured servers: the relay or bench/bare. For each run it has the rate, in reports per second
// of CPU time, the 99th percentile of latency in ms, and the bytes that the server wrote to disk for each report.
type side struct {
	args                 func(folder string) []string
	rates, p99s, written []float64
}

// measure sends all reports to the relay and to the bare server, alternately, each time with a new store.
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

// sides returns the relay and the bare server, without measurements.
func (f *field) sides(bins string) (ours, bare *side) {
	return &side{args: func(folder string) []string {
			return []string{filepath.Join(bins, "relay"), "serve", "--config", filepath.Join(folder, "relay.yaml")}
		}}, &side{args: func(string) []string {
			return []string{filepath.Join(bins, "bare"), "--bundle", filepath.Join(f.Dir, "ingest.bundle"),
				"--keys", f.keys(), "--listen", f.listen, "--admin", f.admin}
		}}
}

// take starts a server on a new store and posts every report once. It adds the rate and the 99th percentile of latency
// to the side. The server gets a copy of the first relay's folder, because a relay's keys work with one store only.
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
	one.written = append(one.written, float64(writtenBytes(cmd.Process.Pid))/float64(len(f.reports)))
	return err
}

// writtenBytes returns how many bytes a process has written to disk, in whole pages, as Linux counts them; 0 where no
// system counts them.
func writtenBytes(pid int) (n int64) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/io", pid))
	if err != nil {
		return 0
	}
	for line := range strings.Lines(string(text)) {
		fmt.Sscanf(line, "write_bytes: %d", &n)
	}
	return n
}

// post sends all reports, each from a different client network, and returns the 99th percentile of latency in ms.
func (f *field) post(ctx context.Context) (float64, error) {
	target, err := url.Parse(f.url)
	if err != nil {
		return 0, fmt.Errorf("couldn't parse the first relay's address: %w", err)
	}
	for _, report := range f.reports {
		report.Fate = openloop.Waiting
	}
	got := openloop.Run(ctx, openloop.Options{URL: target, Connections: connections, Duration: 10 * time.Minute},
		openloop.Pool(f.reports))
	if got.Accepted != len(f.reports) || got.Offered != got.Accepted {
		return 0, fmt.Errorf("server accepted %d of %d reports; refusals: %v", got.Accepted, got.Offered, got.Refused)
	}
	return got.Quantile(.99), nil
}

// inParallel calls do with 0 to n−1 on the given number of goroutines, and returns their joined errors. A goroutine
// stops at its first error.
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

// ready waits until an address answers with a status below 300. It gives up after about 10 s.
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
