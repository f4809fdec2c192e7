package store

import (
	"context"
	"sync"
	"time"
)

// Process is what a store needs from the process that serves from it. [Open] takes it, so that no caller can forget it
// later: every method that needs it uses it.
type Process struct {
	// Reserve keeps disk space for erasing; nil if none is kept.
	Reserve Reserve

	// Heartbeat runs Reconcile and what belongs to it. The store calls it periodically during work that takes minutes:
	// other processes continue without one that is silent. nil: there are no other processes.
	Heartbeat func(ctx context.Context)
	Every     time.Duration // interval between two heartbeats
}

// attach gives a process's reserve and heartbeat to a store and a vault.
func (p Process) attach(s *Store, v *Vault) {
	if p.Reserve != nil {
		s.reserve, v.reserve = p.Reserve, p.Reserve
	}
	s.heartbeat = heartbeat{p.Heartbeat, p.Every}
}

// heartbeat calls beat periodically.
type heartbeat struct {
	beat  func(ctx context.Context) // nil: none
	every time.Duration
}

// during calls do, which may take minutes, and calls beat meanwhile. No beat runs after it has returned.
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

// Reserve is disk space kept for erasing and confirming when a disk is full. A store uses it in all methods that erase,
// confirm or end. While the reserve is short, a store makes nothing new: the space left is for erasing.
type Reserve interface {
	// WithReserve calls do, which erases or confirms. If the disk was full, it frees the reserve and calls do again.
	WithReserve(do func() error) error

	// Short returns an error while the reserve is in use.
	Short() error
}

// noReserve keeps no space.
type noReserve struct{}

func (noReserve) WithReserve(do func() error) error { return do() }
func (noReserve) Short() error                      { return nil }
