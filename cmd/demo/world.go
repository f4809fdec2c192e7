package main

import (
	"context"
	"fmt"
	"net"
	"path/filepath"
	"time"

	"github.com/doona-dp/doona/internal/quickstart"
	"github.com/doona-dp/doona/wire/task"
)

// Sizes of the live task, to which people report on the page: small batches in short epochs.
const (
	liveBatch  = 1000
	liveTexts  = 5000 // Batch size for strings: with fewer clients hardly any text would be listed.
	liveEpochs = 360
)

// world is the running deployment: relays, and for each task its clients and the verifier.
type world struct {
	main   *simulatedTask
	live   *simulatedTask   // For people on the page; nil if headless.
	vitals []*simulatedTask // For the web-vitals example, in the order of vitals; empty if headless.
	attack *attack          // The attack on one client; nil if headless and not requested.
	*quickstart.Sandbox
}

// startWorld writes keys and tasks to dir. It starts the verifier and the relays, each on its own port. A live task for
// vectors has dim coordinates.
func startWorld(ctx context.Context, dir string, o *options, draft *task.Task, dim int) (*world, error) {
	now := uint64(time.Now().Unix())
	draft.Epochs = task.Epochs{Start: now, Length: 24 * 3600, Count: 1}
	drafts := []quickstart.Draft{{Name: "demo", Task: draft}}
	if !o.headless {
		live, err := o.draft("live", o.liveBatch(), dim)
		if err != nil {
			return nil, err
		}
		live.Epochs = task.Epochs{Start: now, Length: task.Length(o.epoch), Count: liveEpochs}
		drafts = append(drafts, quickstart.Draft{Name: "live", Task: live})
		for _, v := range vitals {
			d, err := v.draft(now)
			if err != nil {
				return nil, err
			}
			drafts = append(drafts, d)
		}
	}
	for _, d := range drafts {
		d.Task.Clients.Origins = o.origins
	}
	listeners, relays, err := listen(o.hops)
	if err != nil {
		return nil, err
	}
	d, err := quickstart.Write(filepath.Join(dir, "deployment"), relays, drafts)
	if err != nil {
		return nil, err
	}
	w := &world{Sandbox: quickstart.NewSandbox(ctx)}
	if err := w.StartRelays(d, listeners); err != nil {
		w.Stop()
		return nil, err
	}
	var made []*simulatedTask
	for i, draft := range drafts {
		t, err := w.StartTask(d, i, draft.Name)
		if err != nil {
			w.Stop()
			return nil, err
		}
		made = append(made, &simulatedTask{t})
	}
	if w.main = made[0]; len(made) > 1 {
		w.live, w.vitals = made[1], made[2:]
	}
	if !o.headless || o.nobodyHonest {
		if w.attack, err = w.startAttack(ctx, filepath.Join(dir, "attack")); err != nil {
			w.Stop()
			return nil, err
		}
	}
	return w, nil
}

func (o *options) liveBatch() uint64 {
	if o.isText() {
		return min(o.batch, liveTexts)
	}
	return min(o.batch, liveBatch)
}

// listen opens a loopback port for each relay. The tasks can then name the relays before the relays run.
func listen(hops int) (listeners []net.Listener, relays []quickstart.Relay, err error) {
	for range hops {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			return nil, nil, fmt.Errorf("couldn't open a port: %w", err)
		}
		relay := quickstart.RelayAt(l)
		relay.TrustedProxies = []string{"127.0.0.0/8"}
		listeners, relays = append(listeners, l), append(relays, relay)
	}
	return listeners, relays, nil
}
