package store

import (
	"context"
	"fmt"
	"slices"
	"sync/atomic"
)

// Cause says what was rolled back. It names no file, so that it may be shown to anyone.
type Cause string

// The causes of a [StateRollbackError]: see [Causes].
const (
	storeOlderThanSecret Cause = "the store is older than the secret"
	storeOlderThanKeys   Cause = "the store is older than the HPKE keys"
	secretOlderThanStore Cause = "the secret is older than the store"
	keysOlderThanStore   Cause = "the HPKE keys are older than the store"
	otherDatabase        Cause = "the store is on another database server or timeline"
	otherFound           Cause = "another process detected a state rollback"
)

// Causes lists all causes.
func Causes() []Cause {
	return []Cause{storeOlderThanSecret, storeOlderThanKeys,
		secretOlderThanStore, keysOlderThanStore, otherDatabase, otherFound}
}

// StateRollbackError is returned by all methods that change the store or hand out a batch once the store was found to
// be older than its key files, or a key file older than the store.
type StateRollbackError struct {
	Cause  Cause
	Detail string // for the operator
}

// Error returns the cause, the detail and what to do.
func (s *StateRollbackError) Error() string {
	return fmt.Sprintf("state rollback detected: %s: %s: relay stopped; restore the newer files or run "+
		"relay end-epochs", s.Cause, s.Detail)
}

// storeRolledBack says whether the store was rolled back and this process found it.
func (s *StateRollbackError) storeRolledBack() bool {
	return s != nil && slices.Contains([]Cause{storeOlderThanSecret, storeOlderThanKeys, otherDatabase}, s.Cause)
}

func foundByOther() *StateRollbackError {
	return &StateRollbackError{otherFound, "see the log and status of that process"}
}

// rollbackLatch keeps the first state rollback found. From then on, every method that changes the store or hands out a
// batch fails.
type rollbackLatch struct {
	found    atomic.Pointer[StateRollbackError]
	announce func(ctx context.Context) // tells the other processes; nil if there are none
}

// StateRollback returns the state rollback that was found, nil if there was none.
func (a *rollbackLatch) StateRollback() *StateRollbackError { return a.found.Load() }

// stop keeps a state rollback, announces it, and returns the one that is kept.
func (a *rollbackLatch) stop(ctx context.Context, back *StateRollbackError) error {
	a.found.CompareAndSwap(nil, back)
	if a.announce != nil {
		a.announce(ctx)
	}
	return a.found.Load()
}

// clear lets the relay continue with the current store. Only an operator may ask for it.
func (a *rollbackLatch) clear() { a.found.Store(nil) }
