//go:build doona_set || !wasip1

package client

import (
	"math"

	"github.com/doona-dp/doona/accountant/compose"
)

// Copies is a table of a set, with the number of copies of its law that cover all its reports in the set's window.
type Copies struct {
	Table *Client
	Count uint64
}

// SetDelta returns the δ at eps of all copies of all tables' laws together (docs/proofs/sets.md). It is 1 if a table's
// law is unknown. delta is the δ that the set claims: the result is exact to a thousandth of it.
func SetDelta(eps, delta float64, tables []Copies) float64 {
	var seen []compose.Observation
	for _, t := range tables {
		if t.Count == 0 {
			continue
		}
		law, err := t.Table.law()
		if err != nil {
			return 1
		}
		seen = append(seen, law.Observation(t.Count))
	}
	if len(seen) == 0 {
		return 0
	}
	if !(eps > 0 && delta > 0) {
		return math.NaN()
	}
	return compose.Delta(seen, eps, delta)
}
