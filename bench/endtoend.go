package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"syscall"
	"time"

	"github.com/doona-dp/doona/internal/openloop"
	"github.com/doona-dp/doona/wire/onion"
	"github.com/doona-dp/doona/wire/task"
)

// endToEnd is a crowd's way to an estimate on this machine, in batches of 10⁵: `relay load` plays the clients, two
// relays and a verifier serve, each in a process of its own. Time is from the start of the clients to the estimate,
// which is compared with the truth; CPU time and peak memory are each party's. The limit is the cryptography of all of
// them, spread over all cores.
var endToEnd = Group{Names: crowdRows("e2e/1e5", "e2e/1e6"), Run: measureEndToEnd}

// players are the processes of an end-to-end run.
var players = []string{"first", "later", "verifier", "clients"}

func crowdRows(crowds ...string) (out []string) {
	for _, crowd := range crowds {
		out = append(out, crowd+"/time", crowd+"/cpu")
		for _, player := range players {
			out = append(out, crowd+"/"+player+"/cpu", crowd+"/"+player+"/memory")
		}
	}
	return out
}

func measureEndToEnd(ctx context.Context, s *Setup) (rows []Row, err error) {
	dir, err := s.Folder("endtoend")
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
	for _, size := range []struct {
		name    string
		clients int
	}{{"e2e/1e5", crowdSize}, {"e2e/1e6", 10 * crowdSize}} {
		wanted := false
		for _, name := range crowdRows(size.name) {
			wanted = wanted || s.wanted(name)
		}
		if !wanted {
			continue
		}
		progress("%s: %d clients", size.name, size.clients)
		c := &convoy{bins: dir}
		if err := c.lay(filepath.Join(dir, filepath.Base(size.name)), nil); err != nil {
			return nil, err
		}
		got, err := c.journey(ctx, w, size.name, size.clients)
		if err != nil {
			return nil, err
		}
		rows = append(rows, got...)
	}
	return rows, nil
}

// journey plays so many clients.
func (c *convoy) journey(ctx context.Context, w *warehouse, name string, clients int) ([]Row, error) {
	defer c.stop()
	if err := c.start(ctx); err != nil {
		return nil, err
	}
	bare, err := w.wholeRoad(c.d.Bundles[0].Task)
	if err != nil {
		return nil, err
	}
	begun := time.Now()
	crowd, err := c.load(ctx, clients)
	if err != nil {
		return nil, fmt.Errorf("%w\n%s", err, &c.log)
	}
	seconds := time.Since(begun).Seconds()
	cpu, err := cpuOf(c.parties)
	if err != nil {
		return nil, err
	}
	again, err := w.wholeRoad(c.d.Bundles[0].Task) // the machine's speed varies
	if err != nil {
		return nil, err
	}
	bare = (bare + again) / 2
	cpu = append(cpu, (crowd.UserTime() + crowd.SystemTime()).Seconds())
	const limit = "circl's x25519, HKDF and AES of all parties"
	rows := []Row{newRow(name+"/time", "s", lower, seconds).
		within(limit+" on all cores", bare*float64(clients)/1e6/float64(runtime.NumCPU()))}
	var parties []Row
	total := 0.0
	for i, player := range players {
		kB := int(crowd.SysUsage().(*syscall.Rusage).Maxrss)
		if i < len(c.parties) {
			if kB, err = openloop.PeakRSS(c.parties[i].Process.Pid); err != nil {
				return nil, err
			}
		}
		each := 1e6 * cpu[i] / float64(clients)
		total += each
		parties = append(parties, newRow(name+"/"+player+"/cpu", "us/client", lower, each),
			newRow(name+"/"+player+"/memory", "MB", lower, float64(kB)*1024/1e6))
	}
	rows = append(rows, newRow(name+"/cpu", "us/client", lower, total).within(limit, bare))
	return append(rows, parties...), nil
}

// load runs `relay load` until the verifier has the estimate of all clients, which must be near the truth.
func (c *convoy) load(ctx context.Context, clients int) (*os.ProcessState, error) {
	page := "http://" + c.page + "/tasks/" + c.d.Bundles[0].ID.String()
	cmd := exec.CommandContext(ctx, filepath.Join(c.bins, "relay"), "load", "--json", "--task", c.d.TaskURL(0),
		"--owner", c.d.Owner, "--rate", "0", "--connections", "256", "--ahead", "8", "--clients", fmt.Sprint(clients),
		"--values", "zipf",
		"--duration", "3h", "--report", page, "--wait", "1h")
	var out, problems bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &problems
	if err := cmd.Run(); err != nil {
		return nil, fmt.Errorf("couldn't play the clients: %w\n%s", err, &problems)
	}
	var result struct {
		Comparison struct {
			Users int     `json:"users"`
			Worst float64 `json:"worst_standard_errors"`
		} `json:"comparison"`
	}
	if err := json.Unmarshal(out.Bytes(), &result); err != nil {
		return nil, fmt.Errorf("couldn't read what load says: %w", err)
	}
	if got := result.Comparison; got.Users != clients || got.Worst > 6 {
		return nil, fmt.Errorf("the estimate is of %d of %d clients, and off by %.1f standard errors", got.Users,
			clients,
			got.Worst)
	}
	return cmd.ProcessState, nil
}

// wholeRoad returns the microseconds of CPU time that the cryptography of one client takes all parties, on all cores at
// once: the client seals each slot in a layer for every party but the first relay, and all of them for that one; the
// first relay opens the envelope and seals each slot for its disk, each further relay opens a layer of each and seals
// what is in it, and the verifier opens the last.
func (w *warehouse) wholeRoad(t *task.Task) (float64, error) {
	layout, err := onion.NewLayout(t)
	if err != nil {
		return 0, err
	}
	last, slots := t.VerifierHop(), layout.SlotsPerClient()
	seal := func(room []byte, size int) ([]byte, error) {
		return w.bare.sealFresh(room[:0], make([]byte, size-sealedOverhead))
	}
	return perTurn(5_000, func() func() error {
		room, disk := make([]byte, layout.MaxBody()), make([]byte, layout.MaxBody())
		return func() error {
			envelope, err := seal(room, layout.MaxBody())
			if err == nil {
				err = w.bare.open(disk, envelope)
			}
			for range slots {
				for hop := 1; hop <= last && err == nil; hop++ {
					disk = w.press.seal(disk[:0], make([]byte, layout.SlotSize(hop)))
					var slot []byte
					if slot, err = seal(room, layout.SlotSize(hop)); err == nil {
						err = w.bare.open(disk, slot)
					}
				}
			}
			return err
		}
	})
}

// sealedOverhead is how much longer than its plaintext a slot is: a key share and a tag.
const sealedOverhead = 32 + 16
