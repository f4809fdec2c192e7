package report

import (
	"encoding/csv"
	"io"
	"math"
	"slices"
	"strconv"
	"time"

	"github.com/doona-dp/doona/internal/decimal"
	"github.com/doona-dp/doona/internal/display"
	"github.com/doona-dp/doona/verifier"
)

// csvHeader has the column names of [WriteCSV].
var csvHeader = []string{"epoch", "start", "entry", "label", "from", "to", "clients", "batches", "estimate", "standard_error", "lo",
	"hi", "standard_error_worst", "band_lo", "band_hi", "reports", "missing", "usable", "unusable_because", "override",
	"processed", "processed_lo", "processed_hi", "processed_band_lo", "processed_band_hi", "processing", "epsilon",
	"epsilon_no_honest", "local_epsilon", "epsilon_honest", "honest_batches"}

// WriteCSV writes a line per entry of the answer: first for all epochs together (epoch "all"), then for each epoch. In
// the columns, start is the start of the epoch in UTC, and from and to are the edges of a histogram's bin. lo and hi
// are the ends of the interval. band_lo and band_hi are the ends of the band, which holds for all entries at once. They
// are empty if the interval or band would contain every possible answer. An unusable answer has one line without entry
// and numbers, unless an override shows it.
//
// The last columns begin with the post-processed answer: its estimate, interval, band and method. The claim follows: ε,
// ε if no other client is honest, ε if all relays collude (empty if infinite), ε with n_min honest clients, and the
// number of batches that may have n_min honest clients. For a task for strings, a line per text found follows the first
// line. Its label is the quoted text.
func WriteCSV(w io.Writer, r *verifier.Report) error {
	out := csv.NewWriter(w)
	out.Write(csvHeader) // Flush reports the first error
	writeAnswer(out, r, []string{"all", ""}, &verifier.EpochReport{Users: r.Users, Batches: r.Batches,
		HonestBatches: r.HonestBatches, Answer: r.Answer})
	writeTexts(out, r, privacy(r, r.HonestBatches))
	for _, e := range r.Ledger.Epochs {
		writeAnswer(out, r, epochCells(&e), &e)
	}
	out.Flush()
	return out.Error()
}

// epochCells returns the first cells of an epoch's lines: its number and its start.
func epochCells(e *verifier.EpochReport) []string {
	return []string{strconv.FormatUint(e.Epoch, 10), e.Start.Format(time.RFC3339)}
}

// privacy returns the last cells of a line: what the task r is of claims.
func privacy(r *verifier.Report, honestBatches uint64) []string {
	g := r.Guarantee
	return []string{written(g.Epsilon)[0], bound(g.EpsilonNoHonest), bound(g.LocalEpsilon),
		written(g.EpsilonHonest)[0], strconv.FormatUint(honestBatches, 10)}
}

// writeAnswer writes a line per entry of the answer of e, which begins with the cells first. r is a report of the task.
func writeAnswer(out *csv.Writer, r *verifier.Report, first []string, e *verifier.EpochReport) {
	a := &e.Answer
	clients := []string{strconv.FormatUint(e.Users, 10), strconv.FormatUint(e.Batches, 10)}
	last := []string{strconv.FormatUint(a.Reports, 10), strconv.FormatUint(a.Missing, 10),
		strconv.FormatBool(a.Usable), a.UnusableBecause, a.Override}
	if a.Estimate == nil {
		out.Write(slices.Concat(first, make([]string, 4), clients, make([]string, 7), last, make([]string, 6),
			privacy(r, e.HonestBatches)))
	}
	for j := range a.Estimate {
		label, bin := "", []string{"", ""}
		if j < len(r.Labels) {
			label = r.Labels[j]
		}
		if j < len(r.From) {
			bin = written(r.From[j], r.To[j])
		}
		out.Write(slices.Concat(first, []string{strconv.Itoa(j), label}, bin, clients, numbersOf(a, j), last,
			processedOf(a.Processed, j), privacy(r, e.HonestBatches)))
	}
}

// writeTexts writes a line per text found, over all epochs together. It quotes each text as Go does, so that no
// spreadsheet takes the text for a formula. All other cells have words and numbers of this program. There, a minus sign
// only begins a number or a bin.
func writeTexts(out *csv.Writer, r *verifier.Report, privacy []string) {
	if r.Texts == nil {
		return
	}
	for j, c := range r.Texts.List {
		numbers := make([]string, 3)
		if c.Interval != nil {
			numbers = written(*c.Clients, c.Interval[0], c.Interval[1])
		}
		out.Write(slices.Concat([]string{"all", "", strconv.Itoa(j), display.Cell(c.Text), "", "",
			strconv.FormatUint(r.Users, 10), strconv.FormatUint(r.Batches, 10), numbers[0], "", numbers[1], numbers[2],
			"", "", "", strconv.FormatUint(r.Reports, 10), strconv.FormatUint(r.Missing, 10), strconv.FormatBool(r.Usable),
			r.UnusableBecause, r.Override}, make([]string, 6), privacy))
	}
}

// numbersOf returns the estimate of an entry and its error bars.
func numbersOf(a *verifier.Answer, j int) []string {
	return slices.Concat(written(a.Estimate[j], a.StandardError[j]), ends(a.Interval[j]),
		written(a.StandardErrorWorst[j]), ends(a.Band[j]))
}

// processedOf returns the post-processed estimate of an entry, with its interval, band and method.
func processedOf(p *verifier.Processed, j int) []string {
	return slices.Concat(written(p.Estimate[j]), ends(p.Interval[j]), ends(p.Band[j]), []string{p.Method})
}

// ends returns the ends of an interval; "" if it is none.
func ends(i [2]float64) []string {
	if math.IsInf(i[0], 0) {
		return make([]string, 2)
	}
	return written(i[0], i[1])
}

// bound formats a bound on ε; "" if it is infinite.
func bound(eps *float64) string {
	if eps == nil {
		return ""
	}
	return written(*eps)[0]
}

func written(numbers ...float64) (out []string) {
	for _, x := range numbers {
		out = append(out, decimal.Format(x, -1))
	}
	return out
}
