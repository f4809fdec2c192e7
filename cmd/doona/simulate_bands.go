package main

import (
	"fmt"
	"io"

	"github.com/doona-dp/doona/internal/cli"
	"github.com/doona-dp/doona/planner"
)

// bandRow is one row about bands where few reports decide.
type bandRow struct {
	*planner.BandCoverage
	Coverage float64 `json:"coverage"` // Share of the runs in which the band contains all entries of all epochs.
	Width    float64 `json:"width"`    // Mean width, in standard deviations of the worst values.
	Passed   bool    `json:"passed"`
}

// bandRows returns the coverage of the cases of bands. A row passes if its coverage is at most 5 standard errors below
// leastCoverage.
func (f *simulateFlags) bandRows() (rows []bandRow, err error) {
	cases, runs := planner.BandCases(), max(1, f.options.Repeats/repeatsEach)
	bar := cli.Progress("simulating bands", len(cases)*runs)
	for _, c := range cases {
		found, err := c.Run(runs, func() { bar.Add(1) })
		if err != nil {
			return nil, err
		}
		rows = append(rows, bandRowOf(found))
	}
	return rows, nil
}

func bandRowOf(c *planner.BandCoverage) bandRow {
	r := bandRow{BandCoverage: c, Coverage: c.Share(), Width: c.Width()}
	r.Passed = covers(r.Coverage, leastCoverage, c.Runs) && c.Surprises == 0
	return r
}

func markdownBands(w io.Writer, rows []bandRow) error {
	fmt.Fprintln(w, "\n| protocol | query | n | d | ε | epochs | values | runs | coverage, % | width | within |")
	fmt.Fprintln(w, "|---|---|---|---|---|---|---|---|---|---|---|")
	for _, r := range rows {
		within := "yes"
		if !r.Passed {
			within = "**no**"
		}
		_, err := fmt.Fprintf(w, "| %s | %s | %d | %d | %g | %d | %s | %d | %.2f | %.2f | %s |\n", r.Protocol,
			r.Query, r.Users, max(r.Dim, 1), r.Epsilon, r.Epochs, r.Values, r.Runs, 100*r.Coverage, r.Width, within)
		if err != nil {
			return err
		}
	}
	return nil
}
