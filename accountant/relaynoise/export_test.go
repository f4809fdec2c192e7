package relaynoise

import "github.com/doona-dp/doona/wire/task"

// Long returns the curve of a noise of one table as if the table were too long to enumerate two cells.
func Long(n *task.Noise) (*Curve, error) {
	laws, _ := tables(n)
	cell, err := oneCell(laws[0], 1)
	return &Curve{cell: cell, cells: float64(n.Cells)}, err
}

// ExceededByOne exports the quick lower bound of the searches.
func (c Target) ExceededByOne(table []uint64) bool { return c.exceededByOne(table) }
