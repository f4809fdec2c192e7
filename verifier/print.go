package verifier

import (
	"cmp"
	"fmt"
	"io"
	"text/tabwriter"

	"github.com/doona-dp/doona/internal/decimal"
)

// ErrorBars says what the error bars are, in the words used wherever they are shown.
func (r *Report) ErrorBars() string {
	text := "The standard error and the interval are from the data; the worst case is the standard error of as " +
		"many clients who all have the worst value."
	if r.Missing > 0 {
		text += " The interval also holds the most that missing messages can have changed."
	}
	if len(r.Estimate) > 1 {
		text += fmt.Sprintf(" Each interval holds its entry with %.0f %%; the band, which is wider, holds all of "+
			"them at once.", 100*r.Confidence)
	}
	return text
}

// Print writes the report for people.
func (r *Report) Print(w io.Writer) error {
	fmt.Fprintf(w, "%s: %s of %d clients in %d batches through %d relays, by %s\n", r.Name, r.Query, r.Users,
		r.Batches, r.Hops, r.Protocol)
	r.printLoss(w)
	if r.Estimate != nil {
		if err := r.printEstimate(w); err != nil {
			return err
		}
	}
	return r.printGuarantee(w)
}

// printLoss says how many reports were counted, and where others are missing.
func (r *Report) printLoss(w io.Writer) {
	if r.Missing > 0 {
		fmt.Fprintf(w, "%d reports counted, up to %d missing; messages lost: %s\n", r.Reports, r.Missing,
			cmp.Or(r.Lost(), "none, but covers came instead"))
	}
	if !r.Usable {
		fmt.Fprintf(w, "Unusable: %s.\n", r.UnusableBecause)
	}
	if r.Override != "" {
		fmt.Fprintf(w, "Override: %s.\n", r.Override)
	}
	fmt.Fprintln(w)
}

// printEstimate prints the table of estimates.
func (r *Report) printEstimate(w io.Writer) error {
	tab := tabwriter.NewWriter(w, 0, 4, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintf(tab, "\testimate\tstandard error\t%.0f %% interval\t\tworst case\t", 100*r.Confidence)
	if len(r.Estimate) > 1 {
		fmt.Fprintf(tab, "%.0f %% band\t\t", 100*r.Confidence)
	}
	fmt.Fprintln(tab)
	for j, estimate := range r.Estimate {
		name := string(r.Query)
		if len(r.Estimate) > 1 {
			name = fmt.Sprintf("%s %d", r.Query.Info().Entry, j)
		}
		fmt.Fprintf(tab, "%s\t%.6g\t%.3g\t%.6g\t%.6g\t%.3g\t", name, estimate, r.StandardError[j], r.Interval[j][0],
			r.Interval[j][1], r.StandardErrorWorst[j])
		if len(r.Estimate) > 1 {
			fmt.Fprintf(tab, "%.6g\t%.6g\t", r.Band[j][0], r.Band[j][1])
		}
		fmt.Fprintln(tab)
	}
	if err := tab.Flush(); err != nil {
		return err
	}
	_, err := fmt.Fprintf(w, "\n%s\n\n", r.ErrorBars())
	return err
}

// printGuarantee prints what clients were promised and have paid, and what did not add up.
func (r *Report) printGuarantee(w io.Writer) error {
	fmt.Fprintf(w, "Guarantee: epsilon %g, delta %s, n_min %d (rule %s). %s\n", r.Epsilon,
		decimal.Format(r.Delta, -1), r.NMin, r.Rule, r.Promise)
	if r.LocalEpsilon != nil {
		fmt.Fprintf(w, "If every relay colludes with the verifier, a local epsilon of %.3f remains.\n", *r.LocalEpsilon)
	} else {
		fmt.Fprintln(w, "If every relay colludes with the verifier, or one client is surrounded by clients of the "+
			"verifier's, nothing remains.")
	}
	epsilon := "without bound"
	if r.Ledger.Epsilon != nil {
		epsilon = decimal.Format(*r.Ledger.Epsilon, -1)
	}
	fmt.Fprintf(w, "Ledger: epsilon %s, delta %s for a client in every epoch so far (%d), by %s composition.\n",
		epsilon, decimal.Format(r.Ledger.Delta, -1), len(r.Ledger.Epochs), r.Ledger.Composition)
	if r.OverExposed > 0 {
		fmt.Fprintf(w, "The guarantee does not hold for %d clients: their batches came here too small.\n", r.OverExposed)
	}
	_, err := fmt.Fprintf(w, "Messages: %d sent, %d covers, %d verified, %d rejected, %d withheld.\n",
		r.MessagesSent, r.CoverMessages, r.Verified, r.Rejected, r.Withheld)
	for _, f := range r.Findings {
		_, err = fmt.Fprintf(w, "Finding: %s, %d, first in %s\n", f.Name, f.Count, f.Example)
	}
	return err
}
