package task

import (
	"cmp"
	"strconv"

	"github.com/doona-dp/doona/internal/invalid"
)

// Events limits rare answers: in any Window consecutive epochs, at most Most reports of a browser differ from the cell
// Default. The browser keeps it, by sending Default instead. Relays' noise then covers the events and not the epochs
// (docs/proofs/events.md). Whether a browser reports, and when, may depend neither on a value nor on what is left. The
// zero value is no limit.
type Events struct {
	Most    uint64 // K. 1..Window−1.
	Window  uint64 // W. 2..MaxEpochs.
	Default uint64 // A cell of the noise: the message of a browser without an event.
}

// IsZero reports whether there is no limit.
func (e Events) IsZero() bool { return e == Events{} }

// String returns the limit as K/W, or "none".
func (e Events) String() string { return Cap{e.Most, e.Window}.String() }

// Uncounted says in words what the limit is, and which events answers do not count.
func (e Events) Uncounted() string {
	return "At most " + strconv.FormatUint(e.Most, 10) + " of a browser's reports in any " +
		strconv.FormatUint(e.Window, 10) + " epochs differ from the default, cell " + strconv.FormatUint(e.Default, 10) +
		". A browser sends the default in place of further events, so these are not counted."
}

// Parse sets the limit from K/W, and keeps the default. An empty text is no limit.
func (e *Events) Parse(text string) error {
	limit, err := parseLimit("events", text, "K/W, such as 1/30: at most K events of a browser in any W epochs")
	e.Most, e.Window = limit.Reports, limit.Window
	return cmp.Or(err, e.Check())
}

// Check returns an error unless the limit is zero or within its range.
func (e Events) Check() error {
	if e.IsZero() {
		return nil
	}
	return Cap{e.Most, e.Window}.checkRange("events.most", "events.window")
}

// validateEvents checks what events need: noise by relays for each cell, and messages that are the value itself.
func (t *Task) validateEvents() error {
	e, n := t.Epochs.Events, t.Noise
	if e.IsZero() {
		if n != nil && n.Rest != nil {
			return invalid.Field("noise.rest", strconv.FormatUint(*n.Rest, 10), "none, without events")
		}
		return nil
	}
	if err := e.Check(); err != nil {
		return err
	}
	_, local := t.Param("gamma")
	switch {
	case n == nil || n.Kind != NoiseCells || t.Claim.Assumption != NoneHonest:
		return invalid.Field("events", e.String(), "none, unless relays add all noise, of kind cells")
	case !oneOf(t.Query, Count, Histogram):
		return invalid.Field("events", e.String(), "none, unless the query is count or histogram")
	case local:
		return invalid.Field("events", e.String(), "none with parameter gamma: a browser sends its value itself")
	case n.Rest != nil && *n.Rest != e.Default:
		return invalid.Field("noise.rest", strconv.FormatUint(*n.Rest, 10), strconv.FormatUint(e.Default, 10)+
			", the default of the events")
	}
	return inRange("events.default", e.Default, 0, n.Cells-1)
}

// differing returns the events as a cap: in any Window epochs, at most that many copies of the privacy law of one epoch
// cover what two sequences of events change. The law of a noise with a rest cell covers an event in each of them; any
// other covers one epoch in which they differ.
func (t *Task) differing() Cap {
	e := t.Epochs.Events
	if t.Noise != nil && t.Noise.Rest != nil {
		return Cap{e.Most, e.Window}
	}
	return Cap{min(2*e.Most, e.Window), e.Window}
}

// MostCopies returns how many independent copies of the privacy law of one epoch cover all reports of one browser in a
// number of consecutive epochs: as many as there are epochs, or fewer with a cap or with events.
func (t *Task) MostCopies(epochs uint64) uint64 {
	return min(t.Epochs.MostReports(epochs), t.differing().most(epochs))
}

// MostCopiesAt is [Task.MostCopies] for epochs that begin at these times, in ascending order.
func (t *Task) MostCopiesAt(starts []uint64) uint64 {
	return min(t.Epochs.MostReportsAt(starts), t.differing().mostAt(starts, t.Epochs.Length))
}
