package verifier

import (
	"encoding/csv"
	"io"
	"strconv"
	"time"

	"github.com/doona-dp/doona/internal/decimal"
	"github.com/doona-dp/doona/wire/task"
)

// csvHeader names the columns of [Report.WriteCSV].
var csvHeader = []string{"epoch", "start", "entry", "label", "clients", "batches", "estimate", "standard_error", "lo",
	"hi",
	"standard_error_worst", "band_lo", "band_hi"}

// WriteCSV writes a line per entry of the answer: first of all epochs together, whose epoch is "all",
// then of each. Start is when the epoch began, in UTC; lo and hi are the interval's ends,
// band_lo and band_hi those of the band that holds all entries at once.
func (r *Report) WriteCSV(w io.Writer, t *task.Task) error {
	out := csv.NewWriter(w)
	out.Write(csvHeader) // Flush reports the first error
	labels := Labels(t)
	write := func(epoch, start string, users, batches uint64, a Answer) {
		for j := range a.Estimate {
			label := ""
			if j < len(labels) {
				label = labels[j]
			}
			out.Write([]string{epoch, start, strconv.Itoa(j), label, strconv.FormatUint(users, 10),
				strconv.FormatUint(batches, 10),
				exact(a.Estimate[j]), exact(a.StandardError[j]), exact(a.Interval[j][0]), exact(a.Interval[j][1]),
				exact(a.StandardErrorWorst[j]), exact(a.Band[j][0]), exact(a.Band[j][1])})
		}
	}
	write("all", "", r.Users, r.Batches, r.Answer)
	for _, e := range r.Ledger.Epochs {
		write(strconv.FormatUint(e.Epoch, 10), epochStart(t, e.Epoch).Format(time.RFC3339), e.Users, e.Batches,
			e.Answer)
	}
	out.Flush()
	return out.Error()
}

func exact(x float64) string { return decimal.Format(x, -1) }

func epochStart(t *task.Task, epoch uint64) time.Time {
	return time.Unix(int64(t.Epochs.Start+epoch*t.Epochs.Length), 0).UTC()
}
