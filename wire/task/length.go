package task

import "math"

// Length is how long an epoch is: a number of seconds, 1 to 31,622,400 (366 days), or [Month]. Its methods take and
// return Unix times in seconds, also of times before 1970.
type Length uint64

// Month is the length of calendar months in UTC. Each epoch then begins when a month does.
const Month Length = 1 << 32

const day = 24 * 3600

// Add returns when an epoch begins that is n epochs after the one that begins at start; before it, if n is negative.
func (l Length) Add(start, n int64) int64 {
	if l == Month {
		return beginOf(monthOf(start) + n)
	}
	return start + n*int64(l)
}

// Between returns how many epochs after the one that begins at start the one is that contains a time: negative if it is
// before.
func (l Length) Between(start, at int64) int64 {
	if l == Month {
		return monthOf(at) - monthOf(start)
	}
	return floor(at-start, int64(l))
}

// Shortest returns the length in seconds of the shortest epoch.
func (l Length) Shortest() uint64 {
	if l == Month {
		return 28 * day
	}
	return uint64(l)
}

// MostIn returns how many of count consecutive epochs, at least one, can begin within a number of seconds.
func (l Length) MostIn(seconds float64, count uint64) uint64 {
	// No months are shorter than those from February 2097: no year from 2097 to 2103 is a leap year.
	start := beginOf((2097-1970)*12 + 1)
	if !(seconds < float64(l.Add(start, int64(count))-start)) {
		return count
	}
	return uint64(l.Between(start, start+int64(math.Ceil(max(seconds, 1)))-1)) + 1
}

// monthOf returns the month that contains a time, counted from January 1970.
func monthOf(at int64) int64 {
	month := floor(at, 2_629_746) // the average length
	for beginOf(month) > at {
		month--
	}
	for beginOf(month+1) <= at {
		month++
	}
	return month
}

// beginOf returns when a month begins, counted from January 1970. Its years begin in March, so that the leap day is
// their last day.
func beginOf(month int64) int64 {
	year := floor(month+1970*12-2, 12)
	days := 365*year + floor(year, 4) - floor(year, 100) + floor(year, 400)
	return day * (days + (153*(month+1970*12-2-12*year)+2)/5 - 719_468)
}

// floor returns a/b, rounded down. b is above 0.
func floor(a, b int64) int64 {
	if a < 0 {
		return (a+1)/b - 1
	}
	return a / b
}
