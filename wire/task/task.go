// Package task defines the document that all parties agree on: the query, how values are randomized, which guarantee is
// promised, and which parties take part.
//
// The SHA-256 of a task's canonical form ([Task.Canonical]) identifies the task. The canonical form is msgpack arrays
// in a fixed order, with the shortest encodings and no floating-point numbers, so Go and TypeScript compute the same
// hash. Package [github.com/doona-dp/doona/wire/taskfile] has the JSON form, the hash and the owner's signature. It is
// separate because this package is linked into doona.wasm, where hashing and package fmt would double the download.
package task

import (
	"strconv"

	"github.com/doona-dp/doona/internal/invalid"
	"github.com/doona-dp/doona/randomizer"
)

// Version is the version of the task and of the wire format. It is in every label that parties hash, sign or encrypt
// with.
const Version = 1

// Padding says how many slots a client sends (docs/SPEC.md).
type Padding string

// The possible paddings.
const (
	PaddingFull Padding = "full" // Each client sends exactly Slots.PerLane slots in every lane.
	PaddingNone Padding = "none" // Each client sends one slot per message, and at least one slot in every lane.
)

// ClientKind says how a first relay tells clients apart, to enforce their quota.
type ClientKind string

// The kinds of clients.
const (
	ClientToken   ClientKind = "token"   // Privacy Pass tokens of an independent issuer.
	ClientAddress ClientKind = "address" // A keyed hash of the network address; it does not resist Sybil attacks.
)

// maxSlots is the largest number of slots of one client over all lanes. With it, no size overflows: a submission stays
// below 2³² bytes under every KEM and number of relays.
const maxSlots = 1 << 18

// KEM is a key encapsulation mechanism, which seals a message for one hop.
type KEM string

// The key encapsulation mechanisms.
const (
	KEMX25519         KEM = "x25519"         // DHKEM(X25519, HKDF-SHA256)
	KEMMLKEM768X25519 KEM = "mlkem768x25519" // hybrid, post-quantum
	KEMMLKEM768       KEM = "mlkem768"       // post-quantum
)

// Task is the document that all parties agree on. The zero value is not valid; see [Task.Validate].
type Task struct {
	Name     string          // For people. Required. 1 to 64 printable ASCII characters.
	Query    Query           // Required.
	Protocol string          // Name in the protocol registry. Required.
	Rule     string          // The accountant's rule that proves the claim. Required.
	Params   []Param         // Protocol parameters, sorted by key, each key once.
	Input    Input           // The value domain.
	Claim    Claim           // The guarantee promised to every client.
	Batch    Batch           // How many reports are shuffled together.
	Slots    Slots           // How many messages each client sends, and of which size.
	Epochs   Epochs          // When clients report.
	Clients  Clients         // How the first relay limits what each client sends.
	Relays   []Party         // In the order in which a report passes them. 1 to 8; empty in a draft.
	Verifier Party           // The party that decrypts the batches. Empty in a draft.
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
	// The range of a real value, Lo < Hi. It is 0 to 1 for counts and labels, and -1 to 1 for vectormean.
	Lo, Hi randomizer.Rational
	// The number of entries of the answer. A histogram has 2..2³²-1 bins or categories; a vector has 1..2²⁰
	// coordinates. For strings, it is the largest number of bytes of a text, 1..128. Otherwise 0.
	Bins   uint64
	Labels bool // The value is a category 0..Bins-1, not a real number; then Clip is false.
	Clip   bool // The client moves a value outside the range to the nearer end; otherwise it is an error.
}

// maxEntries is the largest number of entries of an answer that a verifier can hold, and of coordinates of a vector.
// The format allows histograms with more bins, but then a verifier would need unlimited memory.
const maxEntries = 1 << 20

// maxLength is the largest number of bytes of a text in a strings query.
const maxLength = 128

// MaxRelays is the largest number of relays of a task.
const MaxRelays = 8

// CheckEntries returns an error if the answer has more entries than a verifier can hold.
func (in Input) CheckEntries() error {
	if in.Bins > maxEntries {
		return invalid.Field("input.bins", strconv.FormatUint(in.Bins, 10),
			"at most "+strconv.Itoa(maxEntries)+" for one verifier to hold")
	}
	return nil
}

// Width returns Hi - Lo.
func (in Input) Width() float64 { return in.Hi.Float64() - in.Lo.Float64() }

// Claim is the (ε, δ) that the task promises for one epoch.
type Claim struct {
	Epsilon    Epsilon    // Required.
	Delta      Delta      // Required.
	Total      total      // (ε, δ) over all epochs of the task together.
	Assumption assumption // Which other clients must be honest for the claim to hold.
}

// total is the (ε, δ) that the task promises over all its epochs together. The zero value promises only the sum of the
// epochs' claims.
type total struct {
	Epsilon Epsilon
	Delta   Delta
}

// IsZero reports whether the task makes no claim over all epochs.
func (t total) IsZero() bool { return t == total{} }

// assumption is what a claim assumes about the other clients.
type assumption uint8

// The possible assumptions. Each also needs one relay that does not collude with the verifier.
const (
	MinHonest  assumption = iota // Batch.Min of the clients of a batch are honest.
	NoneHonest                   // No other client needs to be honest: the relays' dummies suffice.
)

// assumptions maps each assumption to its word in the canonical and the JSON form.
var assumptions = []string{MinHonest: "min-honest", NoneHonest: "none"}

// String returns the assumption's word in the canonical and the JSON form, or "" for an unknown one.
func (a assumption) String() string {
	if int(a) < len(assumptions) {
		return assumptions[a]
	}
	return ""
}

// Parse sets a from its word in the canonical and the JSON form.
func (a *assumption) Parse(word string) error {
	for i, known := range assumptions {
		if word == known {
			*a = assumption(i)
			return nil
		}
	}
	return invalid.Field("claim.assumption", invalid.Quote(word), "min-honest or none")
}

// Batch says how many reports are shuffled together.
type Batch struct {
	Size   uint64              // n, number of submissions in a sealed batch. ≥ 1.
	Honest randomizer.Rational // h, the fraction of these that is assumed honest. In (0, 1].
	Min    uint64              // n_min, number of honest messages that the claim needs. In 1..Size; ⌊h·n⌋ by default.
}

// Slots says how many messages each client sends, and of which size.
type Slots struct {
	Padding      Padding // Required.
	Lanes        uint64  // Groups of slots, shuffled and limited apart. 1..65535; times PerLane at most 2¹⁸.
	PerLane      uint64  // B, the number of slots of one client in one lane. 1..262144.
	MessageBytes uint64  // Size in bytes of one protocol message. 1..1024.
	// Only under padding none: a lane of a batch may have at most Average·Batch.Size slots. A relay destroys a batch
	// with more. Below PerLane. 0 means PerLane, and is required under padding full.
	Average uint64
}

// MostPerLane returns the largest number of slots of one client in each lane that a task with this number of lanes may
// have. It ignores Slots.Average.
func (t *Task) MostPerLane(lanes uint64) uint64 { return min(maxSlots/lanes, maxLane/t.Batch.Size) }

// MostSlots returns the largest number of clients' slots in one lane of a batch. By the limits of tasks it is at most
// 2³⁶.
func (t *Task) MostSlots() uint64 {
	if t.Slots.Average > 0 {
		return t.Batch.Size * t.Slots.Average
	}
	return t.Batch.Size * t.Slots.PerLane
}

// Message is the content of one slot: a protocol's message, or a cover.
type Message struct {
	Cover bool
	Body  []byte // MessageBytes bytes. A cover's is empty before sealing, and zeros after opening.
}

// Epochs says when clients report: Count epochs of one length from Start.
type Epochs struct {
	Start  uint64 // Unix time, seconds.
	Length Length // 1..31622400 seconds (366 days), or Month.
	Count  uint64 // 1..MaxEpochs.
	Cap    Cap    // Limits the reports of one browser; zero for one report in every epoch.
	Pace   Cap    // At most Pace.Reports in each block of Pace.Window epochs; zero for none. Only with a Cap.
	Events Events // Limits a browser's reports of anything but a default; zero for no limit.
}

// MaxEpochs is the most epochs of a task.
const MaxEpochs = 1 << 16

// Clients says how the first relay limits clients.
type Clients struct {
	Kind   ClientKind // Required.
	Quota  uint64     // Reports per network and epoch for address, 1..65535. 1 for token: it is spent once.
	Issuer Party      // Issues tokens, and decides how many each person gets. Zero for address.
	// Origins of the pages that may report, as browsers send them, in ascending order, each once. A leading *. matches
	// all names below a domain. At most 64; empty allows any. A program sends no origin, and may always report.
	Origins []string
}

// Party is a relay, the verifier or the issuer of tokens.
type Party struct {
	URL     string      // Base URL, without a trailing slash. The verifier's may be empty: nobody asks the verifier.
	SignKey SignKey     // The key that signs for the party.
	KeyList KeyListHash // SHA-256 of the party's key list, with one entry per epoch: HPKE keys, or ids of token keys.
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

// Party returns the party at a hop: a relay, or the verifier at the last hop.
func (t *Task) Party(hop int) Party {
	if hop < len(t.Relays) {
		return t.Relays[hop]
	}
	return t.Verifier
}

// Begin returns the Unix time in seconds at which an epoch begins.
func (e Epochs) Begin(epoch uint64) uint64 { return uint64(e.Length.Add(int64(e.Start), int64(epoch))) }

// End returns the Unix time in seconds at which an epoch ends.
func (e Epochs) End(epoch uint64) uint64 { return e.Begin(epoch + 1) }

// Over returns the Unix time in seconds at which the last epoch ends.
func (e Epochs) Over() uint64 { return e.Begin(e.Count) }

// maxTime is later than any task.
const maxTime = 1 << 62

// At returns the epoch that contains the Unix time now, in seconds. ok is false if no epoch does.
func (e Epochs) At(now uint64) (epoch uint64, ok bool) {
	if now < e.Start {
		return 0, false
	}
	epoch = uint64(e.Length.Between(int64(e.Start), int64(min(now, maxTime))))
	return epoch, epoch < e.Count
}
