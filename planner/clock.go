package planner

import (
	"strconv"

	"github.com/doona-dp/doona/internal/invalid"
	"github.com/doona-dp/doona/wire/task"
)

// Clock says how long the epochs of a query of a set are.
type Clock string

// The clocks, in UTC.
const (
	Daily   Clock = "day"
	Weekly  Clock = "week"
	Monthly Clock = "month" // Calendar months.
)

// mostDays is the longest time of a set's total: a hundred years.
const mostDays = 36_525

// Epochs returns the most epochs of the clock that begin in any stretch of days: in 365 days 365, 53 or 12.
func (c Clock) Epochs(days uint64) (uint64, error) {
	if days < 1 || days > mostDays {
		return 0, invalid.Field("days", strconv.FormatUint(days, 10), "1 to "+strconv.Itoa(mostDays))
	}
	length, ok := map[Clock]task.Length{Daily: 86400, Weekly: 7 * 86400, Monthly: task.Month}[c]
	if !ok {
		return 0, invalid.Field("per", strconv.Quote(string(c)), "day, week or month")
	}
	return length.MostIn(float64(days)*86400, days), nil
}
