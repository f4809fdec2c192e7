package protocols

import (
	"slices"

	"github.com/doona-dp/doona/wire/task"
)

// Protocol is a row of the one table of protocols, package registry.
//
// Clients call only ProtocolName and Open. The linker drops the rest from doona.wasm, so calibration adds nothing to
// a page's download. Methods have pointer receivers, because value receivers would be linked twice. The method is not
// called Name, because that would link the Name methods of the standard library's types.
type Protocol interface {
	// ProtocolName returns the protocol's name in tasks.
	ProtocolName() string

	// Open returns the mechanism of a task. It checks the parameters but not the claim: see [Mechanism.CheckClaim].
	Open(t *task.Task) (Mechanism, error)

	// Calibrate sets the parameters and slots of a task whose query, input, claim, batch and rule are set. It sets
	// the rule too if [Row.Rule] is empty. It keeps parameters that the task already names, if the protocol has a
	// choice.
	Calibrate(t *task.Task) error

	// Row returns what the planner and the tables in documents need to know of the protocol.
	Row() Row
}

// NoiseOptions says how much noise an owner wants relays to add.
type NoiseOptions struct {
	MaxDummies   float64 // Most dummies per relay and batch, on average; 0 for no bound.
	LocalEpsilon float64 // ε₀, in (0, 64], that remains if all relays collude; 0: no protection remains.
}

// Row describes a protocol to the planner and to the tables in documents.
type Row struct {
	Queries    []task.Query // Queries that it answers. At least one.
	Default    []task.Query // Those of them for which it is the default protocol.
	Rule       string       // Rule of new tasks that name none. Empty: Calibrate chooses.
	NeedsFirst bool         // The claim needs an honest first relay under every padding. Else see registry.TrustOf.
	ClientsToo bool         // With CalibrateRelayNoise: clients may add the noise instead, by [Protocol.Calibrate].
	Sparse     bool         // Of vectors it takes only those with at most one coordinate that is not 0.
	Costs      []Case       // Tasks of docs/costs.md, for the document's numbers of clients. At least one.
	Trials     []Case       // Tasks of docs/simulations.md: small ones. At least one.
	CostParam  *CostParam   // Parameter that a planner may vary; nil: Calibrate alone decides.

	// CalibrateRelayNoise replaces [Protocol.Calibrate] if relays add the noise. A task may claim a total over all
	// epochs and leave out the claim of one epoch, which it then derives. nil: relays add no noise.
	CalibrateRelayNoise func(t *task.Task, d NoiseOptions) error
}

// CostParam is a whole-numbered parameter that trades the cost of a report for the error of the answer.
type CostParam struct {
	Key    string
	Values func(entries uint64) []uint64 // Values to try for an answer with this many entries, by rising cost.
	Best   bool                          // Calibrate's own choice has the least error and costs most.
}

// Doublings returns 1, 2, 4, …, ending with most.
func Doublings(most uint64) (out []uint64) {
	for v := uint64(1); v < most; v *= 2 {
		out = append(out, v)
	}
	return append(out, most)
}

// Paddings returns the paddings that a task of the protocol may have: those of its examples. The empty padding stands
// for no choice.
func (r Row) Paddings() (out []task.Padding) {
	for _, c := range r.Costs {
		if !slices.Contains(out, c.Padding) {
			out = append(out, c.Padding)
		}
	}
	return out
}

// Case is an example task.
type Case struct {
	Query   task.Query
	Hi      float64      // The range is 0 to Hi. 0 means 1.
	Bins    uint64       // Labels of a histogram.
	Dim     uint64       // Coordinates of a vector or vectormean.
	Length  uint64       // Largest number of bytes of a text.
	Params  []task.Param // Parameters to keep: whole numbers.
	Padding task.Padding // Empty: the protocol's default.
	Lanes   uint64       // 0: the protocol's default.
	Users   uint64       // n. 0 in [Row.Costs].
	Epsilon float64      // 0 means 1.
}
