package main

import (
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/doona-dp/doona/planner"
	"github.com/doona-dp/doona/protocols"
	"github.com/doona-dp/doona/wire/task"
)

// doubts are reasons why a task could not run as claimed: a false claim, or relays that would refuse it.
type doubts []string

// doubt checks a task's claim, and whether relays would serve the task and release a batch of this many clients. With
// clients = 0 it does not check the batch.
func doubt(t *task.Task, m protocols.Mechanism, clients uint64) (out doubts) {
	if err := m.CheckClaim(); err != nil {
		out = append(out, "the claim is false: "+err.Error())
	}
	if clients > 0 && clients < t.Batch.Size && t.Claim.Assumption != task.NoneHonest {
		out = append(out, fmt.Sprintf("no relay would release a batch of %d clients: the task wants %d", clients,
			t.Batch.Size))
	}
	if err := planner.CheckServable(t, planner.DefaultRelays); err != nil {
		out = append(out, "no relay would serve the task: "+err.Error())
	}
	return out
}

// refuse returns the doubts as an error, unless there are none or the user waived them by --unchecked.
func (d doubts) refuse(unchecked bool) error {
	if len(d) == 0 || unchecked {
		return nil
	}
	return errors.New(strings.Join(d, "; ") + " (--unchecked continues anyway)")
}

func (d doubts) print(w io.Writer) {
	for _, why := range d {
		fmt.Fprintf(w, "unchecked: %s\n", why)
	}
}
