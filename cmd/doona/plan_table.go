package main

import (
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/doona-dp/doona/internal/cli"
	"github.com/doona-dp/doona/planner"
	"github.com/doona-dp/doona/protocols/registry"
	"github.com/doona-dp/doona/wire/handover"
	"github.com/doona-dp/doona/wire/task"
)

// costRow is one line of `doona plan --table`.
type costRow struct {
	Query           task.Query    `json:"query"`
	Protocol        string        `json:"protocol"`
	Padding         task.Padding  `json:"padding"`
	Users           uint64        `json:"users"`
	Slots           uint64        `json:"slots"` // Slots per lane; an upper bound under padding none.
	Lanes           uint64        `json:"lanes"`
	MessagesPerUser float64       `json:"messages_per_user"` // Expected, without covers.
	BytesPerReport  float64       `json:"bytes_per_report"`  // For two relays; the mean under padding none.
	Batch           handover.Need `json:"batch"`             // Largest memory and disk of a party; time of all.
	Why             string        `json:"why,omitempty"`     // Why the task is impossible.
}

// costQueries returns the queries of the table: the examples of every protocol, for a thousand to ten million users.
// 90 % of the users are honest.
func costQueries() (out []planner.Query) {
	for _, p := range registry.All() {
		for _, c := range p.Row().Costs {
			for c.Users = 1e3; c.Users <= 1e7; c.Users *= 10 {
				out = append(out, planner.Example(p.ProtocolName(), c, 0.9))
			}
		}
	}
	return out
}

func (f *planFlags) printTable(cmd *cobra.Command) error {
	var rows []costRow
	queries := costQueries()
	bar := cli.Progress("calibrating", len(queries))
	for _, q := range queries {
		rows = append(rows, cost(q))
		bar.Add(1)
	}
	return cli.Print(cmd, map[string]any{"rows": rows}, func(w io.Writer) error { return printCosts(w, rows) })
}

// cost calibrates one task and returns its row. If the task is impossible, the row's Why says so.
func cost(q planner.Query) costRow {
	row := costRow{Query: q.Query, Protocol: q.Protocol, Padding: q.Padding, Users: q.Batch}
	t, err := planner.Draft(q)
	if err == nil {
		err = row.fill(t)
	}
	if err != nil {
		row.Why = err.Error()
	}
	return row
}

func (r *costRow) fill(t *task.Task) error {
	m, err := registry.Open(t)
	if err != nil {
		return err
	}
	r.Padding, r.Slots, r.Lanes = t.Slots.Padding, t.Slots.PerLane, t.Slots.Lanes
	if r.MessagesPerUser, r.BytesPerReport, err = planner.Cost(t, m, planner.DefaultRelays); err != nil {
		return err
	}
	dummies, err := planner.Dummies(t)
	if err != nil {
		return err
	}
	needs, err := planner.Needs(t, planner.DefaultRelays, r.MessagesPerUser, dummies)
	r.Batch = handover.Worst(needs)
	return err
}

func printCosts(w io.Writer, rows []costRow) error {
	fmt.Fprintln(w, "| query | protocol | padding | n | slots × lanes | messages per user | bytes per report "+
		"| a batch: memory | disk | core |\n|---|---|---|---|---|---|---|---|---|---|")
	for _, r := range rows {
		if r.Why != "" {
			fmt.Fprintf(w, "| %s | %s | %s | %.0e | %s | | | | | |\n", r.Query, r.Protocol, r.Padding, float64(r.Users),
				r.Why)
			continue
		}
		memory, disk, core := r.Batch.Words()
		fmt.Fprintf(w, "| %s | %s | %s | %.0e | %d × %d | %.4g | %.0f | %s | %s | %s |\n", r.Query, r.Protocol,
			r.Padding, float64(r.Users), r.Slots, r.Lanes, r.MessagesPerUser, r.BytesPerReport, memory, disk, core)
	}
	_, err := fmt.Fprintln(w)
	return err
}
