package audit

import (
	"math"
	"slices"

	"github.com/doona-dp/doona/accountant/compose"
	"github.com/doona-dp/doona/planner"
	"github.com/doona-dp/doona/randomizer"
	"github.com/doona-dp/doona/shufflerclient"
	"github.com/doona-dp/doona/wire/task"
)

// throughout is an audit of all epochs of a task together, whose claim covers the reports that its cap allows, or the
// events that its allowance does. The victim wants to report in every epoch. That it reports is public: each view has
// the number of reports.
type throughout struct {
	device func(limit task.Epochs) device // nil: [cappedDevice].
	draw   func(*deployment) drawing      // How the honest relay draws the dummies; nil: anew in each epoch.
	look   func(epochs []epochView) (view string, score float64)
	later  []float64 // What the victim holds after the first epoch; nil: the same.
}

// at returns what the victim holds in an epoch, given its value in the first.
func (o *throughout) at(epoch int, first []float64) []float64 {
	if epoch > 0 && o.later != nil {
		return o.later
	}
	return first
}

// device decides what the victim sends in an epoch: how many reports, of which value. known is a value that the
// attacker knows.
type device func(epoch int, value, known []float64) (reports int, of []float64)

// drawing returns the dummies of an epoch.
type drawing func(src *randomizer.Source, epoch int) ([]uint64, error)

// epochView is what the verifier sees of an epoch: how many messages have the victim's one value more than the other,
// besides those of clients whose values it knows, and the number of reports.
type epochView struct {
	difference, reports int
	reported            bool // The victim reported.

	loss float64 // The logarithm of how much likelier the messages are in the first world, by the task's noise.
}

// cappedDevice returns a device that keeps a task's cap by the ledger of the Go client.
func cappedDevice(limit task.Epochs) device {
	ledger := &shufflerclient.Ledger{}
	return func(epoch int, value, _ []float64) (int, []float64) {
		return spend(ledger, limit, epoch), value
	}
}

// spend returns 1 if the ledger allows a report in the epoch, else 0. Its budget is large: only the cap refuses.
func spend(ledger *shufflerclient.Ledger, limit task.Epochs, epoch int) int {
	cost := compose.Spend{Epsilon: 1, Delta: 1e-9}
	price := shufflerclient.Price{First: cost, Reports: 1, All: cost}
	limit.Length = 1
	budget := shufflerclient.Budget{Epsilon: 1e9, Delta: 1, Days: 1e9}
	if ledger.Spend(budget, "task", price, int64(epoch), limit) != nil {
		return 0
	}
	return 1
}

// allEpochs returns an experiment that runs all epochs of the task. The victim holds pair[world] in each; every other
// client holds the known value others.
func (r *deployment) allEpochs(c *Case) Experiment {
	epochs, clients := int(c.query.Epochs), int(c.query.Batch)
	start := c.over.device
	if start == nil {
		start = cappedDevice
	}
	letters := r.letters(c, start)
	return func(src *randomizer.Source, world int) (string, float64, error) {
		report := start(r.task.Epochs)
		draw := func(src *randomizer.Source, _ int) ([]uint64, error) { return r.draw(src) }
		if c.over.draw != nil {
			draw = c.over.draw(r)
		}
		var seen []epochView
		for epoch := range epochs {
			reports, value := report(epoch, c.over.at(epoch, c.pair[world]), c.others)
			values := slices.Concat(slices.Repeat([][]float64{value}, reports),
				slices.Repeat([][]float64{c.others}, clients-1))
			one := *r
			one.draw = func(src *randomizer.Source) ([]uint64, error) { return draw(src, epoch) }
			t, err := one.run(src, values)
			if err != nil {
				return "", 0, err
			}
			cells := make([]int, r.task.Noise.Cells)
			cells[int(c.others[0])] -= clients - 1
			for _, m := range t.lanes[0] {
				cells[number(m)]++
			}
			e := epochView{reports: len(t.sizes), reported: reports > 0,
				loss: r.loss(cells, letters[0][epoch], letters[1][epoch])}
			e.difference = cells[int(c.pair[0][0])] - cells[int(c.pair[1][0])]
			seen = append(seen, e)
		}
		view, score := c.over.look(seen)
		return view, score, nil
	}
}

// letters returns how many messages of each cell the victim's device sends, by world and epoch. The attacker knows the
// device's program.
func (r *deployment) letters(c *Case, start func(task.Epochs) device) (out [2][][]int) {
	for world := range out {
		report := start(r.task.Epochs)
		for epoch := range int(c.query.Epochs) {
			reports, value := report(epoch, c.over.at(epoch, c.pair[world]), c.others)
			cells := make([]int, r.task.Noise.Cells)
			cells[int(value[0])] += reports
			out[world] = append(out[world], cells)
		}
	}
	return out
}

// loss returns the logarithm of how much likelier the numbers of messages are if the victim sends one instead of other.
// Impossible numbers count as e⁻³⁰.
func (r *deployment) loss(seen, one, other []int) (sum float64) {
	logarithm := func(cell, n int) float64 {
		table := r.task.Noise.Tables[0]
		switch rest := r.task.Noise.Rest; {
		case rest != nil && cell == int(*rest) && n >= 0 && !r.unresting:
			return 0
		case n < 0 || n >= len(table) || table[n] == 0:
			return -30
		default:
			return math.Log(float64(table[n]))
		}
	}
	for cell, n := range seen {
		sum += logarithm(cell, n-one[cell]) - logarithm(cell, n-other[cell])
	}
	return math.Round(sum*1e6) / 1e6
}

// byLoss adds up the losses of all epochs.
func byLoss(epochs []epochView) (_ string, score float64) {
	for _, e := range epochs {
		score += e.loss
	}
	return "", score
}

// byFirst subtracts the differences of all other epochs from the first epoch's.
func byFirst(epochs []epochView) (_ string, score float64) {
	for epoch, e := range epochs {
		if epoch == 0 {
			score += float64(e.difference)
		} else {
			score -= float64(e.difference)
		}
	}
	return "", score
}

// byReported lists the differences of the epochs in which the victim reported.
func byReported(epochs []epochView) (view string, _ float64) {
	var differences []int
	for _, e := range epochs {
		if e.reported {
			differences = append(differences, e.difference)
		}
	}
	return words(differences...), 0
}

// byAll adds up the differences of all epochs.
func byAll(epochs []epochView) (_ string, score float64) {
	for _, e := range epochs {
		score += float64(e.difference)
	}
	return "", score
}

// byContrast subtracts the differences of the epochs without the victim's report.
func byContrast(epochs []epochView) (_ string, score float64) {
	for _, e := range epochs {
		if e.reported {
			score += float64(e.difference)
		} else {
			score -= float64(e.difference)
		}
	}
	return "", score
}

// byReports uses the number of reports in all epochs.
func byReports(epochs []epochView) (_ string, score float64) {
	for _, e := range epochs {
		score += float64(e.reports)
	}
	return "", score
}

// capped returns the case of a task with a cap of most reports in most+1 epochs, over that many epochs.
func capped(most uint64) Case {
	return Case{Protocol: "augmented", Client: "native", View: OfVerifier, Attack: overEpochs,
		query: small("", task.Histogram, func(q *planner.Query) {
			labels(2)(q)
			q.Batch, q.Relays = 2, &planner.RelayNoise{}
			q.TotalEpsilon, q.TotalDelta, q.Epsilon, q.Delta = q.Epsilon, q.Delta, 0, 0
			q.Epochs, q.Cap = most+1, task.Cap{Reports: most, Window: most + 1}
		}), pair: [2][]float64{{0}, {1}}, others: values(1), over: &throughout{look: byReported}}
}

// faultyDevices returns the cases of a cap with planted faults: of the device, or of the relay's dummies over epochs.
func faultyDevices() (out []Case) {
	for _, f := range []struct {
		fault string
		throughout
	}{
		{"R+1 reports in W epochs", throughout{device: overCap, look: byReported}},
		{"the ledger lost at each restart", throughout{device: forgetful, look: byReported}},
		{"two drafts of one epoch in one batch", throughout{device: twoDrafts, look: byReported}},
		{"a report that depends on another task’s value", throughout{device: dependent, look: byReports}},
		{"one draw for two epochs", throughout{draw: drawnOnce, look: byContrast}},
		{"a total fixed over epochs", throughout{draw: balanced, look: byAll}},
	} {
		c := capped(1)
		c.Fault, c.over = f.fault, &f.throughout
		out = append(out, c)
	}
	return out
}

// overCap plants a fault: the device allows one report more than the cap.
func overCap(limit task.Epochs) device {
	limit.Cap.Reports++
	return cappedDevice(limit)
}

// forgetful plants a fault: the device restarts before each epoch, and has lost its ledger.
func forgetful(limit task.Epochs) device {
	return func(epoch int, value, known []float64) (int, []float64) {
		return cappedDevice(limit)(epoch, value, known)
	}
}

// twoDrafts plants a fault: two drafts of an epoch leave, with different tags, so that no relay drops one.
func twoDrafts(limit task.Epochs) device {
	one := cappedDevice(limit)
	return func(epoch int, value, known []float64) (int, []float64) {
		reports, of := one(epoch, value, known)
		return 2 * reports, of
	}
}

// dependent plants a fault: the device answers another task, whose batch is the second, only if its value in the first
// is 0. The value that it sends there is known.
func dependent(limit task.Epochs) device {
	one := cappedDevice(limit)
	return func(epoch int, value, known []float64) (int, []float64) {
		switch {
		case epoch == 0:
			return one(epoch, value, known)
		case value[0] == 0:
			return 1, known
		}
		return 0, known
	}
}

// drawnOnce plants a fault: the relay uses its first draw in every epoch.
func drawnOnce(r *deployment) drawing {
	var first []uint64
	return func(src *randomizer.Source, epoch int) (cells []uint64, err error) {
		if epoch > 0 {
			return first, nil
		}
		first, err = r.draw(src)
		return first, err
	}
}

// balanced plants a fault: in the last epoch the relay adds to each cell what is missing to a number of dummies that is
// the same in all runs.
func balanced(r *deployment) drawing {
	left := make([]int, r.task.Noise.Cells)
	for cell := range left {
		left[cell] = int(r.task.Epochs.Count-1) * len(r.task.Noise.Tables[0])
	}
	if n := r.task.Noise; n.Rest != nil { // The number of an epoch's dummies stays the task's.
		left[*n.Rest] = int(*n.Total*r.task.Epochs.Count) - (len(left)-1)*left[(*n.Rest+1)%n.Cells]
	}
	return func(src *randomizer.Source, epoch int) (cells []uint64, err error) {
		if epoch < int(r.task.Epochs.Count)-1 {
			cells, err = r.draw(src)
			for _, cell := range cells {
				left[cell]--
			}
			return cells, err
		}
		for cell, n := range left {
			cells = append(cells, slices.Repeat([]uint64{uint64(cell)}, max(n, 0))...)
		}
		return cells, nil
	}
}

// claim returns the (ε, δ) that an audit attacks: of all epochs together if the task has a total, else of one.
func (c *Case) claim() (eps, delta float64) {
	if c.over != nil {
		return c.query.TotalEpsilon, c.query.TotalDelta
	}
	return c.query.Epsilon, c.query.Delta
}

// aim returns the ε that the audit of a case tries to find; the power is computed for it. It is half of the claimed ε,
// or slightly more than the claim if a fault is planted.
func (c *Case) aim() float64 {
	eps, _ := c.claim()
	if c.Fault != "" {
		return eps * (1 + 1e-9)
	}
	return least * eps
}
