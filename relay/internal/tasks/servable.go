package tasks

import (
	"time"

	"github.com/doona-dp/doona/relay/internal/store"
	"github.com/doona-dp/doona/wire/problem"
)

// FindRolledBack is kept on such an epoch.
const FindRolledBack store.Reason = "the next hop has a batch that this relay lost: state rollback"

// RolledBackProblem is the problem of such an epoch.
func RolledBackProblem() error {
	return problem.New(problem.StateRolledBack, "%s", FindRolledBack).Retry(RollbackRetry)
}

// EndedProblem is that of an epoch that the operator has ended: nothing further comes of it, and nobody
// can say what has come.
func EndedProblem() error { return problem.New(problem.EpochEnded, "") }

// RollbackRetry is when to ask a relay again that was set back: people must come first.
const RollbackRetry = 10 * time.Minute

// CheckServable is the problem of an epoch of which nothing is to be looked up: it is behind, or the operator has
// ended it, which forgets its batches on purpose.
func (e Epoch) CheckServable() error {
	switch {
	case e.State() == store.StateEnded:
		return EndedProblem()
	case e.RolledBack():
		return RolledBackProblem()
	}
	return nil
}

// RolledBack says whether the next hop knows more of the epoch than the store.
func (e Epoch) RolledBack() bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.behind[e.Number]
}

// SetRolledBack takes note that it does.
func (e Epoch) SetRolledBack() {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.behind[e.Number] = true
}
