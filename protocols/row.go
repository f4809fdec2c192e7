package protocols

import (
	"slices"

	"github.com/doona-dp/doona/wire/task"
)

// Protocol is a row in the table of protocols, which package registry holds.
//
// Clients call only ProtocolName and Open. The linker drops the rest from doona.wasm, so calibration adds nothing to a
// page's download. Methods have pointer receivers, because the linker would include value receivers twice. ProtocolName
// is not called Name, because that would link the Name methods of the standard library's types.
type Protocol interface {
	// ProtocolName returns the protocol's name in tasks.
	ProtocolName() string

	// Open returns the mechanism of a task. It checks the parameters but not the privacy claim; [Mechanism.CheckClaim]
	// does.
	Open(t *task.Task) (Mechanism, error)

	// Calibrate sets the parameters and slots of a task whose query, input, claim, batch and rule are set. It also sets
	// the rule if [Row.Rule] is empty. It keeps parameters that the task already names, if the protocol has a choice.
	Calibrate(t *task.Task) error

	// Row describes the protocol for the planner and for the tables in documents.
	Row() Row
}

// NoiseOptions says how much noise a task owner wants relays to add.
type NoiseOptions struct {
	MaxDummies   float64 // Largest expected number of dummies per relay and batch; 0 for no bound.
	LocalEpsilon float64 // ε₀ in (0, 64] that a client keeps if all relays collude; 0: it keeps no protection.
	Relays       int     // Number of relays that add dummies, for a task that names none yet; 0: 2.
	Gaussian     bool    // Leave out Laplace tables of cells, which may cost more beside other tasks under one total.
}

// Row describes a protocol for the planner and for the tables in documents.
type Row struct {
	Queries    []task.Query // Queries that the protocol answers. At least one.
	Default    []task.Query // Those queries for which it is the default protocol.
	Rule       string       // Privacy rule of new tasks that name no rule. Empty: Calibrate chooses one.
	NeedsFirst bool         // The claim needs an honest first relay under every padding, if clients send several slots.
	ClientsToo bool         // Either clients ([Protocol.Calibrate]) or relays (CalibrateRelayNoise) can add the noise.
	Sparse     bool         // The protocol accepts a vector only if at most one coordinate is not 0.
	Costs      []Case       // Example tasks for docs/costs.md, which sets the numbers of clients. At least one.
	Trials     []Case       // Small example tasks, simulated for docs/simulations.md. At least one.
	CostParam  *CostParam   // Parameter that a planner may vary; nil: Calibrate sets all parameters.

	// CalibrateRelayNoise replaces [Protocol.Calibrate] if relays add the noise. A task that claims a total over all
	// epochs may leave out the claim of one epoch, which it then derives. nil: relays cannot add noise.
	CalibrateRelayNoise func(t *task.Task, d NoiseOptions) error
}

// CostParam is a whole-numbered parameter that trades the cost of a report against the error of the answer.
type CostParam struct {
	Key    string
	Values func(entries uint64) []uint64 // Values to try, by rising cost, if the answer has this many entries.
	Best   bool                          // Calibrate, if left free, chooses the value of least error and highest cost.
}

// Doublings returns the powers of two below most, and then most.
func Doublings(most uint64) (out []uint64) {
	for v := uint64(1); v < most; v *= 2 {
		out = append(out, v)
	}
	return append(out, most)
}

// Paddings returns the paddings that the protocol's tasks may have: those of the examples in Costs. The empty padding
// means that the protocol leaves no choice.
func (r Row) Paddings() (out []task.Padding) {
	for _, c := range r.Costs {
		if !slices.Contains(out, c.Padding) {
			out = append(out, c.Padding)
		}
	}
	return out
}

// Case describes an example task of a protocol.
type Case struct {
	Query   task.Query
	Hi      float64      // Upper end of the values' range, which starts at 0. 0 means 1.
	Bins    uint64       // Number of a histogram's labels.
	Dim     uint64       // Number of coordinates, for query vector or vectormean.
	Length  uint64       // Largest length of a text in bytes, for query strings.
	Params  []task.Param // Whole-numbered parameters that calibration must keep.
	Padding task.Padding // Padding of lanes with covers. Empty: the protocol's default.
	Lanes   uint64       // Number of lanes. 0: the protocol's default.
	Users   uint64       // Number n of clients. 0 in [Row.Costs], where the document sets it.
	Epsilon float64      // Claimed ε. 0 means 1.
}
