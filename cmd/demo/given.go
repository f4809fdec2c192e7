package main

import (
	"math"

	"github.com/spf13/cobra"

	"github.com/doona-dp/doona/internal/cli"
	"github.com/doona-dp/doona/protocols/registry"
	"github.com/doona-dp/doona/wire/task"
	"github.com/doona-dp/doona/wire/taskfile"
)

// ofTask lists the flags that --task replaces. For a count, --range still says which rows count as yes.
var ofTask = []string{"query", "bins", "length", "padding", "lanes", "batch", "honest", "epsilon", "delta", "noise",
	"local-epsilon"}

// take reads the task file of --task, which 'doona plan' or 'doona task new' wrote.
func (o *options) take(cmd *cobra.Command) error {
	if o.task == "" {
		return nil
	}
	if err := cli.Refuse(cmd, "with --task: its file sets it", ofTask...); err != nil {
		return err
	}
	t, _, err := taskfile.Load(o.task)
	if err != nil {
		return err
	}
	if !t.Query.Info().YesNo() {
		if err := cli.Refuse(cmd, "with --task: its file sets it", "range"); err != nil {
			return err
		}
	}
	if len(t.Relays) > 0 {
		return cli.Usagef("invalid task %s: want a draft that names no relays, as the demo starts its own", o.task)
	}
	o.given, o.query, o.bins, o.length, o.batch = t, t.Query, t.Input.Bins, t.Input.Bins, t.Batch.Size
	o.honest, o.padding, o.noise = t.Batch.Honest.Float64(), t.Slots.Padding, "clients"
	o.epsilon, o.delta = t.Claim.Epsilon.Value(), t.Claim.Delta.Value()
	if t.Slots.Lanes > 1 {
		o.lanes = t.Slots.Lanes
	}
	m, err := registry.Open(t)
	if err != nil {
		return err
	}
	if t.Noise != nil {
		if o.noise = "relays"; !math.IsInf(m.Epsilon0(), 1) {
			o.localEpsilon = m.Epsilon0()
		}
	}
	return m.CheckClaim()
}

// own returns the task of --task with another name if its batch size is batch, else nil.
func (o *options) own(name string, batch uint64) *task.Task {
	if o.given == nil || batch != o.given.Batch.Size {
		return nil
	}
	t := *o.given
	t.Name = name
	return &t
}
