package main

import (
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/doona-dp/doona/protocols"
	"github.com/doona-dp/doona/wire/handover"
	"github.com/doona-dp/doona/wire/task"
)

// doubts are reasons why what is said of a task would stand for nothing that can happen.
type doubts []string

// doubt returns the doubts about a task: its claim, and whether relays would serve it and release a batch
// of so many clients; 0 stands for the task's own batch size.
func doubt(t *task.Task, m protocols.Mechanism, clients uint64) (out doubts) {
	if err := m.CheckClaim(); err != nil {
		out = append(out, "the claim is false: "+err.Error())
	}
	if clients > 0 && clients < t.Batch.Size && t.Claim.Assumption != task.NoneHonest {
		out = append(out, fmt.Sprintf("no relay would release a batch of %d clients: the task wants %d", clients,
			t.Batch.Size))
	}
	if err := servable(t); err != nil {
		out = append(out, "no relay would serve the task: "+err.Error())
	}
	return out
}

// servable is an error where a relay of the task could not hold its batches. A draft is taken to have two.
func servable(t *task.Task) error {
	if len(t.Relays) == 0 {
		draft := *t
		draft.Relays = make([]task.Party, 2)
		t = &draft
	}
	for hop := range t.Relays {
		if err := handover.CheckServable(t, hop); err != nil {
			return err
		}
	}
	return nil
}

// refuse is an error unless there is no doubt, or they were waived.
func (d doubts) refuse(unchecked bool) error {
	if len(d) == 0 || unchecked {
		return nil
	}
	return errors.New(strings.Join(d, "; ") + " (--unchecked goes on all the same)")
}

// print names the doubts that were waived.
func (d doubts) print(w io.Writer) {
	for _, why := range d {
		fmt.Fprintf(w, "unchecked: %s\n", why)
	}
}
