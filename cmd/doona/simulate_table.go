package main

import (
	"errors"
	"fmt"
	"io"
	"math"
	"slices"

	"github.com/spf13/cobra"

	"github.com/doona-dp/doona/internal/cli"
	"github.com/doona-dp/doona/planner"
	"github.com/doona-dp/doona/protocols/correlated"
	"github.com/doona-dp/doona/protocols/registry"
	"github.com/doona-dp/doona/wire/task"
)

// tableRow is one row of `doona simulate --table`. If an answer has several entries, each deviation is that of the
// entry where it is largest.
type tableRow struct {
	Protocol        string     `json:"protocol"`
	Query           task.Query `json:"query"`
	Users           uint64     `json:"users"`
	Honest          float64    `json:"honest"`
	Epsilon         float64    `json:"epsilon"`
	Delta           float64    `json:"delta"`
	Repeats         int        `json:"repeats"`
	Slots           uint64     `json:"slots"`
	MessagesPerUser float64    `json:"messages_per_user"`
	PredictedRMSE   float64    `json:"predicted_rmse"`
	RMSE            float64    `json:"rmse"`
	BiasDeviations  float64    `json:"bias_deviations"` // Largest |bias| in standard errors.
	VarianceRatio   float64    `json:"variance_ratio"`  // Empirical / predicted, for VarianceOff's entry.
	// Largest |empirical - predicted| variance in standard errors.
	VarianceOff float64 `json:"variance_deviations"`
	// Shares of the 95 % and 99.9 % intervals that contained the truth, for the entry with the least share. The last
	// two fields are the same for clients who all have the worst-case value.
	Coverage          float64 `json:"coverage"`
	CoverageWide      float64 `json:"coverage_99_9"`
	CoverageWorst     float64 `json:"coverage_worst"`
	CoverageWorstWide float64 `json:"coverage_worst_99_9"`
	Passed            bool    `json:"passed"`
}

// A row of the table passes if its bias is at most 5 standard errors, its variance is within the two-sided 10⁻⁶
// interval of a normal variable, and each coverage is at most 5 standard errors below its minimum: leastCoverage for
// 95 % intervals, leastWide for 99.9 % intervals.
const (
	biasLimit     = 5
	varianceLimit = 4.892
	leastCoverage = 0.945
	leastWide     = 0.998
)

// tableQueries returns the queries of the table: the small examples of every protocol, with 100 %, 90 % and 80 %
// honest clients.
func tableQueries() (out []planner.Query) {
	for _, p := range registry.All() {
		for _, c := range p.Row().Trials {
			for _, honest := range []float64{1, 0.9, 0.8} {
				out = append(out, planner.Example(p.ProtocolName(), c, honest))
			}
		}
	}
	return out
}

func (f *simulateFlags) printTable(cmd *cobra.Command) error {
	var rows []tableRow
	queries := tableQueries()
	bar := cli.Progress("simulating", len(queries))
	for _, q := range queries {
		bar.Add(1)
		row, err := f.tableRow(q)
		if err != nil {
			return fmt.Errorf("couldn't simulate %s: %w", q.Protocol, err)
		}
		rows = append(rows, row)
	}
	texts, err := f.textRows()
	if err != nil {
		return fmt.Errorf("couldn't simulate texts: %w", err)
	}
	bands, err := f.bandRows()
	if err != nil {
		return fmt.Errorf("couldn't simulate bands: %w", err)
	}
	failed := 0
	for _, r := range bands {
		if !r.Passed {
			failed++
		}
	}
	for _, r := range rows {
		if !r.Passed {
			failed++
		}
	}
	for _, r := range texts {
		if !r.Passed {
			failed++
		}
	}
	result := struct {
		Rows   []tableRow `json:"rows"`
		Texts  []textRow  `json:"texts"`
		Bands  []bandRow  `json:"bands"`
		Passed bool       `json:"passed"`
	}{rows, texts, bands, failed == 0}
	if err := cli.Print(cmd, result, func(w io.Writer) error {
		return errors.Join(markdownTable(w, rows), markdownTexts(w, texts), markdownBands(w, bands))
	}); err != nil {
		return err
	}
	if failed > 0 {
		return fmt.Errorf("%d of %d rows differ from their prediction", failed, len(rows)+len(texts)+len(bands))
	}
	return nil
}

// textRow is one row about texts: what a case claims, and whether it held often enough.
type textRow struct {
	*planner.TextCoverage
	Coverage     float64 `json:"coverage"`      // Of batches if the case asks for texts, otherwise of found texts.
	CoverageRest float64 `json:"coverage_rest"` // Of the clients of texts that are not found.
	Passed       bool    `json:"passed"`
}

// repeatsEach is the number of repeats for one batch of texts or one run of a band, which take longer than others.
const repeatsEach = 10

// textRows returns the coverage of the cases of texts. A row passes if its coverage is at most 5 standard errors below
// leastCoverage; of found texts, as if all of a batch missed together.
func (f *simulateFlags) textRows() (rows []textRow, err error) {
	cases, batches := planner.TextCases(), max(1, f.options.Repeats/repeatsEach)
	bar := cli.Progress("simulating texts", len(cases)*batches)
	for _, c := range cases {
		found, err := c.Run(batches, func() { bar.Add(1) })
		if err != nil {
			return nil, err
		}
		rows = append(rows, textRowOf(found))
	}
	return rows, nil
}

func textRowOf(c *planner.TextCoverage) textRow {
	r := textRow{TextCoverage: c, Coverage: c.Share(), CoverageRest: float64(c.Rest) / float64(c.Batches)}
	r.Passed = covers(r.Coverage, leastCoverage, c.Batches) && covers(r.CoverageRest, leastCoverage, c.Batches)
	return r
}

func markdownTexts(w io.Writer, rows []textRow) error {
	fmt.Fprintf(w, "\n| clients of texts | n | noise by | batches | claim | found texts | without interval | "+
		"coverage, %% | of other clients, %% | within |\n")
	fmt.Fprintln(w, "|---|---|---|---|---|---|---|---|---|---|")
	for _, r := range rows {
		noise, claim, within := "relays", "each found", "yes"
		if r.ByClients {
			noise = "clients"
		}
		if r.Asking {
			claim = "all asked"
		}
		if !r.Passed {
			within = "**no**"
		}
		if _, err := fmt.Fprintf(w, "| %s | %d | %s | %d | %s | %d | %d | %.2f | %.2f | %s |\n", r.Name, r.Users, noise,
			r.Batches, claim, r.Found, r.None, 100*r.Coverage, 100*r.CoverageRest, within); err != nil {
			return err
		}
	}
	return nil
}

func (f *simulateFlags) tableRow(q planner.Query) (tableRow, error) {
	t, err := planner.Draft(q)
	if err != nil {
		return tableRow{}, err
	}
	m, err := registry.Open(t)
	if err != nil {
		return tableRow{}, err
	}
	trial := planner.Trial{Repeats: f.options.Repeats, Fast: f.options.Fast, Confidences: confidences}
	out, err := trial.Run(t, m, tableValues(q))
	if err != nil {
		return tableRow{}, err
	}
	worst, err := trial.Run(t, m, slices.Repeat([][]float64{m.Worst().Value}, int(q.Batch)))
	if err != nil {
		return tableRow{}, err
	}
	r := tableRow{
		Protocol: q.Protocol, Query: q.Query, Users: q.Batch, Honest: q.Honest, Epsilon: q.Epsilon, Delta: q.Delta,
		Repeats: out.Repeats, Slots: t.Slots.PerLane * t.Slots.Lanes, MessagesPerUser: out.MessagesPerUser,
		PredictedRMSE: out.PredictedRMSE(), RMSE: out.RMSE, VarianceOff: -1,
		Coverage: slices.Min(out.Coverage[0].Entries), CoverageWide: slices.Min(out.Coverage[1].Entries),
		CoverageWorst: slices.Min(worst.Coverage[0].Entries), CoverageWorstWide: slices.Min(worst.Coverage[1].Entries),
	}
	for j, predicted := range out.PredictedVariance {
		bias := math.Abs(out.Estimate[j]-out.Truth[j]) / math.Sqrt(predicted/float64(out.Repeats))
		r.BiasDeviations = max(r.BiasDeviations, bias)
		if off := math.Abs(out.Variance[j]-predicted) / out.VarianceError[j]; off > r.VarianceOff {
			r.VarianceOff, r.VarianceRatio = off, out.Variance[j]/predicted
		}
	}
	r.Passed = r.BiasDeviations <= biasLimit && r.VarianceOff <= varianceLimit &&
		covers(min(r.Coverage, r.CoverageWorst), leastCoverage, out.Repeats) &&
		covers(min(r.CoverageWide, r.CoverageWorstWide), leastWide, out.Repeats)
	return r, nil
}

// covers reports whether a coverage found in this number of runs is at most 5 standard errors below least.
func covers(found, least float64, runs int) bool {
	return found >= least-5*math.Sqrt(least*(1-least)/float64(runs))
}

// tableValues returns values that differ from client to client.
func tableValues(q planner.Query) [][]float64 {
	width := int(max(q.Dim, 1))
	rows := make([][]float64, q.Batch)
	for i := range rows {
		if q.Query == task.Strings {
			rows[i] = []float64{float64('a' + i%11)}
			continue
		}
		rows[i] = make([]float64, width)
		for l := range rows[i] {
			u := float64((i*(l+3)+l)%11) / 10
			switch {
			case q.Query == task.Count:
				u = float64(i % 3 % 2)
			case q.Query == task.Histogram:
				u = float64(uint64(i*i) % q.Bins)
			case q.Protocol == correlated.Name && width > 1 && l != i%width:
				u = 0 // correlated takes vectors with one nonzero coordinate
			case q.Query == task.VectorMean:
				u = (u - 0.3) / math.Sqrt(float64(width))
			default:
				u *= q.Hi
			}
			rows[i][l] = u
		}
	}
	return rows
}

func markdownTable(w io.Writer, rows []tableRow) error {
	fmt.Fprintf(w, "| protocol | query | n | h | ε | runs | slots | messages per user | RMSE predicted | RMSE "+
		"found | bias, standard errors | variance found / predicted | its standard errors | coverage, %% | of 99.9 "+
		"%% intervals | worst values | of 99.9 %% intervals | "+
		"within |\n")
	fmt.Fprintln(w, "|---|---|---|---|---|---|---|---|---|---|---|---|---|---|---|---|---|---|")
	for _, r := range rows {
		within := "yes"
		if !r.Passed {
			within = "**no**"
		}
		if _, err := fmt.Fprintf(w,
			"| %s | %s | %d | %g | %g | %d | %d | %.3g | %.4g | %.4g | %.2f | %.4f | %.2f | %.2f | %.2f | %.2f | "+
				"%.2f | %s |\n", r.Protocol,
			r.Query, r.Users, r.Honest,
			r.Epsilon, r.Repeats, r.Slots, r.MessagesPerUser, r.PredictedRMSE, r.RMSE, r.BiasDeviations,
			r.VarianceRatio, r.VarianceOff, 100*r.Coverage, 100*r.CoverageWide, 100*r.CoverageWorst,
			100*r.CoverageWorstWide, within); err != nil {
			return err
		}
	}
	return nil
}
