package main

import (
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/doona-dp/doona/accountant"
	"github.com/doona-dp/doona/internal/cli"
	"github.com/doona-dp/doona/internal/decimal"
	"github.com/doona-dp/doona/wire/task"
)

// groupGuarantee is the guarantee of a person with several reports in an epoch.
type groupGuarantee struct {
	Reports uint64  `json:"reports"`
	Epsilon float64 `json:"epsilon"`
	Delta   float64 `json:"delta"`
}

// newGroup returns the guarantee of a person with several reports.
func newGroup(eps, delta float64, reports uint64) (groupGuarantee, error) {
	groupEps, groupDelta, err := accountant.GroupPrivacy(eps, delta, reports)
	return groupGuarantee{reports, groupEps, groupDelta}, err
}

// text formats the guarantee with three digits, rounded up. It first subtracts a relative 1e-12, so that floating-point
// error alone does not raise the last digit.
func (g groupGuarantee) text() string {
	if g.Delta >= 1 {
		return "no promise"
	}
	const near = 1 - 1e-12
	return fmt.Sprintf("(%s, %s)-DP", decimal.Up(g.Epsilon*near, 3), decimal.Up(g.Delta*near, 3))
}

// groupSummary is the guarantee of a person with several reports in an epoch, for an owner's documents.
type groupSummary struct {
	Devices groupGuarantee  `json:"two_devices"`
	Quota   *groupGuarantee `json:"quota,omitempty"` // For a network's most reports; nil if that is one.
}

// newGroupSummary derives the guarantees from a task's claim and its quota q. For q > 1 a network may have up to 2q−1
// reports in an epoch.
func newGroupSummary(t *task.Task) (s groupSummary, err error) {
	eps, delta := t.Claim.Epsilon.Value(), t.Claim.Delta.Value()
	if s.Devices, err = newGroup(eps, delta, 2); err != nil {
		return s, err
	}
	if most := 2*t.Clients.Quota - 1; t.Clients.Kind == task.ClientAddress && t.Clients.Quota > 1 {
		quota, err := newGroup(eps, delta, most)
		s.Quota = &quota
		return s, err
	}
	return s, nil
}

func (s groupSummary) print(w io.Writer) {
	fmt.Fprintf(w, "A person who reports from 2 devices in an epoch: %s (docs/proofs/group.md).\n", s.Devices.text())
	if s.Quota != nil {
		fmt.Fprintf(w, "A person who sends all %d reports that a network may have in an epoch: %s.\n", s.Quota.Reports,
			s.Quota.text())
	}
}

// deviceFlag is the number of devices from which a person may report, in `doona plan`.
type deviceFlag uint64

func (f *deviceFlag) add(cmd *cobra.Command) {
	cmd.Flags().Uint64Var((*uint64)(f), "devices", 2, "from how many devices a person may report in an epoch, 1 to 1000")
}

func (f deviceFlag) check() error {
	if f < 1 || f > 1000 {
		return cli.Usagef("invalid devices %d: want 1 to 1000", f)
	}
	return nil
}

// setDevices sets the guarantee of a person with f devices in every row whose task is possible.
func (f deviceFlag) setDevices(rows []planRow) error {
	for i := range rows {
		if rows[i].Why != "" {
			continue
		}
		g, err := newGroup(*rows[i].Epsilon, *rows[i].Delta, uint64(f))
		if err != nil {
			return err
		}
		rows[i].Devices = &g
	}
	return nil
}

// printDevices prints a line for each different guarantee of a person with several devices.
func printDevices(w io.Writer, rows []planRow) error {
	printed := map[groupGuarantee]bool{}
	for _, r := range rows {
		if r.Devices == nil || printed[*r.Devices] {
			continue
		}
		printed[*r.Devices] = true
		if _, err := fmt.Fprintf(w, "(%s, %s)-DP of a report: a person who reports from %d devices in an epoch has %s.\n",
			decimal.Up(*r.Epsilon, 3), decimal.Up(*r.Delta, 3), r.Devices.Reports, r.Devices.text()); err != nil {
			return err
		}
	}
	return nil
}
