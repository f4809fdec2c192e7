package main

import (
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/doona-dp/doona/internal/display"
	"github.com/doona-dp/doona/planner"
	"github.com/doona-dp/doona/wire/task"
)

const originUsage = "origin whose pages may report, as browsers send it: https://shop.example, " +
	"https://*.shop.example for all subdomains, app://ID or null; may be repeated"

// sortedOrigins returns the origins sorted and without duplicates, as a task needs them.
func sortedOrigins(given []string) []string {
	out := slices.Clone(given)
	slices.Sort(out)
	return slices.Compact(out)
}

// warnOfPages warns that pages of any site can report to a signed task without origins.
func warnOfPages(cmd *cobra.Command, t *task.Task) {
	if len(t.Clients.Origins) == 0 && len(t.Relays) > 0 {
		fmt.Fprintln(cmd.ErrOrStderr(), "warning: no --origin: any web page can report for its visitors, use up the quota of "+
			"their networks,\nand ask which networks have reported. List the origins of the pages that report.")
	}
}

// clientsSummary says how the first relay limits clients, and at what cost.
type clientsSummary struct {
	Kind    task.ClientKind    `json:"kind"`
	Origins []string           `json:"origins"`         // Origins whose pages may report; empty for any origin.
	Quota   *planner.QuotaCost `json:"quota,omitempty"` // Cost of the quota of networks; nil if clients need tokens.
}

func (s *clientsSummary) print(w io.Writer, t *task.Task) {
	if s.Quota == nil {
		fmt.Fprintf(w, "One report per token of %s, which must be independent of owner and verifier: an issuer "+
			"of\ntokens can surround one client with its own clients.\n", t.Clients.Issuer.URL)
	} else {
		printQuota(w, *s.Quota)
	}
	if len(s.Origins) == 0 {
		fmt.Fprintln(w, "Pages of any origin may report.")
	} else {
		fmt.Fprintf(w, "Programs may report, and pages of these origins: %s.\n", strings.Join(s.Origins, ", "))
	}
}

// printQuota explains a quota: what share of visitors it excludes, and how far false clients can move the answer.
func printQuota(w io.Writer, c planner.QuotaCost) {
	reports := fmt.Sprintf("a quota of %d", c.Least)
	if c.Most > c.Least {
		reports = fmt.Sprintf("a quota of %d to %d, drawn for each epoch", c.Least, c.Most)
	}
	fmt.Fprintf(w, "Clients are networks (IPv4 /24, IPv6 /48), each with %s: no protection against someone\nwith many "+
		"of them (Sybils). Of visitors who share a network", reports)
	for i, s := range c.Shared {
		fmt.Fprintf(w, "%s %.3g %% of %d", map[bool]string{true: ",", false: ""}[i > 0], 100*s.ShutOut, s.Visitors)
	}
	fmt.Fprintf(w, " are shut out.\nThe answer leans to visitors with a network of their own.\nOne network of false "+
		"clients moves an entry of a full batch's answer by up to %s, twenty by up to %s.\n",
		display.Number(c.OneNetwork), display.Number(c.TwentyNetworks))
}
