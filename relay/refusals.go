package relay

import (
	"errors"
	"fmt"
	"strings"

	"github.com/doona-dp/doona/relay/internal/tasks"
	"github.com/doona-dp/doona/wire/problem"
)

// Refusal says that the relay now refuses all or most reports of a task, or hands out no batch of it, and why.
type Refusal struct {
	Task    string       `json:"task,omitempty"` // id, lower-case hex; "" for tasks that the relay does not serve
	Most    bool         `json:"most,omitempty"` // it refuses more than half of the latest reports, and not all
	Problem problem.Name `json:"problem"`        // what clients, or the next hop, are answered
	Reason  string       `json:"reason"`
}

// String describes the refusal in words.
func (f Refusal) String() string {
	share, of := "all reports", "task "+fmt.Sprintf("%.8s", f.Task)
	if f.Most {
		share = "most reports"
	}
	if f.Task == "" {
		of = "the relay"
	}
	return fmt.Sprintf("%s refuses %s: %s: %s", of, share, f.Problem, f.Reason)
}

// refusals returns which tasks refuse all or most reports now, although the relay itself works. all reports whether
// each task with a current epoch refuses all.
func (r *Relay) refusals() (found []Refusal, all bool) {
	now, open, closed := r.clock.Read().Now, 0, 0
	hosted := r.Hosted()
	r.answers.forget(hosted.ByID)
	for _, s := range hosted.Order {
		number, current := s.Epochs.At(uint64(max(now.Unix(), 0)))
		if current && !s.IsStopped() {
			name, why := refuses(s.Epoch(number))
			if name != "" || !s.IsSuspended() { // the status of a suspended owner says that it is suspended
				open++
			}
			if name != "" {
				closed++
				found = append(found, Refusal{Task: s.ID.String(), Problem: name, Reason: why})
				continue
			}
		}
		if name := r.answers.mostly(s.ID); name != "" && !s.IsSuspended() && !s.IsWithdrawn() {
			found = append(found, Refusal{s.ID.String(), true, name, advice[name]})
		}
	}
	if name := r.answers.mostly(allTasks); name == problem.UnknownTask {
		found = append(found, Refusal{"", true, name, advice[name]})
	}
	return found, closed > 0 && closed == open
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

// checkTasks returns an error if every task with a current epoch refuses all reports.
func (r *Relay) checkTasks() error {
	found, all := r.refusals()
	if !all {
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
