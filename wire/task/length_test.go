package task_test

import (
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/doona-dp/doona/wire/task"
)

const day = 86400

// TestMonths compares calendar months with those of package time, from before the year 0 to after 9999.
func TestMonths(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	begin := func(month int64) int64 {
		return time.Date(1970, time.January+time.Month(month), 1, 0, 0, 0, 0, time.UTC).Unix()
	}
	for month := int64(-30_000); month < 100_000; month++ {
		n, at := random.Int64N(130_000)-65_000, begin(month)
		require.Equal(t, begin(month+n), task.Month.Add(at, n), "%d months after %d", n, at)
		within := at + random.Int64N(begin(month+1)-at)
		require.Equal(t, at, task.Month.Add(within, 0), "the month of %d", within)
		for _, to := range []int64{begin(month + n), begin(month+n+1) - 1} {
			require.Equal(t, n, task.Month.Between(at, to), "%d to %d", at, to)
			require.Equal(t, n, task.Month.Between(within, to), "%d to %d", within, to)
		}
	}
	e := task.Epochs{Start: uint64(begin(12)), Length: task.Month, Count: 3}
	require.Equal(t, []uint64{31_536_000, 34_214_400, 36_633_600, 39_312_000},
		[]uint64{e.Begin(0), e.End(0), e.End(1), e.Over()}, "January to March 1971")
	require.EqualValues(t, 28*day, task.Month.Shortest())
}

// TestMostEpochs compares the most epochs that begin within some days with a search of all months of 400 years, after
// which the calendar repeats.
func TestMostEpochs(t *testing.T) {
	var begins []int64 // in days
	for month := range 400*12 + 1300 {
		begins = append(begins, time.Date(2000, time.January+time.Month(month), 1, 0, 0, 0, 0, time.UTC).Unix()/day)
	}
	shortest := make([]int64, 1300) // of n months
	for n := range shortest {
		shortest[n] = math.MaxInt64
		for first := range 400 * 12 {
			shortest[n] = min(shortest[n], begins[first+n]-begins[first])
		}
	}
	most := uint64(1)
	for days := int64(1); days <= 36_525; days++ {
		for shortest[most] < days {
			most++
		}
		require.Equal(t, most, task.Month.MostIn(float64(days)*day, math.MaxUint16), "in %d days", days)
	}
	for _, c := range []struct {
		length     task.Length
		seconds    float64
		count, all uint64
	}{
		{day, 30 * day, 100, 30}, {day, 30*day + 1, 100, 31}, {day, 30*day - .5, 100, 30}, {day, .1, 100, 1},
		{7 * day, 365 * day, 100, 53}, {7 * day, 365 * day, 52, 52}, {day, math.Inf(1), 65536, 65536},
		{task.Month, 365 * day, 100, 12}, {task.Month, 365*day + 1, 100, 13}, {task.Month, .1, 100, 1},
		{task.Month, math.Inf(1), 65536, 65536}, {task.Month, 1e300, 9, 9}, {day, math.NaN(), 7, 7},
	} {
		require.Equal(t, c.all, c.length.MostIn(c.seconds, c.count), "%v", c)
	}
}
