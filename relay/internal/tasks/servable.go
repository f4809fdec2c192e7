package relay

import (
	"time"

	"github.com/doona-dp/doona/relay/internal/store"
	"github.com/doona-dp/doona/wire/problem"
)

// findRolledBack is kept on such an epoch.
const findRolledBack store.Reason = "the next hop has had a batch that is not here: everything was set back"

// errRolledBack is the problem of such an epoch.
func errRolledBack() error {
	return problem.New(problem.SetBack, "%s", findRolledBack).Retry(setBackRetry)
}

// ended returns the problem of an epoch that the operator has ended: nothing further comes of it, and nobody
// can say what has come.
func ended() error { return problem.New(problem.EpochEnded, "") }

// setBackRetry is when to ask a relay again that was set back: people must come first.
const setBackRetry = 10 * time.Minute

// CheckServable is the problem of an epoch of which nothing is to be looked up: it is behind, or the operator has
// ended it, which forgets its batches on purpose.
func (e hostedEpoch) CheckServable() error {
	switch {
	case e.State() == store.StateEnded:
		return ended()
	case e.RolledBack():
		return errRolledBack()
	}
	return nil
}

func (e hostedEpoch) RolledBack() bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.behind[e.Number]
}

func (e hostedEpoch) SetRolledBack() {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.behind[e.Number] = true
}
