package tasks

import (
	"time"

	"github.com/doona-dp/doona/relay/internal/store"
	"github.com/doona-dp/doona/wire/problem"
)

// FindRolledBack is the finding about an epoch of which this relay lost a batch.
const FindRolledBack store.Reason = "the next hop has a batch that this relay lost: state rollback"

// RolledBackProblem returns the answer to a requester if the epoch's state was rolled back.
func RolledBackProblem() error {
	return problem.New(problem.StateRolledBack, "%s", FindRolledBack).Retry(RollbackRetry)
}

// EndedProblem returns the answer to a requester if the operator has ended the epoch. The relay then no longer knows
// which batches of the epoch it released.
func EndedProblem() error { return problem.New(problem.EpochEnded, "") }

// RollbackRetry is how long after a state rollback a requester should ask again. It is long, because an operator has to
// act first.
const RollbackRetry = 10 * time.Minute

// CheckServable returns a problem if the relay must not serve the epoch: the epoch's state was rolled back, or the
// operator has ended the epoch and its batches are deleted.
func (e Epoch) CheckServable() error {
	switch {
	case e.State() == store.StateEnded:
		return EndedProblem()
	case e.RolledBack():
		return RolledBackProblem()
	}
	return nil
}

// RolledBack reports whether the next hop has a batch of the epoch that this relay's store lost.
func (e Epoch) RolledBack() bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.rolledBack[e.Number]
}

// IsAnyRolledBack reports whether an epoch was rolled back that has neither expired nor been ended by the operator.
func (s *Hosted) IsAnyRolledBack() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	for number := range s.rolledBack {
		if s.states[number] < store.StateExpired {
			return true
		}
	}
	return false
}

// SetRolledBack records that the next hop has a batch of the epoch that this relay's store lost.
func (e Epoch) SetRolledBack() {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.rolledBack[e.Number] = true
}
