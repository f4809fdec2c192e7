package protocols

import "github.com/doona-dp/doona/wire/task"

// Loss counts what was lost from the batches of an aggregate.
type Loss struct {
	Clients  uint64 // Clients whose reports went into the batches, counted or lost.
	Messages uint64 // Slots of all lanes that a relay dropped, or that held no countable message when opened.
}

// LossEffect bounds how a [Loss] changed an entry of an estimated total. The total of all clients is the counted total
// plus Parts numbers, each in [Lo, Hi]. An adversary who knows all values may choose which parts are missing. If parts
// are messages, the choice may also depend on the messages. If parts are clients, it may not: the error of the counted
// clients would no longer follow its distribution.
type LossEffect struct {
	Parts  uint64
	Lo, Hi float64

	// Counted is the number of clients in the counted total, if each part is one further client. 0 means that each part
	// is a message: the total then covers all clients, but lacks these messages.
	Counted uint64
}

// ClientLossEffect returns the effect in a protocol with one message per client. The counted total is that of the
// counted clients. Each missing client would add a number from lo to hi.
func (l Loss) ClientLossEffect(counted uint64, lo, hi float64) LossEffect {
	return LossEffect{Parts: l.Clients - min(counted, l.Clients), Lo: lo, Hi: hi, Counted: counted}
}

// Growth returns the factor from the counted clients' total to the total of all clients. It assumes that the missing
// clients resemble the counted ones.
func (m LossEffect) Growth() float64 {
	if m.Counted == 0 {
		return 1
	}
	return 1 + float64(m.Parts)/float64(m.Counted)
}

// Estimate returns the estimate for all clients from the estimate of the counted total. It assumes that missing clients
// resemble the counted ones and that missing messages add nothing. The result always lies in the interval of
// [LossEffect.Complete].
func (m LossEffect) Estimate(total float64) float64 {
	if m.Counted == 0 {
		return total
	}
	return total + float64(m.Parts)*min(max(total/float64(m.Counted), m.Lo), m.Hi)
}

// Complete returns the error distribution of [LossEffect.Estimate], given that of the counted total.
func (m LossEffect) Complete(law ErrorLaw) ErrorLaw { return completeLaw{law, m} }

type completeLaw struct {
	counted ErrorLaw
	missing LossEffect
}

// Variance implements [ErrorLaw.Variance]. Missing parts are treated as unknown numbers, not as random ones, so they
// add no variance of their own.
func (c completeLaw) Variance() float64 {
	return c.counted.Variance() * c.missing.Growth() * c.missing.Growth()
}

// Interval implements [ErrorLaw.Interval]. It takes the interval of the counted total. It moves the lower end by the
// least that the missing parts can add, and the upper end by the most.
func (c completeLaw) Interval(confidence float64) (lo, hi float64) {
	return c.move(c.counted.Interval(confidence))
}

func (c completeLaw) move(from, to float64) (lo, hi float64) {
	parts := float64(c.missing.Parts)
	return from + parts*c.missing.Lo, to + parts*c.missing.Hi
}

// Uninformative reports whether missing parts make an interval useless. Its width must be at least span, the most that
// the clients' values can change in the total. Missing parts must account for at least half of span. Noise alone may
// make it wider: that is no fault, and averages out over batches.
func (m LossEffect) Uninformative(width, span float64) bool {
	return width >= span && float64(m.Parts)*(m.Hi-m.Lo) >= span/2
}

// Contribution returns the least and the most that one client can add to an entry of the query's exact total.
func Contribution(t *task.Task) (lo, hi float64) {
	if t.Query.Info().Shape == task.PerBin {
		return 0, 1
	}
	return t.Input.Lo.Float64(), t.Input.Hi.Float64()
}
