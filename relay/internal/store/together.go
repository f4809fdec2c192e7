package store

import "sync"

// Together has those who want the same done at the same time share it: while it is done for some, others gather, for
// whom it is then done once. The zero value is ready.
type Together[T any] struct {
	doing sync.Mutex // held while it is done
	mu    sync.Mutex // guards next
	next  *round[T]  // who gathers; nil: nobody
}

// round is what is done once for some.
type round[T any] struct {
	all  []T
	done bool // as the rest, guarded by Together.doing
	err  error
}

// Do returns what do returns, for this caller's part and those of others, in a call that begins after this one's. All
// who share a call need to pass the same do.
func (t *Together[T]) Do(do func([]T) error, part ...T) error {
	t.mu.Lock()
	if t.next == nil {
		t.next = new(round[T])
	}
	mine := t.next
	mine.all = append(mine.all, part...)
	t.mu.Unlock()

	t.doing.Lock()
	defer t.doing.Unlock()
	if !mine.done {
		t.mu.Lock()
		t.next = nil // it is this one: of those that are not done there is only one
		t.mu.Unlock()
		mine.err, mine.done = do(mine.all), true
	}
	return mine.err
}
