package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"time"

	"github.com/doona-dp/doona/internal/openloop"
	"github.com/doona-dp/doona/internal/quickstart"
	"github.com/doona-dp/doona/planner"
	"github.com/doona-dp/doona/wire/task"
)

// simulatedClients says which query a row simulates, with how many clients and relays.
type simulatedClients struct {
	planner.Query     // Includes the batch size.
	clients       int // A multiple of the batch size, so that all batches fill.
	relays        int
}

// usualClients is the number of clients in rows that do not name another number.
const usualClients = 100_000

// usual returns clients of a histogram of 256 bins with two relays. They report in batches of 10⁵, or in a single
// smaller batch if there are fewer clients.
func usual(clients int) simulatedClients {
	return newClients(clients, planner.Query{Query: task.Histogram, Bins: 256, Labels: true})
}

func newClients(clients int, q planner.Query) simulatedClients {
	q.Name, q.Batch, q.Honest, q.Epsilon, q.Delta = "bench", uint64(min(clients, usualClients)), 0.9, 1, 1e-6
	return simulatedClients{Query: q, clients: clients, relays: 2}
}

// correlatedClients returns clients of a mean by protocol correlated with two relays, in one batch. All are honest.
func correlatedClients(clients int) simulatedClients {
	return simulatedClients{clients: clients, relays: 2, Query: planner.Query{Name: "bench", Query: task.Mean, Hi: 1,
		Protocol: "correlated", Padding: task.PaddingNone, Batch: uint64(clients), Honest: 1, Epsilon: 1, Delta: 1e-8}}
}

// benchDeployment is a deployment of relays and a verifier, each in its own process, and the simulated clients that
// report to it.
type benchDeployment struct {
	simulatedClients
	bins    string
	d       *quickstart.Deployment
	page    string   // The verifier's address, host:port.
	admin   []string // The relays' admin addresses, host:port.
	log     bytes.Buffer
	parties []*exec.Cmd // The relays, in order, and the verifier.
}

// trip is the result of one run. cpu and memory have one entry per process: the relays in order, the verifier, and the
// process that plays the clients.
type trip struct {
	seconds     float64   // Time from the start of the clients to the verifier's estimate.
	cpu, memory []float64 // CPU time per client in microseconds; peak memory in bytes.
	task        *task.Task
}

// total returns the CPU time of all processes per client, in microseconds.
func (t *trip) total() (sum float64) {
	for _, x := range t.cpu {
		sum += x
	}
	return sum
}

// newTrip starts a deployment in the folder dir with the programs in bins. It has simulated clients report, stops the
// deployment and returns its costs.
func newTrip(ctx context.Context, bins, dir string, who simulatedClients) (*trip, error) {
	c := &benchDeployment{simulatedClients: who, bins: bins}
	if err := c.lay(dir); err != nil {
		return nil, err
	}
	defer c.stop()
	if err := c.start(ctx); err != nil {
		return nil, err
	}
	t, err := c.measure(ctx)
	if err != nil {
		return nil, fmt.Errorf("%w\n%s", err, &c.log)
	}
	return t, nil
}

// buildServices builds the programs relay, verifier and doona into dir.
func buildServices(ctx context.Context, dir string) error {
	_, err := command(ctx, "go", "build", "-o", dir+"/", "./cmd/relay", "./cmd/verifier", "./cmd/doona")
	return err
}

// lay drafts the task and writes the deployment's files and keys to dir.
func (c *benchDeployment) lay(dir string) error {
	draft, err := planner.Draft(c.Query)
	if err != nil {
		return err
	}
	draft.Epochs = task.Epochs{Start: uint64(time.Now().Unix()), Length: 24 * 3600, Count: 1}
	addresses, err := freeAddresses(2*c.relays + 1)
	if err != nil {
		return err
	}
	c.page, c.admin = addresses[2*c.relays], addresses[c.relays:2*c.relays]
	var relays []quickstart.Relay
	for i, address := range addresses[:c.relays] {
		relays = append(relays, quickstart.Relay{URL: "http://" + address, Listen: address, Admin: c.admin[i],
			TrustedProxies: []string{"127.0.0.0/8"}, Pull: "200ms"})
	}
	c.d, err = quickstart.Write(dir, relays, []quickstart.Draft{{Name: "bench", Task: draft}})
	return err
}

// freeAddresses returns n loopback addresses, host:port, that were free a moment ago. Another process may still take
// them.
func freeAddresses(n int) (out []string, err error) {
	for range n {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			return nil, fmt.Errorf("couldn't listen on a port of 127.0.0.1: %w", err)
		}
		defer l.Close()
		out = append(out, l.Addr().String())
	}
	return out, nil
}

// start starts the parties and waits until they are ready.
func (c *benchDeployment) start(ctx context.Context) error {
	commands, urls := [][]string{}, []string{}
	for i := range c.relays {
		commands = append(commands, []string{"relay", "serve", "--config", c.d.RelayConfig(i + 1)})
		urls = append(urls, c.admin[i]+"/readyz")
	}
	commands = append(commands, []string{"verifier", "serve", "--task", filepath.Join(c.d.Dir, "bench.bundle"),
		"--keys", c.d.VerifierKeys("bench"), "--sign-key", c.d.VerifierSign(), "--data", filepath.Join(c.d.Dir, "data"),
		"--listen", c.page, "--interval", "200ms"})
	for _, args := range commands {
		cmd := exec.CommandContext(ctx, filepath.Join(c.bins, args[0]), args[1:]...)
		cmd.Stderr = &c.log
		if err := cmd.Start(); err != nil {
			return fmt.Errorf("couldn't start %s: %w", args[0], err)
		}
		c.parties = append(c.parties, cmd)
	}
	for _, url := range append(urls, c.page+"/") {
		if err := ready("http://" + url); err != nil {
			return fmt.Errorf("%w\n%s", err, &c.log)
		}
	}
	return nil
}

// stop sends SIGTERM to the relays and the verifier, and waits until they exit.
func (c *benchDeployment) stop() {
	for _, cmd := range c.parties {
		cmd.Process.Signal(syscall.SIGTERM)
		cmd.Wait()
	}
}

// measure plays the clients, and measures time, CPU time and peak memory.
func (c *benchDeployment) measure(ctx context.Context) (*trip, error) {
	before, err := cpuOf(c.parties)
	if err != nil {
		return nil, err
	}
	begun := time.Now()
	players, err := c.load(ctx)
	if err != nil {
		return nil, err
	}
	t := &trip{seconds: time.Since(begun).Seconds(), task: c.d.Bundles[0].Task}
	after, err := cpuOf(c.parties)
	if err != nil {
		return nil, err
	}
	for i, party := range c.parties {
		kB, err := openloop.PeakRSS(party.Process.Pid)
		if err != nil {
			return nil, err
		}
		t.cpu, t.memory = append(t.cpu, after[i]-before[i]), append(t.memory, 1024*float64(kB))
	}
	t.cpu = append(t.cpu, (players.UserTime() + players.SystemTime()).Seconds())
	t.memory = append(t.memory, 1024*float64(players.SysUsage().(*syscall.Rusage).Maxrss))
	for i := range t.cpu {
		t.cpu[i] *= 1e6 / float64(c.clients)
	}
	return t, nil
}

// cpuOf returns the CPU time of each process so far, in seconds.
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

// mostReaches is the largest error that an estimate may have, as a multiple of the half-width of its 95 % band. For a
// normal error of one entry it is 4.9 standard errors: one false alarm in 10⁶ runs. For more entries the band is wider
// and false alarms are rarer. The limit is not in standard errors, because they are themselves uncertain for an entry
// that only 20 clients report; the band accounts for that.
const mostReaches = 2.5

// load runs `doona load` until the verifier's estimate covers all clients. It fails if the estimate is too far from the
// truth (see mostReaches).
func (c *benchDeployment) load(ctx context.Context) (*os.ProcessState, error) {
	page := "http://" + c.page + "/tasks/" + c.d.Bundles[0].ID.String()
	cmd := exec.CommandContext(ctx, filepath.Join(c.bins, "doona"), "load", "--json", "--task", c.d.TaskURL(0),
		"--owner", c.d.Owner, "--rate", "0", "--connections", "512", "--preseal-mb", "8", "--clients", fmt.Sprint(c.clients),
		"--values", "zipf", "--duration", "3h", "--report", page, "--wait", "1h")
	var out, problems bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &problems
	if err := cmd.Run(); err != nil {
		return nil, fmt.Errorf("couldn't play the clients: %w\n%s", err, &problems)
	}
	var result struct {
		Comparison struct {
			Users   int     `json:"users"`
			Reaches float64 `json:"worst_band_reaches"`
		} `json:"comparison"`
	}
	if err := json.Unmarshal(out.Bytes(), &result); err != nil {
		return nil, fmt.Errorf("couldn't decode the output of doona load --json: %w", err)
	}
	if got := result.Comparison; got.Users != c.clients || got.Reaches > mostReaches {
		return nil, fmt.Errorf("bad estimate: it covers %d of %d clients, and its error is %.1f half-widths of the "+
			"95 %% band (at most %v)", got.Users, c.clients, got.Reaches, mostReaches)
	}
	return cmd.ProcessState, nil
}
