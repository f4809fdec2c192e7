package protocols

import (
	"github.com/doona-dp/doona/internal/decimal"
	"github.com/doona-dp/doona/internal/invalid"
	"github.com/doona-dp/doona/wire/task"
)

// Number maps the value of a count, sum or mean query into [0, 1] as unit does. For a count the value must be 0 or 1.
func Number(t *task.Task, value []float64) (float64, error) {
	x, err := unit(t.Input, value)
	if err == nil && t.Query == task.Count && x != 0 && x != 1 {
		return 0, invalid.Field("value", decimal.Format(x, -1), "0 or 1")
	}
	return x, err
}

// CheckNumber returns an error unless the task's query is a count, sum or mean.
func CheckNumber(t *task.Task) error {
	if t.Query != task.Count && t.Query != task.Sum && t.Query != task.Mean {
		return invalid.Field("query", invalid.Quote(string(t.Query)), "count, sum or mean for protocol "+t.Protocol)
	}
	return nil
}
