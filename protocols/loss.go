package protocols

import "github.com/doona-dp/doona/wire/task"

// Loss counts the messages that were lost from the batches of an aggregate.
type Loss struct {
	Clients  uint64 // Clients whose reports the batches were made from.
	Messages uint64 // Slots of all lanes that a relay dropped, or that held nothing to count when opened.
}

// LossEffect bounds how a [Loss] changed an entry of an estimated total. The total of all clients is the counted total
// plus Parts numbers, each in [Lo, Hi]. An adversary may choose which parts are missing by all clients' values. If
// parts are messages, the choice may also depend on the messages. If parts are clients, it may not: the error of the
// counted clients would no longer follow its law.
type LossEffect struct {
	Parts  uint64
	Lo, Hi float64

	// Counted is the number of clients in the total, if each part is one more client. 0: parts are messages, and the
	// total is of all clients without these messages.
	Counted uint64
}

// ClientLossEffect returns the effect in a protocol with one message per client. The total is of the counted clients;
// each other client adds a number from lo to hi.
func (l Loss) ClientLossEffect(counted uint64, lo, hi float64) LossEffect {
	return LossEffect{Parts: l.Clients - min(counted, l.Clients), Lo: lo, Hi: hi, Counted: counted}
}

// Growth returns the factor from the total of the counted clients to the total of all clients, if the missing clients
// are like them.
func (m LossEffect) Growth() float64 {
	if m.Counted == 0 {
		return 1
	}
	return 1 + float64(m.Parts)/float64(m.Counted)
}

// Estimate returns the estimate for all clients from the estimate of the counted total. It assumes that missing
// clients are like the others and that missing messages add nothing. The result is always in the interval.
func (m LossEffect) Estimate(total float64) float64 {
	if m.Counted == 0 {
		return total
	}
	return total + float64(m.Parts)*min(max(total/float64(m.Counted), m.Lo), m.Hi)
}

// Complete returns the law of the error of [LossEffect.Estimate], from the law of the counted total.
func (m LossEffect) Complete(law ErrorLaw) ErrorLaw { return completeLaw{law, m} }

type completeLaw struct {
	counted ErrorLaw
	missing LossEffect
}

// Variance implements [ErrorLaw.Variance]. Missing parts are not random and do not add to it.
func (c completeLaw) Variance() float64 {
	return c.counted.Variance() * c.missing.Growth() * c.missing.Growth()
}

// Interval implements [ErrorLaw.Interval]. It takes the interval of the counted total and moves its ends by the least
// and the most that the missing parts can add.
func (c completeLaw) Interval(confidence float64) (lo, hi float64) {
	return c.move(c.counted.Interval(confidence))
}

func (c completeLaw) move(from, to float64) (lo, hi float64) {
	parts := float64(c.missing.Parts)
	return from + parts*c.missing.Lo, to + parts*c.missing.Hi
}

// Uninformative reports whether an interval of the given width is uninformative because of missing parts. It is at
// least as wide as the query's range, the most that the clients' values can change in the total, and missing parts
// account for at least half of that range. Noise alone may be wider: it is no fault, and averages out over batches.
func (m LossEffect) Uninformative(width, span float64) bool {
	return width >= span && float64(m.Parts)*(m.Hi-m.Lo) >= span/2
}

// Contribution returns the least and the most that one client can add to an entry of the query's total.
func Contribution(t *task.Task) (lo, hi float64) {
	if t.Query.Info().Shape == task.PerBin {
		return 0, 1
	}
	return t.Input.Lo.Float64(), t.Input.Hi.Float64()
}
