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

// simulatedClients are the clients of a row: their number and query.
type simulatedClients struct {
	planner.Query     // With the batch size.
	clients       int // Fill batches.
	relays        int
}

// usualClients is how many clients there are in rows that do not say.
const usualClients = 100_000

// usual returns the clients of a histogram of 256 bins in batches of 10⁵, or one of fewer, by two relays.
func usual(clients int) simulatedClients {
	return newClients(clients, planner.Query{Query: task.Histogram, Bins: 256, Labels: true})
}

func newClients(clients int, q planner.Query) simulatedClients {
	q.Name, q.Batch, q.Honest, q.Epsilon, q.Delta = "bench", uint64(min(clients, usualClients)), 0.9, 1, 1e-6
	return simulatedClients{Query: q, clients: clients, relays: 2}
}

// benchDeployment is a deployment of relays and a verifier, each in its own process, and the simulated clients that
// report to it.
type benchDeployment struct {
	simulatedClients
	bins    string
	d       *quickstart.Deployment
	page    string   // The verifier's address.
	admin   []string // Of the relays.
	log     bytes.Buffer
	parties []*exec.Cmd // The relays, in order, and the verifier.
}

// trip is what each party spends per simulated client: the relays in order, the verifier, and the process that plays
// the clients.
type trip struct {
	seconds     float64   // From the start of the clients to the estimate.
	cpu, memory []float64 // Microseconds of CPU time for a client; bytes at the most.
	task        *task.Task
}

// total is what all spend on a client.
func (t *trip) total() (sum float64) {
	for _, x := range t.cpu {
		sum += x
	}
	return sum
}

// newTrip starts a deployment in a folder, has simulated clients report to it, and stops it. The programs are in bins.
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

// buildServices builds the programs of a deployment.
func buildServices(ctx context.Context, dir string) error {
	_, err := command(ctx, "go", "build", "-o", dir+"/", "./cmd/relay", "./cmd/verifier", "./cmd/doona")
	return err
}

// lay lays the deployment out.
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

// stop ends the parties.
func (c *benchDeployment) stop() {
	for _, cmd := range c.parties {
		cmd.Process.Signal(syscall.SIGTERM)
		cmd.Wait()
	}
}

// measure plays the clients.
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

// mostReaches is how many times its band's reach an estimate may be off. For a normal error of one entry that is 4.9
// standard errors, a false alarm in 10⁶ runs; for more entries the band is wider and an alarm rarer. Standard errors
// would not do: of an entry that only 20 clients report they are themselves uncertain, and the band knows it.
const mostReaches = 2.5

// load runs `doona load` until the verifier has the estimate of all clients, which must be near the truth.
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
		return nil, fmt.Errorf("couldn't read what load says: %w", err)
	}
	if got := result.Comparison; got.Users != c.clients || got.Reaches > mostReaches {
		return nil, fmt.Errorf("the estimate is of %d of %d clients, and off by %.1f times what its 95 %% band reaches",
			got.Users, c.clients, got.Reaches)
	}
	return cmd.ProcessState, nil
}
