// Package task defines the document that all parties agree on: the query, how values are randomized, which
// guarantee is promised, and which parties take part.
//
// The SHA-256 of a task's canonical form ([Task.Canonical]) identifies it. The form is msgpack arrays in a fixed
// order with the shortest encodings and no floating-point numbers, so that Go and TypeScript hash alike. Package
// [github.com/doona-dp/doona/wire/taskfile] holds the JSON form, the hash and the owner's signature. They are
// separate because this package is linked into doona.wasm, where hashing and package fmt would double the download.
package task

import (
	"strconv"

	"github.com/doona-dp/doona/internal/invalid"
	"github.com/doona-dp/doona/randomizer"
)

// Version is the version of the task, the wire format and every label in them.
const Version = 1

// Padding says how many slots a client sends (docs/SPEC.md).
type Padding string

// The paddings.
const (
	PaddingFull Padding = "full" // Exactly Slots.PerLane slots in every lane of every client.
	PaddingNone Padding = "none" // As many slots as messages, at least one.
)

// ClientKind is how a first relay distinguishes clients to enforce their quota.
type ClientKind string

// The kinds of clients.
const (
	ClientToken   ClientKind = "token"   // Privacy Pass tokens of an independent issuer.
	ClientAddress ClientKind = "address" // Keyed hash of the network address; does not resist Sybil attacks.
)

// maxSlots bounds the slots of one client over all lanes, so that no size overflows: a submission stays below 2³²
// bytes under every KEM and number of relays.
const maxSlots = 1 << 18

// KEM is a key encapsulation mechanism, which seals a message for one hop.
type KEM string

// The key encapsulation mechanisms.
const (
	KEMX25519         KEM = "x25519"         // DHKEM(X25519, HKDF-SHA256)
	KEMMLKEM768X25519 KEM = "mlkem768x25519" // hybrid, post-quantum
	KEMMLKEM768       KEM = "mlkem768"       // post-quantum
)

// Task is the document. The zero value is not valid; see [Task.Validate].
type Task struct {
	Name     string          // For people. Required. 1 to 64 printable ASCII characters.
	Query    Query           // Required.
	Protocol string          // Name in the protocol registry. Required.
	Rule     string          // The accountant's rule that proves the claim. Required.
	Params   []Param         // Protocol parameters, sorted by key, each key once.
	Input    Input           // The value domain.
	Claim    Claim           // The guarantee promised to every client.
	Batch    Batch           // How many reports are shuffled together.
	Slots    Slots           // How messages travel.
	Epochs   Epochs          // When clients report.
	Clients  Clients         // How the first relay limits clients.
	Relays   []Party         // In the order in which a report visits them. 1 to 8; empty in a draft.
	Verifier Party           // Who decrypts the batches. Empty in a draft.
	KEM      KEM             // Required.
	Stream   *StreamPosition // The task's position in a stream; nil for a single task.
	Noise    *Noise          // Dummies that every relay adds to every batch; nil for none.
}

// Param is one protocol parameter.
type Param struct {
	Key   string              // Lower-case name, "k" or "gamma".
	Value randomizer.Rational // Exact value.
}

// Input is the domain of one client's value.
type Input struct {
	// Range of a real value, Lo < Hi; 0 and 1 for counts and labels, -1 and 1 for vectormean.
	Lo, Hi randomizer.Rational
	// Entries of the answer: bins or categories of a histogram, 2..2³²-1; coordinates of a vector, 1..2²⁰. For
	// strings, the most bytes of a text, 1..128. Otherwise 0.
	Bins   uint64
	Labels bool // The value is a category 0..Bins-1 instead of a real number; without Clip.
	Clip   bool // Values outside the range are moved to its nearer end; otherwise they are errors.
}

// maxEntries is the most entries of an answer that a verifier holds, and the most coordinates of a vector. The format
// allows histograms with more bins, but their memory would be unbounded.
const maxEntries = 1 << 20

// maxLength is the most bytes of a text.
const maxLength = 128

// MaxRelays is the most relays of a task.
const MaxRelays = 8

// CheckEntries returns an error if the answer has more entries than a verifier holds.
func (in Input) CheckEntries() error {
	if in.Bins > maxEntries {
		return invalid.Field("input.bins", strconv.FormatUint(in.Bins, 10),
			"at most "+strconv.Itoa(maxEntries)+" for one verifier to hold")
	}
	return nil
}

// Width returns Hi - Lo.
func (in Input) Width() float64 { return in.Hi.Float64() - in.Lo.Float64() }

// Claim is the (ε, δ) promised for one epoch.
type Claim struct {
	Epsilon    Epsilon    // Required.
	Delta      Delta      // Required.
	Total      Total      // Over all epochs of the task together.
	Assumption Assumption // Which other clients must be honest.
}

// Total is the (ε, δ) promised over all epochs of a task together. The zero value promises only the sum of the
// epochs' claims.
type Total struct {
	Epsilon Epsilon
	Delta   Delta
}

// IsZero reports whether there is no claim over all epochs.
func (t Total) IsZero() bool { return t == Total{} }

// Assumption is what a claim assumes about the other clients.
type Assumption uint8

// The assumptions. Each also needs one relay that does not collude with the verifier.
const (
	MinHonest  Assumption = iota // Batch.Min of the clients of a batch are honest.
	NoneHonest                   // No other client needs to be honest: the relays' dummies suffice.
)

// assumptions holds the words used on the wire.
var assumptions = []string{MinHonest: "min-honest", NoneHonest: "none"}

// String returns the word used on the wire.
func (a Assumption) String() string {
	if int(a) < len(assumptions) {
		return assumptions[a]
	}
	return ""
}

// Parse parses the word used on the wire.
func (a *Assumption) Parse(word string) error {
	for i, known := range assumptions {
		if word == known {
			*a = Assumption(i)
			return nil
		}
	}
	return invalid.Field("claim.assumption", strconv.Quote(word), "min-honest or none")
}

// Batch says how many reports are shuffled together.
type Batch struct {
	Size   uint64              // n, submissions in a sealed batch. ≥ 1.
	Honest randomizer.Rational // h, share of them assumed honest. In (0, 1].
	Min    uint64              // n_min, honest messages the guarantee needs. In 1..Size; ⌊h·n⌋ by default.
}

// Slots says how messages travel.
type Slots struct {
	Padding      Padding // Required.
	Lanes        uint64  // Groups of slots that are shuffled and limited separately. 1..65535; times PerLane up to 2¹⁸.
	PerLane      uint64  // B, slots of one client in one lane. 1..262144.
	MessageBytes uint64  // Size of one protocol message. 1..1024.
	// Padding none: a lane of a batch has at most Average·Batch.Size slots; a relay destroys a batch with more. Below
	// PerLane. 0 stands for PerLane, also under padding full.
	Average uint64
}

// MostPerLane returns the most slots of one client in each of a number of lanes, without a bound on their average.
func (t *Task) MostPerLane(lanes uint64) uint64 { return min(maxSlots/lanes, maxLane/t.Batch.Size) }

// MostSlots returns the most slots of clients in a lane of a batch. By the limits of tasks it is at most 2³⁶.
func (t *Task) MostSlots() uint64 {
	if t.Slots.Average > 0 {
		return t.Batch.Size * t.Slots.Average
	}
	return t.Batch.Size * t.Slots.PerLane
}

// Message is the content of one slot: a protocol's message, or a cover instead.
type Message struct {
	Cover bool
	Body  []byte // MessageBytes bytes. For a cover: empty when sealing, zeros when opened.
}

// Epochs says when clients report: Count epochs of Length seconds from Start.
type Epochs struct {
	Start  uint64 // Unix time, seconds.
	Length uint64 // Seconds. 1..31622400 (366 days).
	Count  uint64 // 1..MaxEpochs.
}

// MaxEpochs is the most epochs of a task.
const MaxEpochs = 1 << 16

// Clients says how the first relay limits clients.
type Clients struct {
	Kind   ClientKind // Required.
	Quota  uint64     // Reports per network and epoch (address), 1..65535; 1 for tokens: each is spent once.
	Issuer Party      // Issues tokens, and decides how many each person gets. Zero for addresses.
	// The origins of pages that may report, as browsers send them, in ascending order, each once; a leading *.
	// matches all names below a domain. Empty for any. At most 64. A program, which sends no origin, may always
	// report.
	Origins []string
}

// Party is a relay, the verifier or the issuer of tokens.
type Party struct {
	URL     string      // Base URL, without a trailing slash. The verifier's may be empty: it only pulls.
	SignKey SignKey     // The key that signs for the party.
	KeyList KeyListHash // SHA-256 of its key list, one entry per epoch: HPKE keys, or ids of token keys.
}

// Param returns the parameter with the given key, and whether it exists.
func (t *Task) Param(key string) (randomizer.Rational, bool) {
	for _, p := range t.Params {
		if p.Key == key {
			return p.Value, true
		}
	}
	return randomizer.Rational{}, false
}

// VerifierHop returns the hop index of the verifier; relays are hops 0 to VerifierHop()-1.
func (t *Task) VerifierHop() int { return len(t.Relays) }

// Party returns the party at a hop.
func (t *Task) Party(hop int) Party {
	if hop < len(t.Relays) {
		return t.Relays[hop]
	}
	return t.Verifier
}

// End returns the Unix time at which epoch ends.
func (e Epochs) End(epoch uint64) uint64 { return e.Start + (epoch+1)*e.Length }

// Over returns the Unix time at which the last epoch ends.
func (e Epochs) Over() uint64 { return e.Start + e.Count*e.Length }

// At returns the epoch that contains the Unix time now; ok is false if there is none.
func (e Epochs) At(now uint64) (epoch uint64, ok bool) {
	if now < e.Start {
		return 0, false
	}
	epoch = (now - e.Start) / e.Length
	return epoch, epoch < e.Count
}
