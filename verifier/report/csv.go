package report

import (
	"encoding/csv"
	"io"
	"slices"
	"strconv"
	"time"

	"github.com/doona-dp/doona/internal/decimal"
	"github.com/doona-dp/doona/internal/display"
	"github.com/doona-dp/doona/verifier"
)

// csvHeader names the columns of [WriteCSV].
var csvHeader = []string{"epoch", "start", "entry", "label", "clients", "batches", "estimate", "standard_error", "lo",
	"hi", "standard_error_worst", "band_lo", "band_hi", "reports", "missing", "usable", "unusable_because", "override",
	"processed", "processed_lo", "processed_hi", "processed_band_lo", "processed_band_hi", "processing", "epsilon",
	"alone_epsilon", "local_epsilon", "crowd_epsilon", "crowd_batches"}

// WriteCSV writes a line per entry of the answer: first of all epochs together, whose epoch is "all",
// then of each. Start is when the epoch began, in UTC; lo and hi are the interval's ends,
// band_lo and band_hi those of the band that holds all entries at once. Of an answer that is not usable there
// is one line, without an entry or numbers, unless it was overridden. The last columns are the post-processed
// answer, with an interval and a band of its own, and by which method, and what the task claims: its ε, what is left
// if no other client is honest and if all relays collude, empty where nothing is, the ε with n_min honest clients, and
// of how many batches that is known to hold. Of a task for strings a line per text found follows the first one, with
// the text, in quotes, as its label.
func WriteCSV(w io.Writer, r *verifier.Report) error {
	out := csv.NewWriter(w)
	out.Write(csvHeader) // Flush reports the first error
	labels := verifier.Labels(r.Asked)
	privacy := func(crowded uint64) []string {
		g := r.Guarantee
		return []string{written(g.Epsilon)[0], bound(g.AloneEpsilon), bound(g.LocalEpsilon), written(g.CrowdEpsilon)[0],
			strconv.FormatUint(crowded, 10)}
	}
	write := func(epoch, start string, users, batches, crowded uint64, a verifier.Answer) {
		first := []string{epoch, start}
		clients := []string{strconv.FormatUint(users, 10), strconv.FormatUint(batches, 10)}
		last := []string{strconv.FormatUint(a.Reports, 10), strconv.FormatUint(a.Missing, 10),
			strconv.FormatBool(a.Usable), a.UnusableBecause, a.Override}
		if a.Estimate == nil {
			out.Write(slices.Concat(first, []string{"", ""}, clients, make([]string, 7), last, make([]string, 6),
				privacy(crowded)))
		}
		for j := range a.Estimate {
			label := ""
			if j < len(labels) {
				label = labels[j]
			}
			out.Write(slices.Concat(first, []string{strconv.Itoa(j), label}, clients, numbersOf(&a, j), last,
				processedOf(a.Processed, j), privacy(crowded)))
		}
	}
	write("all", "", r.Users, r.Batches, r.Crowded, r.Answer)
	writeTexts(out, r, privacy(r.Crowded))
	for _, e := range r.Ledger.Epochs {
		write(strconv.FormatUint(e.Epoch, 10), e.Start.Format(time.RFC3339), e.Users, e.Batches,
			e.Crowded, e.Answer)
	}
	out.Flush()
	return out.Error()
}

// writeTexts writes a line per text that was found, of all epochs together. The text is quoted as in Go, and no
// spreadsheet takes it for a formula. All other cells are the program's own words and numbers: what begins with a minus
// sign there is a number, or a bin.
func writeTexts(out *csv.Writer, r *verifier.Report, privacy []string) {
	if r.Texts == nil {
		return
	}
	for j, c := range r.Texts.List {
		numbers := written(c.Clients, c.Interval[0], c.Interval[1])
		out.Write(slices.Concat([]string{"all", "", strconv.Itoa(j), display.Cell(c.Text), strconv.FormatUint(r.Users, 10),
			strconv.FormatUint(r.Batches, 10), numbers[0], "", numbers[1], numbers[2], "", "", "",
			strconv.FormatUint(r.Reports, 10), strconv.FormatUint(r.Missing, 10), strconv.FormatBool(r.Usable),
			r.UnusableBecause, r.Override}, make([]string, 6), privacy))
	}
}

// numbersOf are the estimate of an entry and its error bars.
func numbersOf(a *verifier.Answer, j int) []string {
	return written(a.Estimate[j], a.StandardError[j], a.Interval[j][0], a.Interval[j][1], a.StandardErrorWorst[j],
		a.Band[j][0], a.Band[j][1])
}

// processedOf are the post-processed estimate of an entry and its intervals.
func processedOf(p *verifier.Processed, j int) []string {
	return append(written(p.Estimate[j], p.Interval[j][0], p.Interval[j][1], p.Band[j][0], p.Band[j][1]), p.Method)
}

// bound writes an ε, empty where nothing is left.
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
