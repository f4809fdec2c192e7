package protocols

import "github.com/doona-dp/doona/randomizer"

// Capabilities lists what a mechanism can do beyond [Mechanism]. What it cannot do is nil or false. A function of an
// [Aggregate] takes an aggregate of the same mechanism.
type Capabilities struct {
	// Dummies returns the aggregate of a task whose relays add dummies.
	Dummies func(a Aggregate) DummyAggregate

	// Bins returns the bins of a histogram's aggregate if the errors of their counts are correlated. nil: the errors
	// are independent.
	Bins func(a Aggregate) Bins

	// Find lists frequent texts, without a list of candidates.
	Find func(a Aggregate, confidence float64) FoundTexts

	// Ask counts given texts, cut as clients' texts are. All intervals hold together with the given confidence, in
	// (0, 1). A string that is not a valid text is an error about "value".
	Ask func(a Aggregate, texts []string, confidence float64) ([]TextCount, error)

	// CheckComplete is set if the aggregate is useless unless every message of a batch was added. It returns an error
	// that says what is missing, unless the messages added since the last AddUsers are those of this many clients.
	// Call it before AddUsers.
	CheckComplete func(a Aggregate, users uint64) error

	// EpsilonHonest is set if the mechanism needs no honest client but its clients randomize nevertheless. It returns
	// the ε, at a δ, of a client in a batch with this many honest clients. It is at most the claim, which assumes
	// none.
	EpsilonHonest func(honest uint64, delta float64) float64

	// For plans.

	// Messages returns the expected number of messages of a client with the worst-case value. nil: estimate it by
	// drawing.
	Messages func() float64

	// Reach returns the most that one malicious client can move an entry of the estimated total. nil: estimates are
	// linear, so the most is this client's own contribution to the estimate, less the contribution it should have
	// made.
	Reach func() float64

	// OneSetsAll says that one malicious client can set the whole answer, so that more of them change nothing
	// further.
	OneSetsAll bool

	// Lists is set if the answer is a list that nobody wrote beforehand. It returns how many clients must hold an
	// entry for it to be listed in about 98 of 100 full batches, each with dummies of this many relays; 0 if no
	// number is enough. It also returns the variance of the count of an entry that this many clients hold.
	Lists func(relays int) (clients, variance float64)

	// For simulations.

	// Fast prepares clients with the given values. Their aggregate can then be drawn without drawing every message.
	Fast func(values [][]float64) (Draw, error)

	// Sampling returns the part of the variance of [Mechanism.Exact] that comes from sampling: a client reports only
	// some of its coordinates.
	Sampling func(value []float64) (variance []float64, err error)

	// Attack draws what a malicious client sends instead of a report of value, in the shape of [Mechanism.Randomize].
	// The client has number index, from 0, in a coalition. The messages are well-formed and fit the task's slots, so
	// nobody can tell them from an honest client's. An unknown attack is the error [UnknownAttack].
	Attack func(src *randomizer.Source, attack string, index int, value []float64) (Messages, error)
}

// CapabilitiesOf returns the result of a mechanism's method Capabilities, or the zero value if it has none.
// Capabilities is not a method of [Mechanism], because the linker would then keep it in doona.wasm, which does not
// call it.
func CapabilitiesOf(m Mechanism) Capabilities {
	if can, ok := m.(interface{ Capabilities() Capabilities }); ok {
		return can.Capabilities()
	}
	return Capabilities{}
}

// Dummies is an [Aggregate] of a task whose relays add dummies.
type DummyAggregate interface {
	// AddDummies records that the messages added include dummies. Each relay draws them once for each batch by the
	// task's law; draws is the total number of such draws.
	AddDummies(draws, dummies uint64)
	// DummyVariance returns the variance that dummies add to each entry of Total.
	DummyVariance() []float64
}

// Bins are the numbers c_1, …, c_K of clients in K bins, with the laws of the errors of sums of them.
type Bins interface {
	// Below returns K-1 laws: of the number of clients in the first bin, in the first two, …, in the first K-1.
	Below() []ErrorLaw
	// Weighted returns the law of Σ a_j·c_j for K weights a.
	Weighted(a []float64) ErrorLaw
}

// TextCount is the estimated number of clients that hold a text, with its interval.
type TextCount struct {
	Text    string
	Clients float64
	Lo, Hi  float64
}

// FoundTexts is the result of a search for frequent texts.
type FoundTexts struct {
	List []TextCount // By falling number of clients. Each interval alone has the confidence, given listing.

	// Least is how many clients must hold a text for it to be listed in about 98 of 100 batches like this one, if
	// other texts do not share its beginning; 0 if no number is enough.
	Least float64

	// Threshold is the least number of messages of its own that a listed text has. They count only in cells that no
	// other listed text shares.
	Threshold float64

	// PlantedByRelay is how many texts that nobody holds one relay can have listed by choosing its dummies.
	PlantedByRelay uint64

	// FalseChance bounds the probability that chance lists a text that nobody holds.
	FalseChance float64
}
