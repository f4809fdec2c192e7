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

// doubts are reasons why statements about a task would describe nothing that can happen.
type doubts []string

// doubt checks a task's claim, and whether relays would serve the task and release a batch of this many clients; 0
// means the task's own batch size.
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

// refuse returns an error if there are doubts and the user did not waive them.
func (d doubts) refuse(unchecked bool) error {
	if len(d) == 0 || unchecked {
		return nil
	}
	return errors.New(strings.Join(d, "; ") + " (--unchecked continues anyway)")
}

// print lists the waived doubts.
func (d doubts) print(w io.Writer) {
	for _, why := range d {
		fmt.Fprintf(w, "unchecked: %s\n", why)
	}
}
