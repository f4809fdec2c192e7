package store

import "sync"

// together has those who destroy keys at the same time share it: while it is done for some, others gather, for whom it
// is then done once. The zero value is ready.
type together struct {
	doing sync.Mutex // held while it is done
	mu    sync.Mutex // guards next
	next  *round     // who gathers; nil: nobody
}

// round is what is done once for some.
type round struct {
	labels [][]byte
	done   bool // as the rest, guarded by together.doing
	err    error
}

// do returns what cut returns, for this caller's labels and those of others, in a call that begins after this one's.
// All who share a call need to pass the same cut.
func (t *together) do(cut func(labels [][]byte) error, labels ...[]byte) error {
	t.mu.Lock()
	if t.next == nil {
		t.next = new(round)
	}
	mine := t.next
	mine.labels = append(mine.labels, labels...)
	t.mu.Unlock()

	t.doing.Lock()
	defer t.doing.Unlock()
	if !mine.done {
		t.mu.Lock()
		t.next = nil // it is this one: of those that are not done there is only one
		t.mu.Unlock()
		mine.err, mine.done = cut(mine.labels), true
	}
	return mine.err
}
