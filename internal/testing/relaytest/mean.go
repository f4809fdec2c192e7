package relaytest

import (
	"github.com/doona-dp/doona/planner"
	"github.com/doona-dp/doona/wire/task"
)

// Mean changes a draft to the mean of values in [0, 10] in batches of the given size, and then applies change.
func Mean(batch uint64, change ...func(*task.Task)) func(draft *task.Task) {
	return func(draft *task.Task) {
		calibrated, err := planner.Draft(planner.Query{Name: "mean", Query: task.Mean, Hi: 10, Batch: batch,
			Honest: 0.9, Epsilon: 2, Delta: 1e-4})
		if err != nil {
			panic(err) // constants that Calibrate accepts
		}
		calibrated.Epochs = draft.Epochs
		*draft = *calibrated
		for _, f := range change {
			f(draft)
		}
	}
}
