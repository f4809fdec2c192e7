package main

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"path/filepath"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"github.com/doona-dp/doona/internal/cli"
	"github.com/doona-dp/doona/internal/quickstart"
	"github.com/doona-dp/doona/shufflerclient"
	"github.com/doona-dp/doona/verifier"
	"github.com/doona-dp/doona/wire/handover"
	"github.com/doona-dp/doona/wire/keyfile"
	"github.com/doona-dp/doona/wire/taskfile"
)

// road is one task from its clients to its verifier.
type road struct {
	url      string // Of the task at the first relay.
	owner    string
	open     *taskfile.Open
	client   *shufflerclient.Client
	verifier *verifier.Verifier
}

// networks numbers the networks that simulated clients come from.
var networks atomic.Uint64

// connect connects to a task, as any client would.
func connect(ctx context.Context, d *quickstart.Deployment, i int) (*road, error) {
	workers := 4 * runtime.GOMAXPROCS(0)
	transport := &http.Transport{MaxIdleConnsPerHost: workers, MaxConnsPerHost: workers}
	client, err := shufflerclient.Connect(ctx, shufflerclient.Options{
		Task: d.TaskURL(i), Owner: d.Owner,
		MaxEpsilon: 1e6, // synthetic clients have nothing to lose
		HTTP:       &http.Client{Transport: transport, Timeout: time.Minute},
	})
	if err != nil {
		return nil, err
	}
	return &road{url: d.TaskURL(i), owner: d.Owner, open: client.Task(), client: client}, nil
}

// startRoad connects to a task and starts its verifier.
func (w *world) startRoad(ctx context.Context, d *quickstart.Deployment, i int, name string) (*road, error) {
	r, err := connect(ctx, d, i)
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
	if r.verifier, err = verifier.New(r.open, keys); err != nil {
		return nil, err
	}
	puller, err := verifier.NewPuller(r.verifier, handover.NewClient(sign, nil), filepath.Join(d.Dir, "batches", name),
		slog.New(slog.DiscardHandler))
	if err != nil {
		return nil, err
	}
	w.running.Go(func() {
		defer puller.Close()
		puller.Run(ctx, pull)
	})
	return r, nil
}

// play sends one report per value, batch by batch: a batch's clients are done before the next
// batch's begin, so the demo knows who is in which.
func (r *road) play(ctx context.Context, values [][]float64) (sent int, err error) {
	bar := cli.Progress("reporting", len(values))
	batch := int(r.open.Batch.Size)
	for from := 0; from < len(values); from += batch {
		chunk := values[from:min(from+batch, len(values))]
		if err := r.send(ctx, 0, chunk, func() { bar.Add(1) }); err != nil {
			return sent, err
		}
		sent += len(chunk)
	}
	return sent, nil
}

// send plays one client per value in an epoch and returns when all are acknowledged, or the first
// error. It calls done after each, from several goroutines.
func (r *road) send(ctx context.Context, epoch uint64, values [][]float64, done func()) error {
	return inParallel(ctx, len(values), func(ctx context.Context, i int) error {
		err := r.report(ctx, epoch, values[i])
		if err == nil {
			done()
		}
		return err
	})
}

// inParallel plays n clients, and returns when all are done, or the first error.
func inParallel(ctx context.Context, n int, play func(ctx context.Context, i int) error) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var next atomic.Int64
	var wg sync.WaitGroup
	for range 4 * runtime.GOMAXPROCS(0) {
		wg.Go(func() {
			for i := int(next.Add(1) - 1); i < n && ctx.Err() == nil; i = int(next.Add(1) - 1) {
				if err := play(ctx, i); err != nil {
					cancel(fmt.Errorf("client %d: %w", i, err))
					return
				}
			}
		})
	}
	wg.Wait()
	return context.Cause(ctx)
}

// report plays one client.
func (r *road) report(ctx context.Context, epoch uint64, value []float64) error {
	report, err := r.client.Report(epoch, value)
	if err != nil {
		return err
	}
	return r.submit(ctx, report)
}

// submit sends a report from a network of its own as told by a trusted proxy: the same code that
// tells clients apart in a deployment.
func (r *road) submit(ctx context.Context, report *shufflerclient.Report) error {
	n := networks.Add(1)
	address := fmt.Sprintf("fd%02x:%x:%x::1", n>>32&0xff, n>>16&0xffff, n&0xffff)
	return r.client.WithHeader(http.Header{"X-Forwarded-For": {address}}).Submit(ctx, report)
}

// waitBatches returns when the verifier has released this many batches of epoch 0.
func (r *road) waitBatches(ctx context.Context, want uint64) error {
	for {
		report, err := r.verifier.Report()
		if err != nil || report.Batches >= want {
			return err
		}
		if len(report.Findings) > 0 {
			return fmt.Errorf("a batch was not released: %+v", report.Findings)
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(pull):
		}
	}
}
