package store

import (
	"context"
	"sync"
	"time"
)

// Process has what a store needs from the process that serves from it. [Open] requires it, so that no caller can forget
// it.
type Process struct {
	// Reserve keeps disk space for erasing; nil keeps none.
	Reserve Reserve

	// Heartbeat calls Reconcile and what belongs to it. The store calls Heartbeat periodically during work that takes
	// minutes, so that other processes do not continue without this one. nil: there are no others.
	Heartbeat func(ctx context.Context)
	Every     time.Duration // interval between two heartbeats
}

// attach gives p's reserve to the store and the vault, and p's heartbeat to the store.
func (p Process) attach(s *Store, v *Vault) {
	if p.Reserve != nil {
		s.reserve, v.reserve = p.Reserve, p.Reserve
	}
	s.heartbeat = heartbeat{p.Heartbeat, p.Every}
}

type heartbeat struct {
	beat  func(ctx context.Context) // nil: none
	every time.Duration
}

// during calls do, which may take minutes, and meanwhile calls beat periodically. All calls have ended when it returns.
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

// Reserve is disk space for erasing and confirming when the disk is full. All methods of a store that erase, confirm or
// end use it. While the reserve is short, the store accepts no report and makes no batch, as the space left is for
// erasing.
type Reserve interface {
	// WithReserve calls do, which erases or confirms. If the disk is full, it frees the reserve and calls do again.
	WithReserve(do func() error) error

	// Short returns an error while the reserve is in use.
	Short() error
}

type noReserve struct{}

func (noReserve) WithReserve(do func() error) error { return do() }
func (noReserve) Short() error                      { return nil }
