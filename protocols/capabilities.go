package protocols

import "github.com/doona-dp/doona/randomizer"

// Capabilities is what a mechanism can do beyond what each must. What it cannot is nil, or false. A function of an
// [Aggregate] takes one of the mechanism's own.
type Capabilities struct {
	// Diluted returns the aggregate of a task whose relays add dummies.
	Diluted func(a Aggregate) Diluted

	// Bins returns the bins of a histogram's aggregate, where the errors of their counts depend on each other. Else
	// each has an error of its own.
	Bins func(a Aggregate) Bins

	// Find lists frequent texts that nobody listed beforehand.
	Find func(a Aggregate, confidence float64) FoundTexts

	// Ask counts given texts, cut as clients' texts are. All intervals hold together with the given confidence, in
	// (0, 1). A text that is none is an error about "value".
	Ask func(a Aggregate, texts []string, confidence float64) ([]TextCount, error)

	// CheckComplete is of a mechanism whose aggregate is of no use unless every message of a batch has been added. It
	// is an error where those added since the last AddUsers are not all of so many clients', which says what is
	// missing. Whoever aggregates asks it before AddUsers.
	CheckComplete func(a Aggregate, users uint64) error

	// CrowdEpsilon is of a mechanism that needs no honest client, and whose clients randomize all the same. It
	// returns the ε, at a δ, of a client in a batch with so many honest clients: at most what is claimed without any.
	CrowdEpsilon func(honest uint64, delta float64) float64

	// Of plans.

	// Messages returns the expected number of messages of a client with the worst-case value. nil: draw some.
	Messages func() float64

	// Reach returns the most that one malicious client moves an entry of the estimated total. nil: estimates are
	// linear, so that it is what they say of this client alone, less what it ought to have added.
	Reach func() float64

	// OneSetsAll says that one malicious client can set the whole answer, so that more of them move it no further.
	OneSetsAll bool

	// Lists is of a mechanism whose answer lists what nobody listed before. It returns how many clients an entry must
	// have to be listed in about 98 of 100 full batches to which so many relays add, 0 if no number is enough, and the
	// variance of the count of one that so many have.
	Lists func(relays int) (clients, variance float64)

	// Of simulations.

	// Fast prepares clients with the given values, whose aggregate can be drawn without drawing every message.
	Fast func(values [][]float64) (Draw, error)

	// Sampling returns the part of the variance of [Mechanism.Exact] that is there because a client reports only some
	// of its coordinates.
	Sampling func(value []float64) (variance []float64, err error)

	// Attack draws the messages, in the shape of [Mechanism.Randomize], that malicious client number index, from 0, of
	// a coalition sends instead of a report of value. They are well-formed and fit the task's slots: what nobody can
	// tell from an honest client's. An attack that the protocol does not know is [UnknownAttack].
	Attack func(src *randomizer.Source, attack string, index int, value []float64) (Messages, error)
}

// CapabilitiesOf returns what a mechanism's method Capabilities does; nothing where it has none. It is no method of
// [Mechanism], whose types are all linked into doona.wasm, where nobody asks.
func CapabilitiesOf(m Mechanism) Capabilities {
	if can, ok := m.(interface{ Capabilities() Capabilities }); ok {
		return can.Capabilities()
	}
	return Capabilities{}
}

// Diluted is an [Aggregate] of a task whose relays add dummies.
type Diluted interface {
	// AddDummies says that among the messages added are dummies, drawn by the task's law as often as draws
	// says: by each relay, for each batch.
	AddDummies(draws, dummies uint64)
	// DummyVariance returns the variance that dummies add to each entry of Total.
	DummyVariance() []float64
}

// Bins are the numbers c_1, …, c_K of clients in K bins. It knows the errors of what is made of them.
type Bins interface {
	// Below returns the laws of the numbers of clients in the first bin, in the first two, …, and in the first K-1.
	Below() []ErrorLaw
	// Weighted returns the law of Σ a_j·c_j for K weights a.
	Weighted(a []float64) ErrorLaw
}

// TextCount is how many clients have a text, and the interval that holds their number.
type TextCount struct {
	Text    string
	Clients float64
	Lo, Hi  float64
}

// FoundTexts is what a search for frequent texts came to.
type FoundTexts struct {
	List []TextCount // By falling number of clients. Each interval by itself has the confidence asked for, given found.

	// Least is how many clients a text must have to be listed in about 98 of 100 batches like this one, where others do
	// not begin as it does; 0 if no number is enough.
	Least float64

	// Threshold is how many messages of its own, in cells that no other listed text has, a listed text has at least.
	Threshold float64

	// PlantedByRelay is how many texts that nobody has one relay can have listed by its choice of dummies.
	PlantedByRelay uint64

	// FalseChance bounds the probability that a text is listed that nobody has, by chance.
	FalseChance float64
}
