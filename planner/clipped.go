package planner

import (
	"math"

	"github.com/doona-dp/doona/wire/task"
)

// CountClipped returns how many of a client's numbers a task clips to its range, and how many there are. If the task
// bounds the length of a vector, it returns 1 of 1 if the vector is shortened, else 0 of 1. It never counts yes-or-no
// values.
func CountClipped(t *task.Task, row []float64) (clipped, of int) {
	info, lo, hi := t.Query.Info(), t.Input.Lo.Float64(), t.Input.Hi.Float64()
	if info.Ball() {
		norm := 0.0
		for _, x := range row {
			norm = math.Hypot(norm, x)
		}
		if norm > 1+1e-9 { // Rounding may make a vector of length 1 slightly longer.
			return 1, 1
		}
		return 0, 1
	}
	if !info.Ranged || t.Input.Labels {
		return 0, len(row)
	}
	for _, x := range row {
		if x < lo || x > hi {
			clipped++
		}
	}
	return clipped, len(row)
}
