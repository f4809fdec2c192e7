package quickstart

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"runtime"
	"sync"
	"time"

	"github.com/doona-dp/doona/relay"
	"github.com/doona-dp/doona/shufflerclient"
	"github.com/doona-dp/doona/verifier"
	"github.com/doona-dp/doona/verifier/collect"
	"github.com/doona-dp/doona/wire/handover"
	"github.com/doona-dp/doona/wire/keyfile"
	"github.com/doona-dp/doona/wire/taskfile"
)

// Pull is how often hops ask for batches. It is short, so that a visitor of the page need not wait.
const Pull = 100 * time.Millisecond

// skew is the maximum difference of the parties' clocks, which are all this machine's.
const skew = "5s"

// RelayAt describes a relay that listens at l, on this machine.
func RelayAt(l net.Listener) Relay {
	return Relay{URL: "http://" + l.Addr().String(), Listen: l.Addr().String(), Pull: Pull.String(), Skew: skew}
}

// Sandbox runs deployments in this process until [Sandbox.Stop]: relays, and for each task a client and a verifier. It
// protects nobody, because one process has all keys.
type Sandbox struct {
	ctx     context.Context
	cancel  context.CancelFunc
	running sync.WaitGroup
}

// NewSandbox returns an empty sandbox, which stops when ctx ends.
func NewSandbox(ctx context.Context) *Sandbox {
	ctx, cancel := context.WithCancel(ctx)
	return &Sandbox{ctx: ctx, cancel: cancel}
}

// StartRelays starts the relays of a deployment. Relay i listens at listeners[i].
func (s *Sandbox) StartRelays(d *Deployment, listeners []net.Listener) error {
	for i, l := range listeners {
		config, err := relay.LoadConfig(d.RelayConfig(i + 1))
		if err != nil {
			return err
		}
		config.Listener = l
		r, err := relay.New(config)
		if err != nil {
			return fmt.Errorf("couldn't start relay %d: %w", i+1, err)
		}
		s.running.Go(func() {
			if err := r.Run(s.ctx); err != nil {
				fmt.Fprintf(os.Stderr, "relay %d ended: %v\n", i+1, err)
			}
		})
	}
	return nil
}

// Stop stops the relays and verifiers and waits for them.
func (s *Sandbox) Stop() {
	s.cancel()
	s.running.Wait()
}

// RunningTask is a task that runs, with its client and its verifier.
type RunningTask struct {
	URL      string // The task's URL at the first relay.
	Owner    string
	Open     *taskfile.Open
	Client   *shufflerclient.Client
	Verifier *verifier.Verifier // Nil if [Connect] made the RunningTask.
}

// Connect connects a client to task i of a deployment, as any client connects.
func Connect(ctx context.Context, d *Deployment, i int) (*RunningTask, error) {
	workers := 4 * runtime.GOMAXPROCS(0)
	transport := &http.Transport{MaxIdleConnsPerHost: workers, MaxConnsPerHost: workers}
	client, err := shufflerclient.Connect(ctx, shufflerclient.Options{
		Task: d.TaskURL(i), Owner: d.Owner,
		MaxEpsilon: 1e6, // synthetic clients need no privacy, so accept any ε
		HTTP:       &http.Client{Transport: transport, Timeout: time.Minute},
	})
	if err != nil {
		return nil, err
	}
	return &RunningTask{URL: d.TaskURL(i), Owner: d.Owner, Open: client.Task(), Client: client}, nil
}

// StartTask connects to task i of a deployment and starts its verifier. name is the name of the task's files.
func (s *Sandbox) StartTask(d *Deployment, i int, name string) (*RunningTask, error) {
	t, err := Connect(s.ctx, d, i)
	if err != nil {
		return nil, err
	}
	keys, err := keyfile.LoadHPKE(d.VerifierKeys(name))
	if err != nil {
		return nil, err
	}
	sign, err := keyfile.LoadSign(d.VerifierSign())
	if err != nil {
		return nil, err
	}
	if t.Verifier, err = verifier.New(t.Open, keys); err != nil {
		return nil, err
	}
	puller, err := collect.NewPuller(t.Verifier, handover.NewRequester(sign, nil), filepath.Join(d.Dir, "batches", name),
		slog.New(slog.DiscardHandler))
	if err != nil {
		return nil, err
	}
	s.running.Go(func() {
		defer puller.Close()
		puller.Run(s.ctx, Pull)
	})
	return t, nil
}
