package collect

import (
	"context"
	"time"
)

// relayClock is what the last relay said about its clock.
type relayClock struct {
	asked time.Time     // when this machine's clock and it were compared; zero for never
	ahead time.Duration // by how much it is ahead of this machine's
}

const (
	clockPace    = time.Minute      // from one comparison to the next
	clockTimeout = 10 * time.Second // of one
	clockOff     = time.Minute      // a difference that is worth a warning
)

// now returns Unix seconds by this machine's clock, or by the last relay's, signed, if that is ahead. What it
// decides is when to ask: asking too early costs nothing, and what ends an epoch and erases its key is
// the last relay's signed word, from which all batches come. So a clock here that is behind keeps no
// key for longer.
func (p *Puller) now(ctx context.Context) uint64 {
	if since := time.Since(p.relayClock.asked); p.relayClock.asked.IsZero() || since > clockPace {
		p.compare(ctx)
	}
	return uint64(max(0, p.Clock().Add(max(0, p.relayClock.ahead)).Unix()))
}

// compare asks the last relay for its clock.
func (p *Puller) compare(ctx context.Context) {
	within, stop := context.WithTimeout(ctx, clockTimeout)
	defer stop()
	open, before := p.open, p.relayClock.ahead
	p.relayClock = relayClock{asked: time.Now()}
	unix, err := p.client.Time(within, open, open.VerifierHop()-1)
	if err != nil {
		return
	}
	p.relayClock.ahead = time.Unix(int64(unix), 0).Sub(p.Clock())
	if ahead := p.relayClock.ahead; ahead.Abs() > clockOff && before.Abs() <= clockOff {
		p.log.Warn("the last relay's clock and this machine's differ", "ahead", ahead.Round(time.Second))
	}
}
