package durable

import "sync"

// Coalescer merges concurrent calls: callers that arrive during a run share the next one. The zero value is ready. The
// store of a relay does so where many epochs end, or keys are destroyed, at one time, the relay where many next hops
// confirm, and an issuer where many ask for tokens.
type Coalescer[T any] struct {
	doing sync.Mutex // held while it is done
	mu    sync.Mutex // guards next
	next  *round[T]  // who gathers; nil: nobody
}

// round is what is done once for some.
type round[T any] struct {
	all  []T
	done bool // as the rest, guarded by Coalescer.doing
	err  error
}

// Do returns what do returns, for this caller's part and those of others, in a call that begins after this one's. All
// who share a call need to pass the same do.
func (c *Coalescer[T]) Do(do func([]T) error, part ...T) error {
	c.mu.Lock()
	if c.next == nil {
		c.next = new(round[T])
	}
	mine := c.next
	mine.all = append(mine.all, part...)
	c.mu.Unlock()

	c.doing.Lock()
	defer c.doing.Unlock()
	if !mine.done {
		c.mu.Lock()
		c.next = nil // it is this one: of those that are not done there is only one
		c.mu.Unlock()
		mine.err, mine.done = do(mine.all), true
	}
	return mine.err
}

// Waiting returns how many parts wait for the next run: tests wait for them.
func (c *Coalescer[T]) Waiting() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.next == nil {
		return 0
	}
	return len(c.next.all)
}
