package planner

import (
	"math"
	"math/rand/v2"
	"slices"

	"github.com/doona-dp/doona/accountant/compose"
	"github.com/doona-dp/doona/accountant/relaynoise"
	"github.com/doona-dp/doona/internal/invalid"
	"github.com/doona-dp/doona/protocols"
	"github.com/doona-dp/doona/randomizer"
	"github.com/doona-dp/doona/wire/handover"
	"github.com/doona-dp/doona/wire/onion"
	"github.com/doona-dp/doona/wire/task"
)

// withRelays returns a copy of a task with the given number of relays, or the task itself if it names its relays.
func withRelays(t *task.Task, hops int) *task.Task {
	if len(t.Relays) > 0 {
		return t
	}
	draft := *t
	draft.Relays = make([]task.Party, hops)
	return &draft
}

// CheckServable returns an error if a client's report would be larger than relays accept. A task without relays
// counts as having hops relays.
func CheckServable(t *task.Task, hops int) error { return handover.CheckServable(withRelays(t, hops)) }

// Cost returns what a client with the worst-case value sends: the expected number of messages, without covers, and the
// size of its report in bytes, through hops relays. With padding none, the size is the expected size.
func Cost(t *task.Task, m protocols.Mechanism, hops int) (messages, bytes float64, err error) {
	if messages, err = expectedMessages(m); err != nil {
		return 0, 0, err
	}
	draft := *withRelays(t, hops)
	layout, err := onion.NewLayout(&draft)
	if err != nil {
		return 0, 0, err
	}
	bytes = float64(layout.MaxBody())
	if lanes := float64(t.Slots.Lanes); t.Slots.Padding == task.PaddingNone && t.Slots.PerLane > 1 {
		// A report's size is linear in its slots, except for an array's header of up to 5 bytes.
		draft.Slots.PerLane = 1
		least := float64(layout.MaxBody())
		bytes = least + (bytes-least)*(messages-lanes)/(float64(t.Slots.PerLane-1)*lanes)
	}
	return messages, bytes, nil
}

// expectedMessages returns the expected number of messages of a client with the worst-case value. If the protocol does
// not know the number, expectedMessages returns the mean over 5000 draws, which are the same for equal mechanisms: a
// limit at a plan's own number must keep the plan.
func expectedMessages(m protocols.Mechanism) (float64, error) {
	if messages := protocols.CapabilitiesOf(m).Messages; messages != nil {
		return messages(), nil
	}
	const draws = 5000
	seeded := rand.NewChaCha8([32]byte{})
	fill := func(random []byte) { _, _ = seeded.Read(random) } // It never fails.
	src, sent, worst := randomizer.NewSourceFrom(fill), 0, m.Worst().Value
	for range draws {
		lanes, err := m.Randomize(src, worst)
		if err != nil {
			return 0, err
		}
		for _, messages := range lanes {
			sent += len(messages)
		}
	}
	return float64(sent) / draws, nil
}

// Dummies returns the mean number of dummies that one relay adds to a batch. It is 0 if relays add no noise.
func Dummies(t *task.Task) (float64, error) {
	if t.Noise == nil {
		return 0, nil
	}
	if t.Noise.Kind == task.NoisePool {
		return float64(t.Noise.Pool), nil
	}
	laws, err := relaynoise.NewLaws(t.Noise)
	if err != nil {
		return 0, err
	}
	return laws.Dummies(), nil
}

// worstCase returns the variance of each entry of the answer, in the query's units squared, for a full batch of clients
// with the worst-case value.
func worstCase(t *task.Task, m protocols.Mechanism, hops int) ([]float64, error) {
	_, variance, err := m.Exact(m.Worst().Value)
	if err != nil {
		return nil, err
	}
	scale := protocols.Scale(t.Query, t.Batch.Size)
	added := dummyVariance(withRelays(t, hops), m)
	for j := range variance {
		variance[j] *= float64(t.Batch.Size)
		if added != nil {
			variance[j] += added[j]
		}
		variance[j] *= scale * scale
	}
	return variance, nil
}

func mean(values []float64) float64 {
	total := 0.0
	for _, v := range values {
		total += v
	}
	return total / float64(len(values))
}

// normal95 is half the width of a 95 % interval of a normal variable, in standard deviations.
const normal95 = 1.959963984540054

// centralError returns the root mean square error of a curator who sees all values, by the better of two mechanisms:
// the discrete Laplace mechanism [GRS12], for a single epoch only, and the Gaussian [BW18]. Both use the claim of one
// epoch, or the total of all epochs if the owner asked for one.
//
// [GRS12]: https://arxiv.org/abs/0811.2841
// [BW18]: https://arxiv.org/abs/1805.06530
func centralError(t *task.Task, q Query, sparse bool) float64 {
	absolute, euclidean := 1.0, 1.0 // How far one client can move the answer, in the 1-norm and 2-norm, in units.
	unit := t.Input.Hi.Float64() - t.Input.Lo.Float64()
	switch info := t.Query.Info(); {
	case info.Shape == task.PerBin || info.Shape == task.PerText:
		absolute, euclidean, unit = 2, math.Sqrt2, 1
	case info.Ball():
		absolute, euclidean, unit = 2*math.Sqrt(float64(t.Input.Bins)), 2, 1
	case info.Shape == task.PerVector:
		moved := float64(t.Input.Bins) // Number of coordinates that one client can change.
		if sparse && moved > 1 {
			moved, unit = 2, max(math.Abs(t.Input.Lo.Float64()), math.Abs(t.Input.Hi.Float64()))
		}
		absolute, euclidean = moved, math.Sqrt(moved)
	case info.YesNo():
		unit = 1
	}
	eps, delta, epochs := t.Claim.Epsilon.Value(), t.Claim.Delta.Value(), 1.0
	if q.TotalEpsilon > 0 {
		eps, delta, epochs = q.TotalEpsilon, q.TotalDelta, float64(t.MostCopies(q.Epochs))
	}
	least := euclidean * math.Sqrt(epochs/compose.GaussianSquare(eps, delta))
	if epochs == 1 {
		least = min(least, laplaceError(eps/absolute, t.Query.Info()))
	}
	return least * unit * protocols.Scale(t.Query, t.Batch.Size)
}

// laplaceError returns the standard deviation of noise with Pr ∝ e^{-s|x|}. The noise is on whole numbers if answers
// are.
func laplaceError(s float64, query task.QueryInfo) float64 {
	if !query.YesNo() && query.Shape != task.PerBin && query.Shape != task.PerText {
		return math.Sqrt2 / s
	}
	return 1 / (math.Sqrt2 * math.Sinh(s/2))
}

// shift returns how far one malicious client can move an entry of the answer, in the query's units. If the protocol
// does not know it, shift compares simulated attacks with an honest client's effect on the estimate.
func shift(t *task.Task, m protocols.Mechanism) (float64, error) {
	scale := protocols.Scale(t.Query, t.Batch.Size)
	can := protocols.CapabilitiesOf(m)
	if can.Reach != nil {
		return can.Reach() * scale, nil
	}
	if can.Attack == nil {
		return 0, invalid.Field("protocol", t.Protocol, "a protocol with simulated attacks")
	}
	most, src, honest := 0.0, randomizer.NewSource(), modest(t)
	own, _, err := m.Exact(honest)
	if err != nil {
		return 0, err
	}
	for _, attack := range []string{protocols.AttackMax, protocols.AttackOneCoordinate} {
		lanes, err := can.Attack(src, attack, 0, honest)
		if err != nil {
			continue // The protocol does not have this attack.
		}
		a := m.Aggregate()
		for lane, messages := range lanes {
			for _, message := range messages {
				if err := a.Add(lane, message); err != nil {
					return 0, err
				}
			}
		}
		a.AddUsers(1)
		for j, total := range a.Total() {
			most = max(most, math.Abs(total-own[j]))
		}
	}
	return most * scale, nil
}

// modest returns the value that is farthest from all attacks: the lowest, or the last bin.
func modest(t *task.Task) []float64 {
	switch info := t.Query.Info(); {
	case t.Input.Labels:
		return []float64{float64(t.Input.Bins - 1)}
	case info.Shape == task.PerBin:
		return []float64{t.Input.Hi.Float64()}
	case info.Ball():
		out := make([]float64, t.Input.Bins)
		out[0] = -1
		return out
	case info.Shape == task.PerVector:
		return slices.Repeat([]float64{t.Input.Lo.Float64()}, int(t.Input.Bins))
	}
	return []float64{t.Input.Lo.Float64()}
}
