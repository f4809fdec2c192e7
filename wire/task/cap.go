package task

import (
	"cmp"
	"math"
	"strconv"
	"strings"

	"github.com/doona-dp/doona/internal/decimal"
	"github.com/doona-dp/doona/internal/invalid"
)

// Cap limits the reports of one browser: at most Reports in any Window consecutive epochs. The browser keeps it. It may
// not depend on a value: a browser that reports only on some days, by what happened on them, would tell what happened.
//
// A claim over all epochs then covers [Epochs.MostReports] and not all epochs (docs/proofs/budget.md, "Caps"). The zero
// value is no cap.
type Cap struct {
	Reports uint64 // R. 1..Window−1.
	Window  uint64 // W. 2..MaxEpochs.
}

// IsZero reports whether there is no cap.
func (c Cap) IsZero() bool { return c == Cap{} }

// String returns the cap as R/W, or "none".
func (c Cap) String() string {
	if c.IsZero() {
		return "none"
	}
	return strconv.FormatUint(c.Reports, 10) + "/" + strconv.FormatUint(c.Window, 10)
}

func (c Cap) check(field string) error {
	if c.IsZero() {
		return nil
	}
	return c.checkRange(field+".reports", field+".window")
}

func (c Cap) checkRange(reports, window string) error {
	if err := inRange(window, c.Window, 2, MaxEpochs); err != nil {
		return err
	}
	return inRange(reports, c.Reports, 1, c.Window-1)
}

// CheckLimits returns an error unless cap and pace are each zero or within their range. A pace spreads the reports that
// the cap allows, so it must not allow more: then the cap refuses no report that the pace allows, and the share of
// visits that are counted is the same at all times.
func (e Epochs) CheckLimits() error {
	if err := e.Cap.check("epochs.cap"); err != nil || e.Pace.IsZero() {
		return err
	}
	if err := e.Pace.check("epochs.pace"); err != nil {
		return err
	}
	if e.Cap.IsZero() {
		return invalid.Field("epochs.pace", e.Pace.String(), "none without a cap: only a cap makes a total cover fewer reports")
	}
	if most := e.Pace.mostInBlocks(e.Cap.Window); most > e.Cap.Reports {
		return invalid.Field("epochs.pace", e.Pace.String(), "at most "+strconv.FormatUint(e.Cap.Reports, 10)+" reports in "+
			strconv.FormatUint(e.Cap.Window, 10)+" epochs, as the cap has; this pace allows "+strconv.FormatUint(most, 10))
	}
	return nil
}

// mostInBlocks returns the most reports in a number of consecutive epochs if c limits each block of c.Window epochs,
// wherever a block begins. A first block of which c.Reports epochs are left has as many as any.
func (c Cap) mostInBlocks(epochs uint64) uint64 {
	first := min(c.Reports, epochs)
	rest := epochs - first
	return first + rest/c.Window*c.Reports + min(c.Reports, rest%c.Window)
}

// MostReports returns the most reports of one browser in a number of consecutive epochs.
func (e Epochs) MostReports(epochs uint64) uint64 {
	return e.Cap.most(epochs)
}

func (c Cap) most(epochs uint64) uint64 {
	if c.IsZero() {
		return epochs
	}
	return epochs/c.Window*c.Reports + min(c.Reports, epochs%c.Window)
}

// MostReportsAt returns the most reports of one browser in epochs that begin at these times, in ascending order. It
// takes each epoch at which the cap allows one more report. No other choice has more: the k-th epoch that any choice
// takes is not before the k-th of this one, as each window that is full here at that epoch begins no earlier there.
func (e Epochs) MostReportsAt(starts []uint64) uint64 {
	return e.Cap.mostAt(starts, e.Length)
}

func (c Cap) mostAt(starts []uint64, length Length) uint64 {
	if c.IsZero() {
		return uint64(len(starts))
	}
	var taken []int64
	for _, at := range starts {
		if n := uint64(len(taken)); n < c.Reports || length.Add(taken[n-c.Reports], int64(c.Window)) <= int64(at) {
			taken = append(taken, int64(at))
		}
	}
	return uint64(len(taken))
}

// Parse sets c from R/W. An empty text is no cap. Errors name the field.
func (c *Cap) Parse(field, text string) (err error) {
	*c, err = parseLimit(field, text, "R/W, such as 4/28: at most R reports of a browser in any W epochs")
	return cmp.Or(err, c.check("epochs."+field))
}

// parseLimit reads a number of a window, R/W. An empty text is no limit.
func parseLimit(field, text, want string) (c Cap, err error) {
	if text == "" {
		return c, nil
	}
	reports, window, _ := strings.Cut(text, "/")
	r, isNumber := decimal.Uint(reports, 10, math.MaxUint64)
	w, ok := decimal.Uint(window, 10, math.MaxUint64)
	if isNumber && ok && r+w > 0 {
		return Cap{r, w}, nil
	}
	return c, invalid.Field(field, invalid.Quote(text), want)
}
