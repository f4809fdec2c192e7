package relay

import (
	"errors"
	"fmt"
	"strings"

	"github.com/doona-dp/doona/relay/internal/tasks"
	"github.com/doona-dp/doona/wire/problem"
)

// Refusal says that the relay refuses the reports of a task now, or hands out no batch of it, and why.
type Refusal struct {
	Task    string       `json:"task"` // id, lower-case hex
	Epoch   uint64       `json:"epoch"`
	Problem problem.Name `json:"problem"` // what clients, or the next hop, are answered
	Reason  string       `json:"reason"`
}

// refusalProblems are the problems that a [Refusal] may have.
var refusalProblems = []problem.Name{problem.StateRolledBack, problem.Overloaded}

// String describes the refusal in words.
func (f Refusal) String() string {
	return fmt.Sprintf("task %.8s refuses reports of epoch %d: %s: %s", f.Task, f.Epoch, f.Problem, f.Reason)
}

// refusals returns which tasks refuse the reports of their current epoch, although the relay itself works. open is how
// many tasks have a current epoch.
func (r *Relay) refusals() (found []Refusal, open int) {
	now := r.clock.Read().Now
	for _, s := range r.Hosted().Order {
		number, current := s.Epochs.At(uint64(max(now.Unix(), 0)))
		if !current || s.IsStopped() {
			continue
		}
		open++
		if name, why := refuses(s.Epoch(number)); name != "" {
			found = append(found, Refusal{Task: s.ID.String(), Epoch: number, Problem: name, Reason: why})
		}
	}
	return found, open
}

// refuses returns the problem with which an epoch's reports are refused, and why, or "".
func refuses(e tasks.Epoch) (name problem.Name, why string) {
	switch {
	case e.RolledBack():
		return problem.StateRolledBack, string(tasks.FindRolledBack) +
			": restore the newer files or run relay end-epochs"
	case e.WithTokens() && e.TokenKey() == nil:
		return problem.Overloaded, "the issuer at " + e.Clients.Issuer.URL + " has not given its key: ask its operator"
	}
	return "", ""
}

// checkTasks returns an error if every task with a current epoch refuses its reports.
func (r *Relay) checkTasks() error {
	found, open := r.refusals()
	if len(found) == 0 || len(found) < open {
		return nil
	}
	return errors.New(strings.Join(describe(found), "\n"))
}

// warnings describes the refusals, for a relay that is ready for other tasks.
func (r *Relay) warnings() []string {
	found, _ := r.refusals()
	return describe(found)
}

func describe(all []Refusal) (out []string) {
	for _, f := range all {
		out = append(out, f.String())
	}
	return out
}

// isAnyRolledBack reports whether the next hop has shown that an epoch was rolled back which the operator has not ended
// and which has not expired.
func (r *Relay) isAnyRolledBack() bool {
	for _, s := range r.Hosted().Order {
		if s.IsAnyRolledBack() {
			return true
		}
	}
	return false
}
