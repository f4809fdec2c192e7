package protocols

import (
	"math"

	"github.com/doona-dp/doona/randomizer"
)

// Capabilities holds the optional functions of a mechanism. One that the mechanism lacks is nil. An [Aggregate] that
// they take must be of the same mechanism.
type Capabilities struct {
	// Dummies returns the aggregate's methods for dummies. It is set if the task's relays add dummies.
	Dummies func(a Aggregate) DummyAggregate

	// Bins returns a histogram aggregate's methods for sums of bins. It is set if the errors of the bins' counts are
	// correlated. nil: the errors are independent.
	Bins func(a Aggregate) Bins

	// Find searches for frequent texts without a list of candidates.
	Find func(a Aggregate, confidence float64) FoundTexts

	// Ask estimates how many clients hold each of the given texts. It first cuts the texts to the task's length, as
	// clients do. With the given confidence, in (0, 1), all intervals hold at once. rest counts the clients that hold
	// none of the texts that a search finds, asked for or not; its interval holds by itself. A string that is not
	// a valid text is an error about "value".
	Ask func(a Aggregate, texts []string, confidence float64) (counts []TextCount, rest TextCount, err error)

	// Hold returns a function for simulated batches to which this many relays add dummies. a may be of a mechanism with
	// other hashes. The function returns whether the intervals contain the true numbers of clients. held has the texts
	// that several clients hold, and the search considers no others. listed is about the texts that Find lists, or
	// asked about those of Ask, if texts are asked for. none is how many of these texts have no interval. off is how
	// many clients the interval of the clients of other texts is off by. Unless printed is set, the function saves the
	// time of computing the intervals, and only tests the true numbers.
	Hold func(relays int) func(a Aggregate, held map[string]int, asks []string, confidence float64, printed bool) (
		listed, asked map[string]bool, none int, off float64)

	// CheckComplete is set if the aggregate is useless unless every message of a batch was added. It returns an error
	// unless the messages added since the last AddUsers are exactly those of this many clients. The error says what is
	// missing. Call CheckComplete before AddUsers.
	CheckComplete func(a Aggregate, users uint64) error

	// EpsilonHonest is set if the mechanism's claim assumes no honest clients, although clients randomize. It returns
	// the ε, at a given δ, of a client in a batch with this many honest clients. The ε is at most the claimed one.
	EpsilonHonest func(honest uint64, delta float64) float64

	// Messages returns the expected number of messages of a client with the worst-case value. The planner uses it. nil:
	// the planner estimates the number by drawing reports.
	Messages func() float64

	// Reach returns the most that one malicious client can move an entry of the estimated total. nil: the estimate is
	// linear, so that is the client's contribution less the one it should have made.
	Reach func() float64

	// OneSetsAll: one malicious client can set the whole answer, so that further ones change nothing.
	OneSetsAll bool

	// Lists is set if the answer is a list of entries that the analysis discovers. It returns how many clients must
	// hold an entry for it to be listed in about 98 of 100 full batches, if this many relays add dummies to each batch.
	// It returns 0 if no number is enough. variance is the variance of the count of an entry that this many clients
	// hold.
	Lists func(relays int) (clients, variance float64)

	// Sum returns the exact law of the error of the sum of some bins: the probabilities of first, first+1, …. They are
	// nil if the errors of different bins are not independent, or if the law is too long.
	Sum func(a Aggregate, bins []int) (first float64, masses []float64)

	// Fast prepares simulated clients with the given values. The returned function then draws their aggregate without
	// drawing every message.
	Fast func(values [][]float64) (Draw, error)

	// Sampling returns the part of the variance of [Mechanism.Exact] that arises because a client reports only some of
	// its coordinates.
	Sampling func(value []float64) (variance []float64, err error)

	// Attack draws what a malicious client sends instead of a report of value, in the shape of [Mechanism.Randomize].
	// index is the client's number, from 0, among the malicious clients. The messages are well-formed and fit the
	// task's slots, so nobody can tell them from an honest client's. An unknown attack is the error [UnknownAttack].
	Attack func(src *randomizer.Source, attack string, index int, value []float64) (Messages, error)
}

// CapabilitiesOf returns the result of the mechanism's Capabilities method, or the zero value if it has no such method.
// Capabilities is not part of [Mechanism], because the linker would then keep it in doona.wasm, which does not call it.
func CapabilitiesOf(m Mechanism) Capabilities {
	if can, ok := m.(interface{ Capabilities() Capabilities }); ok {
		return can.Capabilities()
	}
	return Capabilities{}
}

// DummyAggregate is an [Aggregate] of a task whose relays add dummies.
type DummyAggregate interface {
	// AddDummies records how many of the added messages are dummies. Each relay draws a number of dummies once per
	// batch, by the distribution that the task states. draws is the total number of these draws.
	AddDummies(draws, dummies uint64)
	// DummyVariance returns the variance that dummies add to each entry of Total.
	DummyVariance() []float64
}

// Bins are the estimated numbers c_1, …, c_K of clients in K bins, with the error distributions of sums of them.
type Bins interface {
	// Below returns K-1 error distributions: for the number of clients in the first bin, in the first two, …, in the
	// first K-1.
	Below() []ErrorLaw
	// Weighted returns the error distribution of Σ a_j·c_j for K weights a.
	Weighted(a []float64) ErrorLaw
}

// TextCount is the estimated number of clients that hold a text, and its confidence interval. Hi is +Inf if the batch
// says too little about the text for an interval. Then Clients is 0 and means nothing.
type TextCount struct {
	Text    string
	Clients float64
	Lo, Hi  float64
}

// Interval returns the interval, or nil if there is none.
func (c TextCount) Interval() *[2]float64 {
	if math.IsInf(c.Hi, 1) {
		return nil
	}
	return &[2]float64{c.Lo, c.Hi}
}

// Estimate returns the estimated number of clients, or nil if there is no interval.
func (c TextCount) Estimate() *float64 {
	if c.Interval() == nil {
		return nil
	}
	return &c.Clients
}

// FoundTexts is the result of a search for frequent texts.
type FoundTexts struct {
	List []TextCount // Most clients first. Each interval holds with the confidence for itself, given listing.
	Rest TextCount   // Clients that hold no listed text.

	// Least is how many clients must hold a text for it to be listed in about 98 of 100 batches like this one, provided
	// that no other text shares its beginning. 0 if no number is enough.
	Least float64

	// Threshold is the least number of its own messages that a listed text has. A message counts only if it lies in a
	// cell that no other listed text shares.
	Threshold float64

	// PlantedByRelay is how many texts one relay can put on the list by choosing its dummies, although no client holds
	// them.
	PlantedByRelay uint64

	// FalseChance bounds the probability that by chance the list contains a text that no client holds.
	FalseChance float64
}
