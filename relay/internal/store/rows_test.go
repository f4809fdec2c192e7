package store

import (
	"testing"

	"github.com/doona-dp/doona/internal/stattest"
)

// TestRowsAreInRandomOrder: the rows of submissions, of which each has two slots, go to the database in a
// uniform order.
func TestRowsAreInRandomOrder(t *testing.T) {
	var subs []*Submission
	for i := range byte(stattest.Things / 2) {
		subs = append(subs, &Submission{Lanes: [][][]byte{{{2 * i}}, {{2*i + 1}}}})
	}
	stattest.Uniform(t, stattest.Trials, func() (order []int) {
		for _, row := range rowsOf(subs) {
			order = append(order, int(row.Slot[0]))
		}
		return order
	})
}
