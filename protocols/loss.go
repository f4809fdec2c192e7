package protocols

import "github.com/doona-dp/doona/wire/task"

// Loss is what did not come through of the batches that an aggregate was made from.
type Loss struct {
	Clients  uint64 // Submissions that the batches were made from.
	Messages uint64 // Slots, of all lanes, that a relay dropped or that held nothing to count when opened.
}

// Missing is what a [Loss] can have changed in an entry of an estimated total. The total of all clients is
// that of what was counted and Parts numbers more, each in [Lo, Hi]. Which parts are missing may depend on
// all clients' values. It may depend on the messages too where parts are messages, and not where they are
// clients: the error of those counted is then no longer that of chance.
type Missing struct {
	Parts  uint64
	Lo, Hi float64

	// Counted is the number of clients that the total is of, where each part is one more client. 0: parts
	// are messages, and the total is of all clients but for them.
	Counted uint64
}

// MissingClients is for protocols of one message: of all clients, those counted sent what the total is of,
// and each of the others adds a number from lo to hi.
func (l Loss) MissingClients(counted uint64, lo, hi float64) Missing {
	return Missing{Parts: l.Clients - min(counted, l.Clients), Lo: lo, Hi: hi, Counted: counted}
}

// Growth is the factor from the total of those counted to that of all clients, if the others are like them.
func (m Missing) Growth() float64 {
	if m.Counted == 0 {
		return 1
	}
	return 1 + float64(m.Parts)/float64(m.Counted)
}

// Estimate returns the estimate for all clients from that of what was counted. Clients that are missing are
// taken to be like the others, and missing messages to be nothing: it is always in the interval.
func (m Missing) Estimate(total float64) float64 {
	if m.Counted == 0 {
		return total
	}
	return total + float64(m.Parts)*min(max(total/float64(m.Counted), m.Lo), m.Hi)
}

// Complete is the law of the error of [Missing.Estimate], from that of what was counted.
func (m Missing) Complete(law ErrorLaw) ErrorLaw { return completed{law, m} }

type completed struct {
	counted ErrorLaw
	missing Missing
}

// Variance is [ErrorLaw.Variance], of what chance did. What is missing is not chance.
func (c completed) Variance() float64 {
	return c.counted.Variance() * c.missing.Growth() * c.missing.Growth()
}

// Interval is [ErrorLaw.Interval]: that of what was counted, whose ends are moved by the least and the most
// that the missing parts can add.
func (c completed) Interval(confidence float64) (lo, hi float64) {
	return c.move(c.counted.Interval(confidence))
}

func (c completed) move(from, to float64) (lo, hi float64) {
	parts := float64(c.missing.Parts)
	return from + parts*c.missing.Lo, to + parts*c.missing.Hi
}

// Drowns says whether an interval of the given width says nothing because of what is missing: it is at
// least as wide as the query's range, the most that the clients' values can change in the total, and at
// least half of that range is for missing parts. Noise alone may be wider: it is not a fault, and averages
// out over batches.
func (m Missing) Drowns(width, span float64) bool {
	return width >= span && float64(m.Parts)*(m.Hi-m.Lo) >= span/2
}

// Contribution returns the least and the most that one client can add to an entry of the query's total.
func Contribution(t *task.Task) (lo, hi float64) {
	if t.Query.Info().Shape == task.PerBin {
		return 0, 1
	}
	return t.Input.Lo.Float64(), t.Input.Hi.Float64()
}
