package planner

import (
	"strconv"
	"time"

	"github.com/doona-dp/doona/internal/invalid"
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
	switch c {
	case Daily:
		return days, nil
	case Weekly:
		return (days + 6) / 7, nil
	case Monthly:
		return mostMonths(int(days)), nil
	}
	return 0, invalid.Field("per", strconv.Quote(string(c)), "day, week or month")
}

// mostMonths returns the most calendar months that begin in a stretch of days. The calendar repeats after 400 years,
// and a stretch with the most months can begin with a month.
func mostMonths(days int) (most uint64) {
	day := 24 * time.Hour
	for month := range 400 * 12 {
		first := time.Date(2000, time.January, 1, 0, 0, 0, 0, time.UTC).AddDate(0, month, 0)
		next := first
		months := uint64(0)
		for next.Sub(first) < time.Duration(days)*day {
			months++
			next = time.Date(2000, time.January, 1, 0, 0, 0, 0, time.UTC).AddDate(0, month+int(months), 0)
		}
		most = max(most, months)
	}
	return most
}
