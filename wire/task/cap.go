package task

import (
	"cmp"
	"strconv"
	"strings"

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

// Check returns an error unless the cap is zero or within its range.
func (c Cap) Check() error {
	if c.IsZero() {
		return nil
	}
	return c.checkRange("epochs.cap.reports", "epochs.cap.window")
}

func (c Cap) checkRange(reports, window string) error {
	if err := inRange(window, c.Window, 2, MaxEpochs); err != nil {
		return err
	}
	return inRange(reports, c.Reports, 1, c.Window-1)
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

func (c Cap) mostAt(starts []uint64, length uint64) uint64 {
	if c.IsZero() {
		return uint64(len(starts))
	}
	window := c.Window * length
	var taken []uint64
	for _, at := range starts {
		if n := uint64(len(taken)); n < c.Reports || taken[n-c.Reports]+window <= at {
			taken = append(taken, at)
		}
	}
	return uint64(len(taken))
}

// Parse sets c from R/W. An empty text is no cap.
func (c *Cap) Parse(text string) (err error) {
	*c, err = parseLimit("cap", text, "R/W, such as 4/28: at most R reports of a browser in any W epochs")
	return cmp.Or(err, c.Check())
}

// parseLimit reads a number of a window, R/W. An empty text is no limit.
func parseLimit(field, text, want string) (c Cap, err error) {
	if text == "" {
		return c, nil
	}
	reports, window, _ := strings.Cut(text, "/")
	r, failed := strconv.ParseUint(reports, 10, 64)
	w, err := strconv.ParseUint(window, 10, 64)
	if failed == nil && err == nil && r+w > 0 {
		return Cap{r, w}, nil
	}
	return c, invalid.Field(field, strconv.Quote(text), want)
}
