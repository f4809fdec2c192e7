package durable

import "sync"

// Coalescer merges concurrent calls: callers that arrive during a run share the next one. The zero value is ready. A
// relay's store uses it when many epochs end, or many keys are destroyed, at one time; the relay when many next hops
// confirm; an issuer when many clients ask for tokens.
type Coalescer[T any] struct {
	doing sync.Mutex // held during a run
	mu    sync.Mutex // guards next
	next  *round[T]  // the run that callers join; nil if none waits
}

// round is one run and the parts of its callers.
type round[T any] struct {
	all  []T
	done bool // Coalescer.doing guards done and err
	err  error
}

// Do runs do on the parts of this caller and of concurrent callers, and returns its error. That run begins after this
// call. All callers must pass the same do.
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
		c.next = nil // later callers start a new round
		c.mu.Unlock()
		mine.err, mine.done = do(mine.all), true
	}
	return mine.err
}

// Waiting returns how many parts wait for the next run, for tests.
func (c *Coalescer[T]) Waiting() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.next == nil {
		return 0
	}
	return len(c.next.all)
}
