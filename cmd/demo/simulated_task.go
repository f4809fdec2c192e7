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

// simulatedTask is a running task for which the demo plays the clients.
type simulatedTask struct{ *quickstart.RunningTask }

// networks counts the networks from which simulated clients have reported.
var networks atomic.Uint64

// play sends one report per value, batch by batch. It waits until all reports of a batch are acknowledged before it
// begins the next. So the demo knows which clients are in which batch.
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

// send sends one report per value in an epoch. It returns when all are acknowledged, or at the first error. It calls
// done after each, from several goroutines.
func (r *simulatedTask) send(ctx context.Context, epoch uint64, values [][]float64, done func()) error {
	return inParallel(ctx, len(values), func(ctx context.Context, i int) error {
		err := r.report(ctx, epoch, values[i])
		if err == nil {
			done()
		}
		return err
	})
}

// inParallel calls play for n clients, several at a time. It returns when all are done, or at the first error.
func inParallel(ctx context.Context, n int, play func(ctx context.Context, i int) error) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var next atomic.Int64
	var wg sync.WaitGroup
	for range 4 * runtime.GOMAXPROCS(0) {
		wg.Go(func() {
			for i := int(next.Add(1) - 1); i < n && ctx.Err() == nil; i = int(next.Add(1) - 1) {
				if err := play(ctx, i); err != nil {
					cancel(fmt.Errorf("client %d failed: %w", i, err))
					return
				}
			}
		})
	}
	wg.Wait()
	return context.Cause(ctx)
}

func (r *simulatedTask) report(ctx context.Context, epoch uint64, value []float64) error {
	report, err := r.Client.Report(epoch, value)
	if err != nil {
		return err
	}
	return r.submit(ctx, report)
}

// submit submits a report as if from a new network, with the header that a trusted proxy adds. So the relay tells
// clients apart by the same code as in a real deployment.
func (r *simulatedTask) submit(ctx context.Context, report *shufflerclient.Report) error {
	n := networks.Add(1)
	address := fmt.Sprintf("fd%02x:%x:%x::1", n>>32&0xff, n>>16&0xffff, n&0xffff)
	return r.Client.WithHeader(http.Header{"X-Forwarded-For": {address}}).Submit(ctx, report)
}

// waitBatches waits until the verifier has released this many batches of epoch 0.
func (r *simulatedTask) waitBatches(ctx context.Context, want uint64) error {
	for {
		report, err := r.Verifier.Report()
		if err != nil || report.Batches >= want {
			return err
		}
		if len(report.Findings) > 0 {
			return fmt.Errorf("the verifier did not release a batch: findings %+v", report.Findings)
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(quickstart.Pull):
		}
	}
}
