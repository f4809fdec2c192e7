package protocols

import (
	"slices"

	"github.com/doona-dp/doona/wire/task"
)

// Protocol is a row of the one table of protocols, package registry.
//
// Clients call ProtocolName and Open alone, and only what is called is linked into doona.wasm: choosing
// the parameters of new tasks costs its download nothing. Methods have pointer receivers, as others
// would be linked twice; a method Name would bring that of the standard library's types.
type Protocol interface {
	// ProtocolName returns the protocol's name in tasks.
	ProtocolName() string

	// Open returns the mechanism of a task, whose parameters it checks, and not its claim:
	// [Mechanism.CheckClaim].
	Open(t *task.Task) (Mechanism, error)

	// Calibrate sets the parameters and slots of a task whose query, input, claim, batch and rule are
	// set; the rule too, where [Row.Rule] names none. Parameters that the task already names are kept
	// where the protocol has a choice.
	Calibrate(t *task.Task) error

	// Row says what the planner and the tables in documents need to know of the protocol.
	Row() Row
}

// Dilution is what an owner asks of noise that relays add.
type Dilution struct {
	MaxDummies   float64 // The most per relay and batch on average; 0 for no bound.
	LocalEpsilon float64 // ε₀, in (0, 64], that remains if all relays collude; 0: nothing remains.
}

// Row is what the planner and the tables in documents need to know of a protocol.
type Row struct {
	Queries []task.Query // The queries it answers. At least one.
	Default []task.Query // Those of them that it answers where a new task names no protocol.
	Rule    string       // The rule of new tasks that name none. Empty: Calibrate chooses.
	First   bool         // The claim needs an honest first relay under every padding. Else see registry.TrustOf.
	Either  bool         // Of one with Dilute: clients may add the noise as well, by [Protocol.Calibrate].
	Sparse  bool         // Of vectors it takes those alone with at most one coordinate that is not 0.
	Costs   []Case       // The tasks of docs/costs.md, for numbers of users that the document has. At least one.
	Trials  []Case       // The tasks of docs/simulations.md: small ones. At least one.
	Dial    *Dial        // What a planner may turn; nil: Calibrate alone decides.

	// Dilute is [Protocol.Calibrate] of a protocol whose noise relays add, with what an owner asks of the noise. The
	// claim of an epoch may be left out where there is one of all: it is derived then. nil: relays add none.
	Dilute func(t *task.Task, d Dilution) error
}

// Dial is a whole-numbered parameter that trades what a report costs for the error of the answer.
type Dial struct {
	Key    string
	Values func(entries uint64) []uint64 // What to try, for an answer with so many entries, by rising cost.
	Best   bool                          // What Calibrate chooses has less error than all of them, and costs most.
}

// Doublings returns 1, 2, 4, … up to a limit, which is the last.
func Doublings(most uint64) (out []uint64) {
	for v := uint64(1); v < most; v *= 2 {
		out = append(out, v)
	}
	return append(out, most)
}

// Paddings returns the paddings that a task of the protocol may have: those of its examples. The empty one stands
// for no choice.
func (r Row) Paddings() (out []task.Padding) {
	for _, c := range r.Costs {
		if !slices.Contains(out, c.Padding) {
			out = append(out, c.Padding)
		}
	}
	return out
}

// Case is an example of a task.
type Case struct {
	Query   task.Query
	Hi      float64      // The range is 0 to Hi. 0 means 1.
	Bins    uint64       // Labels of a histogram.
	Dim     uint64       // Coordinates of a vector or vectormean.
	Length  uint64       // Most bytes of a text.
	Params  []task.Param // To keep: whole numbers.
	Padding task.Padding // Empty: the protocol's default.
	Lanes   uint64       // 0: the protocol's default.
	Users   uint64       // n. 0 in [Row.Costs].
	Epsilon float64      // 0 means 1.
}
