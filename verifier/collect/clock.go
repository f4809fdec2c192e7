package collect

import (
	"context"
	"log/slog"
	"time"

	"github.com/doona-dp/doona/wire/handover"
	"github.com/doona-dp/doona/wire/taskfile"
)

// relayClock compares this machine's clock with the last relay's.
type relayClock struct {
	open   *taskfile.Open
	client *handover.Requester
	log    *slog.Logger

	lastCompared time.Time     // time of the last comparison; zero before the first
	ahead        time.Duration // how far the relay's clock is ahead of this machine's; negative if behind
}

const (
	clockInterval  = time.Minute      // time between comparisons
	clockTimeout   = 10 * time.Second // maximum time of a comparison
	clockTolerance = time.Minute      // a larger difference causes a warning
)

// now returns the time in Unix seconds: of this machine's clock, or of the last relay's signed clock if that is ahead.
// The time only decides when to pull, and pulling too early is harmless. Not the clock but the last relay's signed end
// ends an epoch and erases its key. So if this machine's clock is slow, no key is kept longer.
func (r *relayClock) now(ctx context.Context, local func() time.Time) uint64 {
	if since := time.Since(r.lastCompared); r.lastCompared.IsZero() || since > clockInterval {
		r.compare(ctx, local)
	}
	return uint64(max(0, local().Add(max(0, r.ahead)).Unix()))
}

// compare asks the last relay for its time.
func (r *relayClock) compare(ctx context.Context, local func() time.Time) {
	within, stop := context.WithTimeout(ctx, clockTimeout)
	defer stop()
	before := r.ahead
	r.lastCompared, r.ahead = time.Now(), 0
	unix, err := r.client.Time(within, r.open, r.open.VerifierHop()-1)
	if err != nil {
		return
	}
	r.ahead = time.Unix(int64(unix), 0).Sub(local())
	if ahead := r.ahead; ahead.Abs() > clockTolerance && before.Abs() <= clockTolerance {
		r.log.Warn("the last relay's clock and this machine's differ", "ahead", ahead.Round(time.Second))
	}
}
