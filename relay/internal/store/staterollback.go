package store

import (
	"context"
	"fmt"
	"slices"
	"sync/atomic"
)

// Cause says which file or database was rolled back. It names no path, so that anyone may see it.
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

// StateRollbackError means that the store is older than its key files, or a key file older than the store. Once this is
// found, all methods that change the store or hand out a batch return it.
type StateRollbackError struct {
	Cause  Cause
	Detail string // for the operator
}

// Error returns the cause, the detail and what the operator can do.
func (s *StateRollbackError) Error() string {
	return fmt.Sprintf("state rollback detected: %s: %s: relay stopped; restore the newer files or run "+
		"relay end-epochs", s.Cause, s.Detail)
}

// storeRolledBack reports whether this process itself found that the store was rolled back, not one of its key files.
func (s *StateRollbackError) storeRolledBack() bool {
	return s != nil && slices.Contains([]Cause{storeOlderThanSecret, storeOlderThanKeys, otherDatabase}, s.Cause)
}

func foundByOther() *StateRollbackError {
	return &StateRollbackError{otherFound, "see the log and status of that process"}
}

// rollbackLatch keeps the first state rollback that this process found. Every method that changes the store or hands
// out a batch then returns it.
type rollbackLatch struct {
	found    atomic.Pointer[StateRollbackError]
	announce func(ctx context.Context) // tells the other processes; nil if there are none
}

// StateRollback returns the state rollback that was found, nil if there was none.
func (a *rollbackLatch) StateRollback() *StateRollbackError { return a.found.Load() }

// stop keeps a state rollback unless there is one already, announces the kept one to the other processes, and returns
// it.
func (a *rollbackLatch) stop(ctx context.Context, back *StateRollbackError) error {
	a.found.CompareAndSwap(nil, back)
	if a.announce != nil {
		a.announce(ctx)
	}
	return a.found.Load()
}

// clear lets the relay continue with the current store, after the operator has ended the epochs.
func (a *rollbackLatch) clear() { a.found.Store(nil) }
