package collect

import (
	"context"
	"log/slog"
	"time"

	"github.com/doona-dp/doona/wire/handover"
	"github.com/doona-dp/doona/wire/taskfile"
)

// relayClock is this machine's clock, held against what the last relay says about its own.
type relayClock struct {
	open   *taskfile.Open
	client *handover.Client
	log    *slog.Logger

	lastCompared time.Time     // when this machine's clock and it were compared; zero for never
	ahead        time.Duration // by how much it is ahead of this machine's
}

const (
	clockInterval  = time.Minute      // from one comparison to the next
	clockTimeout   = 10 * time.Second // of one
	clockTolerance = time.Minute      // a difference that is worth a warning
)

// now returns Unix seconds by this machine's clock, or by the last relay's, signed, if that is ahead. What it
// decides is when to ask: asking too early costs nothing, and what ends an epoch and erases its key is
// the last relay's signed word, from which all batches come. So a clock here that is behind keeps no
// key for longer.
func (r *relayClock) now(ctx context.Context, local func() time.Time) uint64 {
	if since := time.Since(r.lastCompared); r.lastCompared.IsZero() || since > clockInterval {
		r.compare(ctx, local)
	}
	return uint64(max(0, local().Add(max(0, r.ahead)).Unix()))
}

// compare asks the last relay for its clock.
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
