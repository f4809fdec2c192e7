package edge

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/http"
	"time"

	"github.com/doona-dp/doona/shufflerclient"
	"github.com/doona-dp/doona/wire/problem"
)

// patience limits the retries of one report, in total. With the longest delay (20 s) and the time for a token (2 s), it
// stays below the 30 s after which the runtime ends work.
const patience = 6 * time.Second

// visit is one request that may report to the open epoch of a task.
type visit struct {
	name   string
	client *shufflerclient.Client
	epoch  uint64
	pause  time.Duration // Before the report is sent. Drawn before the value is read.
	job    *job
}

// open admits a request that may report to a task. network is where a body is awaited from, or "". The caller ends the
// visit with [load.end].
func (w *Worker) open(ctx context.Context, name, network string) (*visit, error) {
	j, err := w.load.begin(network)
	if err != nil {
		return nil, err
	}
	v := &visit{name: name, job: j}
	if err := w.prepare(ctx, v); err != nil {
		w.load.end(j)
		return nil, err
	}
	return v, nil
}

// prepare draws the random pause and finds the task and its open epoch.
func (w *Worker) prepare(ctx context.Context, v *visit) (err error) {
	if most := w.config.delay(); most > 0 {
		v.pause = rand.N(most)
	}
	if v.client, err = w.task(ctx, v.name); err != nil {
		return err
	}
	var ok bool
	if v.epoch, ok = v.client.Task().Epochs.At(uint64(time.Now().Unix())); !ok {
		return newProblem(problem.EpochNotOpen, http.StatusConflict, "no epoch of the task is open now", "")
	}
	return nil
}

// key returns a name of the epoch that is unique over all tasks.
func (v *visit) key() string { return fmt.Sprintf("%s/%d", v.client.Task().ID, v.epoch) }

func (v *visit) end() uint64 { return v.client.Task().Epochs.End(v.epoch) }

// Observe reports an answered request's properties to every task with source request. Whether a request is sampled does
// not depend on its properties.
func (w *Worker) Observe(o Observation) {
	for _, name := range w.observed {
		if rand.Float64() >= w.config.Tasks[name].sample() {
			continue
		}
		w.host.Background(func() {
			if err := w.observe(context.Background(), name, &o); err != nil {
				w.dropped(name, err)
			}
		})
	}
}

func (w *Worker) observe(ctx context.Context, name string, o *Observation) error {
	v, err := w.open(ctx, name, "")
	if err != nil {
		return err
	}
	defer w.load.end(v.job)
	t := w.config.Tasks[name]
	if t.Once {
		if first, err := w.claim(v, o.Visitor, 1); err != nil || !first {
			return err
		}
	}
	report, err := w.seal(v, []float64{t.value(o)})
	if err != nil {
		return err
	}
	return w.deliver(ctx, v, report)
}

// forgotten is how many seconds after an epoch's end the counts of networks are deleted. Clocks may differ by minutes.
const forgotten = 600

// claim counts one report of the visitor's network. It returns false if the quota is used up. It runs before the value
// is read: if a later step fails, a second post draws no fresh noise.
func (w *Worker) claim(v *visit, visitor string, most uint64) (bool, error) {
	network := networkOf(visitor)
	if network == "" {
		return false, noAddress()
	}
	free, err := w.host.CheckQuota(network, v.key(), most, v.end()+forgotten)
	if err != nil {
		w.host.Log(fmt.Sprintf("doona: couldn't count the reports of a network to task %s: %v", v.name, err))
		return false, newProblem(problem.Internal, http.StatusInternalServerError,
			"the worker can't count reports per network now", "")
	}
	return free, nil
}

func noAddress() error {
	return newProblem(problem.Internal, http.StatusInternalServerError, "the request has no address: header CF-Connecting-IP is missing or invalid", "")
}

// seal randomizes and seals a value. Its errors contain no part of the value.
func (w *Worker) seal(v *visit, value []float64) (*shufflerclient.Report, error) {
	if err := w.load.hold(v.job, reportBytes(v.client.Task().Task)); err != nil {
		return nil, err
	}
	report, err := v.client.Report(v.epoch, value)
	if err != nil {
		return nil, valueProblem(err)
	}
	return report, nil
}

// report seals a value and delivers the report in the background; the visit ends with the delivery. When report
// returns, the value is no longer needed.
func (w *Worker) report(ctx context.Context, v *visit, value []float64) error {
	report, err := w.seal(v, value)
	if err != nil {
		w.load.end(v.job)
		return err
	}
	w.host.Background(func() {
		defer w.load.end(v.job)
		if err := w.deliver(ctx, v, report); err != nil {
			w.dropped(v.name, err)
		}
	})
	return nil
}

// deliver gets a token if the task needs one, waits the visit's pause and posts the report. If the relay accepts the
// report, deliver refills the stock of tokens.
func (w *Worker) deliver(ctx context.Context, v *visit, report *shufflerclient.Report) (err error) {
	issued := 0
	if report.Token, issued, err = w.token(ctx, v); err != nil {
		return err
	}
	w.host.Pause(v.pause)
	if err := v.client.Submit(deadline{ctx, time.Now().Add(patience)}, report); err != nil {
		return err
	}
	w.refill(ctx, v, tokensPerReport-issued)
	return nil
}

// deadline is a context that expires at a given time without setting a timer.
type deadline struct {
	context.Context
	at time.Time
}

func (d deadline) Deadline() (time.Time, bool) { return d.at, true }

func (d deadline) Err() error {
	if time.Now().After(d.at) {
		return context.DeadlineExceeded
	}
	return d.Context.Err()
}

func (w *Worker) pause(_ context.Context, d time.Duration) error {
	w.host.Pause(d)
	return nil
}

// dropped logs that a report was lost, the cause, and how many reports this instance has lost.
func (w *Worker) dropped(name string, err error) {
	w.mu.Lock()
	w.lost++
	lost := w.lost
	w.mu.Unlock()
	w.host.Log(fmt.Sprintf("doona: dropped a report to task %s: %v (%d dropped)", name, err, lost))
}
