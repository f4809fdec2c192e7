package store

import (
	"context"
	"fmt"
	"slices"
	"sync/atomic"
)

// Cause says what was set back. It is fit for strangers: it names no file.
type Cause string

// The causes of a [StateRollbackError]: see [Causes].
const (
	storeBehindSecret Cause = "the store is behind the secret"
	storeBehindKeys   Cause = "the store is behind the HPKE keys"
	secretBehind      Cause = "the secret is behind the store"
	keysBehind        Cause = "the HPKE keys are behind the store"
	otherDatabase     Cause = "the store is in another database server, or in another of its histories"
	otherFound        Cause = "another process has found that the store was set back"
)

// Causes lists them all.
func Causes() []Cause {
	return []Cause{storeBehindSecret, storeBehindKeys, secretBehind, keysBehind, otherDatabase, otherFound}
}

// SetBack is the error of everything on a store that has been found to be behind its key files, or the
// other way round.
type StateRollbackError struct {
	Cause  Cause
	Detail string // for the operator
}

// Error returns the cause, the detail and what to do.
func (s *StateRollbackError) Error() string {
	return fmt.Sprintf("set back: %s: %s: nothing is taken, made or handed out until it is put right, or its "+
		"epochs are ended (relay end-epochs)", s.Cause, s.Detail)
}

// ofStore says whether it is the store that was set back, as this process has found itself.
func (s *StateRollbackError) storeRolledBack() bool {
	return s != nil && slices.Contains([]Cause{storeBehindSecret, storeBehindKeys, otherDatabase}, s.Cause)
}

func foundByOther() *StateRollbackError {
	return &StateRollbackError{otherFound, "its log and its status say what it has found"}
}

// rollbackLatch is what has been found to be set back: from then on everything that changes the store, or hands out a batch,
// fails.
type rollbackLatch struct {
	found atomic.Pointer[StateRollbackError]
	tell  func(ctx context.Context) // tells the other processes; nil: there are none
}

// SetBack returns what has been found to be set back, nil for nothing.
func (a *rollbackLatch) StateRollback() *StateRollbackError { return a.found.Load() }

// stop has everything fail from now on, and tells the other processes.
func (a *rollbackLatch) stop(ctx context.Context, back *StateRollbackError) error {
	a.found.CompareAndSwap(nil, back)
	if a.tell != nil {
		a.tell(ctx)
	}
	return a.found.Load()
}

// silence has all go on with the store as it is, by the operator's word.
func (a *rollbackLatch) clear() { a.found.Store(nil) }
