package main

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"github.com/doona-dp/doona/internal/cli"
	"github.com/doona-dp/doona/internal/invalid"
	"github.com/doona-dp/doona/planner"
	"github.com/doona-dp/doona/wire/task"
)

// choice is the way that `task new` took from the plan, if the user named no protocol.
type choice struct {
	Of     int    `json:"of"`     // Number of ways in the plan, with the impossible ones.
	Reason string `json:"reason"` // A sentence on what speaks for this way and against it.
}

func (c *choice) print(w io.Writer) {
	if c != nil {
		fmt.Fprintf(w, "Without --protocol: the first of %d rows of 'doona plan'. %s\n", c.Of, c.Reason)
	}
}

// ofProtocol are the flags that need --protocol, because each protocol allows other values.
var ofProtocol = []string{"rule", "param", "padding", "lanes"}

// draft calibrates the protocol that --protocol names. Without --protocol it takes the first way of the plan.
func (f *taskFlags) draft(cmd *cobra.Command) (*task.Task, *choice, error) {
	if f.query.Protocol != "" {
		bar := cli.Progress("calibrating", -1)
		t, err := planner.Draft(f.query)
		bar.Finish()
		return t, nil, cli.FlagError(err)
	}
	if err := cli.Refuse(cmd, "without --protocol: each protocol has its own", ofProtocol...); err != nil {
		return nil, nil, err
	}
	g := planner.Goal{Query: f.query, Noise: cmp.Or(planner.Noise(f.noise.by), planner.NoiseAny),
		Hops:       cmp.Or(len(f.relays), planner.DefaultRelays),
		LeastLocal: f.noise.relays.LocalEpsilon, MaxDummies: f.noise.relays.MaxDummies,
		Batches: f.noise.relays.Batches}
	g.Relays = nil // the plan tries both kinds of noise, within the limits above
	ways, err := planWithProgress(g)
	if err != nil {
		if field := new(invalid.FieldError); errors.As(err, &field) && field.Field == "users" {
			field.Field = "batch" // plan's --users is --batch here
		}
		return nil, nil, cli.FlagError(err)
	}
	if ways[0].Why != nil {
		return nil, nil, reasons(ways)
	}
	row, err := newPlanRow(g, &ways[0], planner.LeastError(ways))
	return ways[0].Task, &choice{len(ways), row.Reason}, err
}

// reasons returns an error for a plan in which every way is impossible. It says for each way why.
func reasons(ways []planner.Way) error {
	text := []string{"no protocol reaches this goal:"}
	for _, w := range ways {
		text = append(text, "  "+w.Protocol+": "+w.Why.Error())
	}
	return errors.New(strings.Join(text, "\n"))
}
