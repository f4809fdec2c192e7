package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os/exec"
	"path/filepath"
	"runtime"
	"syscall"
	"time"

	"github.com/doona-dp/doona/internal/openloop"
	"github.com/doona-dp/doona/internal/quickstart"
	"github.com/doona-dp/doona/planner"
	"github.com/doona-dp/doona/shufflerclient"
	"github.com/doona-dp/doona/wire/onion"
	"github.com/doona-dp/doona/wire/task"
)

// relayNoiseCPU is what noise by two relays costs each party: the microseconds of its process's CPU time for each of
// 10⁵ clients in one batch of a histogram of 256 bins, through the real road. Beside it is the same histogram without
// dummies, whose clients randomize.
var relayNoiseCPU = Group{
	Names: noiseCPUNames, Run: measureNoiseCPU,
}

var noiseCPUNames = []string{"relay/noise/first/cpu", "relay/noise/later/cpu", "relay/noise/verifier/cpu"}

// mixing is what a later relay spends on a slot of a batch of 10⁵ without dummies, through the real road: to pull and
// open it, to see that it was not there before, to permute, to store and to hand it on. The limit is the least that
// opening a slot and sealing it for the disk takes.
var mixing = Group{Names: []string{"relay/mix"}, Run: measureMix}

func measureMix(ctx context.Context, s *Setup) ([]Row, error) {
	dir, err := s.Folder("mix")
	if err != nil {
		return nil, err
	}
	if _, err := command(ctx, "go", "build", "-o", dir+"/", "./cmd/relay", "./cmd/verifier"); err != nil {
		return nil, err
	}
	w, err := newWarehouse(filepath.Join(dir, "stock"), crowdSize)
	if err != nil {
		return nil, err
	}
	var ours, least []float64
	for run := range noiseCPURuns { // by turns
		progress("relay/mix %d of %d", run+1, noiseCPURuns)
		c := &convoy{bins: dir}
		if err := c.lay(filepath.Join(dir, fmt.Sprint("road", run)), nil); err != nil {
			return nil, err
		}
		parties, err := c.run(ctx)
		if err != nil {
			return nil, err
		}
		layout, err := onion.NewLayout(c.d.Bundles[0].Task)
		if err != nil {
			return nil, err
		}
		bare, err := w.openAndSeal(layout.SlotSize(2))
		if err != nil {
			return nil, err
		}
		ours, least = append(ours, parties[1]), append(least, bare)
	}
	return []Row{newRow("relay/mix", "us/slot", lower, ours...).
		within("circl's x25519, HKDF and AES, and AES for the disk", median(least))}, nil
}

// noiseCPURuns is how often each side is measured, by turns.
const noiseCPURuns = 3

// crowdSize is how many clients are in the batch.
const crowdSize = 100_000

func measureNoiseCPU(ctx context.Context, s *Setup) ([]Row, error) {
	bins, err := s.Folder("noise")
	if err != nil {
		return nil, err
	}
	if _, err := command(ctx, "go", "build", "-o", bins+"/", "./cmd/relay", "./cmd/verifier"); err != nil {
		return nil, err
	}
	noises := []*planner.RelayNoise{nil, {}}
	var spent [2][3][]float64 // By noise and party.
	for run := range noiseCPURuns {
		for side := range noises {
			side = (side + run) % len(noises) // by turns, so that neither is always first
			progress("a batch of %d clients, %d of %d", crowdSize, 2*run+1, 2*noiseCPURuns)
			c := &convoy{bins: bins}
			if err := c.lay(filepath.Join(bins, fmt.Sprint("road", run, side)), noises[side]); err != nil {
				return nil, err
			}
			parties, err := c.run(ctx)
			if err != nil {
				return nil, err
			}
			for i, x := range parties {
				spent[side][i] = append(spent[side][i], x)
			}
		}
	}
	var rows []Row
	for i, name := range noiseCPUNames {
		row := newRow(name, "us/client", lower, spent[1][i]...)
		rows = append(rows, row.against("the same without dummies", spent[0][i]...))
	}
	return rows, nil
}

// convoy is a deployment of two relays and a verifier, each in a process of its own.
type convoy struct {
	bins    string
	d       *quickstart.Deployment
	page    string   // The verifier's address.
	admin   []string // Of the relays.
	log     bytes.Buffer
	parties []*exec.Cmd // The first relay, the later one and the verifier.
}

// lay lays the deployment out.
func (c *convoy) lay(dir string, noise *planner.RelayNoise) error {
	draft, err := planner.Draft(planner.Query{Name: "crowd", Query: task.Histogram, Bins: 256, Labels: true,
		Batch: crowdSize, Honest: 0.9, Epsilon: 1, Delta: 1e-6, Relays: noise})
	if err != nil {
		return err
	}
	draft.Epochs = task.Epochs{Start: uint64(time.Now().Unix()), Length: 24 * 3600, Count: 1}
	addresses, err := freeAddresses(5)
	if err != nil {
		return err
	}
	c.page, c.admin = addresses[4], addresses[2:4]
	var relays []quickstart.Relay
	for i, address := range addresses[:2] {
		relays = append(relays, quickstart.Relay{URL: "http://" + address, Listen: address, Admin: c.admin[i],
			TrustedProxies: []string{"127.0.0.0/8"}, Pull: "1s"})
	}
	c.d, err = quickstart.Write(dir, relays, []quickstart.Draft{{Name: "crowd", Task: draft}})
	return err
}

// freeAddresses returns loopback addresses that nobody listened on a moment ago.
func freeAddresses(n int) (out []string, err error) {
	for range n {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			return nil, fmt.Errorf("couldn't listen: %w", err)
		}
		defer l.Close()
		out = append(out, l.Addr().String())
	}
	return out, nil
}

// start starts the parties and waits until they are ready.
func (c *convoy) start(ctx context.Context) error {
	for _, args := range [][]string{
		{"relay", "serve", "--config", c.d.RelayConfig(1)}, {"relay", "serve", "--config", c.d.RelayConfig(2)},
		{"verifier", "serve", "--task", filepath.Join(c.d.Dir, "crowd.bundle"), "--keys", c.d.VerifierKeys("crowd"),
			"--sign-key", c.d.VerifierSign(), "--data", filepath.Join(c.d.Dir, "data"), "--listen", c.page,
			"--interval", "1s"},
	} {
		cmd := exec.CommandContext(ctx, filepath.Join(c.bins, args[0]), args[1:]...)
		cmd.Stderr = &c.log
		if err := cmd.Start(); err != nil {
			return fmt.Errorf("couldn't start %s: %w", args[0], err)
		}
		c.parties = append(c.parties, cmd)
	}
	for _, url := range []string{c.admin[0] + "/readyz", c.admin[1] + "/readyz", c.page + "/"} {
		if err := ready("http://" + url); err != nil {
			return fmt.Errorf("%w\n%s", err, &c.log)
		}
	}
	return nil
}

// stop ends the parties.
func (c *convoy) stop() {
	for _, cmd := range c.parties {
		cmd.Process.Signal(syscall.SIGTERM)
		cmd.Wait()
	}
}

// run plays the clients and returns the microseconds of CPU time for each, of the first relay, the later one and the
// verifier.
func (c *convoy) run(ctx context.Context) ([]float64, error) {
	defer c.stop()
	if err := c.start(ctx); err != nil {
		return nil, err
	}
	before, err := cpuOf(c.parties)
	if err != nil {
		return nil, err
	}
	if err := c.report(ctx); err != nil {
		return nil, fmt.Errorf("%w\n%s", err, &c.log)
	}
	if err := c.released(ctx); err != nil {
		return nil, fmt.Errorf("%w\n%s", err, &c.log)
	}
	spent, err := cpuOf(c.parties)
	for i := range spent {
		spent[i] = 1e6 * (spent[i] - before[i]) / crowdSize
	}
	return spent, err
}

// cpuOf returns the seconds of CPU time of processes.
func cpuOf(parties []*exec.Cmd) (out []float64, err error) {
	for _, cmd := range parties {
		seconds, err := openloop.CPUSeconds(cmd.Process.Pid)
		if err != nil {
			return nil, err
		}
		out = append(out, seconds)
	}
	return out, nil
}

// report plays the clients, each from a network of its own.
func (c *convoy) report(ctx context.Context) error {
	transport := &http.Transport{MaxIdleConnsPerHost: 64, MaxConnsPerHost: 64}
	defer transport.CloseIdleConnections()
	client, err := shufflerclient.Connect(ctx, shufflerclient.Options{Task: c.d.TaskURL(0), Owner: c.d.Owner,
		MaxEpsilon: 10, HTTP: &http.Client{Transport: transport, Timeout: 5 * time.Minute}})
	if err != nil {
		return err
	}
	return inParallel(16*runtime.NumCPU(), crowdSize, func(i int) error {
		report, err := client.Report(0, []float64{float64(i % 256)})
		if err != nil {
			return err
		}
		from := http.Header{"X-Forwarded-For": {fmt.Sprintf("fd00:%x:%x::1", i>>16, i&0xffff)}}
		return client.WithHeader(from).Submit(ctx, report)
	})
}

// released waits until the verifier has added the batch up.
func (c *convoy) released(ctx context.Context) error {
	url := "http://" + c.page + "/tasks/" + c.d.Bundles[0].ID.String() + "/api/report"
	for range 3000 {
		var report struct {
			Users    uint64
			Findings []any
		}
		resp, err := http.Get(url)
		if err == nil {
			err = errors.Join(json.NewDecoder(resp.Body).Decode(&report), resp.Body.Close())
		}
		switch {
		case err != nil:
			return fmt.Errorf("couldn't read the report: %w", err)
		case len(report.Findings) > 0:
			return fmt.Errorf("not everything added up: %v", report.Findings)
		case report.Users == crowdSize:
			return ctx.Err()
		}
		time.Sleep(200 * time.Millisecond)
	}
	return errors.New("the batch was not released within ten minutes")
}
