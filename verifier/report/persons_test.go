package report_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/doona-dp/doona/internal/ledger"
	"github.com/doona-dp/doona/verifier"
	"github.com/doona-dp/doona/verifier/report"
	"github.com/doona-dp/doona/wire/task"
)

// TestPersonsInWords: the report says what a daily visitor has spent and of how much, what the cases cost that the
// claim leaves out, and what share of a daily visitor's days is counted.
func TestPersonsInWords(t *testing.T) {
	spent, twice, share := 3.0999, 7.123, 4./28
	r := &verifier.Report{Name: "pages", Asked: &task.Task{Epochs: task.Epochs{Length: 86400, Count: 365,
		Cap: task.Cap{Reports: 56, Window: 365}, Pace: task.Cap{Reports: 4, Window: 28}}}, Counted: &share,
		Visits: 10_000, CountedVisits: 9_100}
	r.Ledger.Published = &ledger.Cost{Epochs: 40, Reports: 8, Epsilon: &spent, Delta: 1e-5,
		Budget: &ledger.Budget{Epsilon: 10, Delta: 1e-5}}
	r.Ledger.Persons = &ledger.PersonCosts{Exact: true, Devices: ledger.PersonCost{Epsilon: &twice, Delta: 1e-5},
		Wiped: ledger.PersonCost{Delta: 1}, Batch: ledger.PersonCost{Epsilon: &spent, Delta: 2.5e-7}}
	for _, words := range []string{
		"91 %: of visits are covered: 9,100 of 10,000, by the task that counts them.",
		"4 of 28: days of a visitor who comes in each are counted, by the pace: 14.3 %. Of rarer visitors it is more. " +
			"The total covers at most 56 reports of a browser in any 365 days.",
		"3.1 of 10: of the budget ε: what a visitor who came daily has spent.",
		"ε = 7.13: δ = 1e-5, if two devices, browsers or accounts of a person answered alike in every epoch, from the " +
			"exact law.",
		"no ε: if a browser’s storage was wiped once, so that it reported twice in one epoch and its cap began anew.",
		"ε = 3.1: δ = 2.5e-7, of one epoch in which two equal reports of a person were in one batch.",
	} {
		var out strings.Builder
		require.NoError(t, report.Print(&out, r))
		require.Contains(t, plain(out.String()), words)
		var page strings.Builder
		require.NoError(t, report.WriteHTML(&page, r))
		_, text, _ := strings.Cut(words, ": ")
		require.Contains(t, plain(unmarked(page.String())), text)
	}
	r.Asked.Epochs.Pace, r.Asked.Epochs.Length, r.Ledger.Persons.Exact = task.Cap{}, 7*86400, false
	var out strings.Builder
	require.NoError(t, report.Print(&out, r))
	for _, words := range []string{"56 of 365: weeks of a visitor", "by the cap", "came weekly", "by group privacy"} {
		require.Contains(t, plain(out.String()), words)
	}
}
