package main

import (
	"context"
	"fmt"
	"net/http"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"github.com/doona-dp/doona/internal/cli"
	"github.com/doona-dp/doona/internal/quickstart"
	"github.com/doona-dp/doona/shufflerclient"
)

// simulatedTask is one task from its clients to its verifier, with simulated clients.
type simulatedTask struct{ *quickstart.RunningTask }

// networks numbers the networks of simulated clients.
var networks atomic.Uint64

// play sends one report per value, batch by batch. It finishes a batch's clients before the next batch's, so the demo
// knows which clients are in which batch.
func (r *simulatedTask) play(ctx context.Context, values [][]float64) (sent int, err error) {
	bar := cli.Progress("reporting", len(values))
	batch := int(r.Open.Batch.Size)
	for from := 0; from < len(values); from += batch {
		chunk := values[from:min(from+batch, len(values))]
		if err := r.send(ctx, 0, chunk, func() { bar.Add(1) }); err != nil {
			return sent, err
		}
		sent += len(chunk)
	}
	return sent, nil
}

// send plays one client per value in an epoch. It returns when all are acknowledged, or at the first error. It calls
// done after each, concurrently.
func (r *simulatedTask) send(ctx context.Context, epoch uint64, values [][]float64, done func()) error {
	return inParallel(ctx, len(values), func(ctx context.Context, i int) error {
		err := r.report(ctx, epoch, values[i])
		if err == nil {
			done()
		}
		return err
	})
}

// inParallel plays n clients. It returns when all are done, or at the first error.
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
func (r *simulatedTask) report(ctx context.Context, epoch uint64, value []float64) error {
	report, err := r.Client.Report(epoch, value)
	if err != nil {
		return err
	}
	return r.submit(ctx, report)
}

// submit sends a report from a network of its own, as a trusted proxy would name it. So the relay runs the same code
// as in a deployment to tell clients apart.
func (r *simulatedTask) submit(ctx context.Context, report *shufflerclient.Report) error {
	n := networks.Add(1)
	address := fmt.Sprintf("fd%02x:%x:%x::1", n>>32&0xff, n>>16&0xffff, n&0xffff)
	return r.Client.WithHeader(http.Header{"X-Forwarded-For": {address}}).Submit(ctx, report)
}

// waitBatches returns when the verifier has released this many batches of epoch 0.
func (r *simulatedTask) waitBatches(ctx context.Context, want uint64) error {
	for {
		report, err := r.Verifier.Report()
		if err != nil || report.Batches >= want {
			return err
		}
		if len(report.Findings) > 0 {
			return fmt.Errorf("a batch was not released: %+v", report.Findings)
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(quickstart.Pull):
		}
	}
}
