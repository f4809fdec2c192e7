package store

import (
	"context"
	"sync"
	"time"
)

// Process is what a store needs of the process that serves from it. Who gives it to [Open] cannot forget it later: the
// store uses it by itself, in each method that has to.
type Process struct {
	// Reserve keeps room for erasing; nil where none is kept.
	Reserve Reserve

	// Heartbeat follows the store, with all that goes with it. The store calls it every so often while it is at work
	// for minutes: the other processes that share it go on without one that they do not hear of. nil: nobody listens.
	Heartbeat func(ctx context.Context)
	Every     time.Duration // between two heartbeats
}

// attach has a store and a vault use what a process gives them.
func (p Process) attach(s *Store, v *Vault) {
	if p.Reserve != nil {
		s.reserve, v.reserve = p.Reserve, p.Reserve
	}
	s.heartbeat = heartbeat{p.Heartbeat, p.Every}
}

// heartbeat is that of a process.
type heartbeat struct {
	beat  func(ctx context.Context) // nil: none
	every time.Duration
}

// during calls do, which may take minutes, and meanwhile has the process be heard of. When it returns the last
// heartbeat is over.
func (h heartbeat) during(ctx context.Context, do func() error) error {
	if h.beat == nil {
		return do()
	}
	done := make(chan struct{})
	var beats sync.WaitGroup
	beats.Go(func() {
		tick := time.NewTicker(h.every)
		defer tick.Stop()
		for {
			select {
			case <-done:
				return
			case <-tick.C:
				h.beat(ctx)
			}
		}
	})
	defer beats.Wait()
	defer close(done)
	return do()
}

// Reserve is the room that is kept for erasing and confirming where a disk is full. A store uses it by itself in all
// that erases, confirms or ends, and makes nothing else while it is short: what is left is for erasing alone.
type Reserve interface {
	// WithReserve does what erases or confirms, and once more in the room that is kept where a disk was full.
	WithReserve(do func() error) error

	// Short is an error while the room that is kept is in use.
	Short() error
}

// noReserve keeps no room.
type noReserve struct{}

func (noReserve) WithReserve(do func() error) error { return do() }
func (noReserve) Short() error                      { return nil }
