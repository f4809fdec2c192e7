package audit

import (
	"github.com/doona-dp/doona/accountant/compose"
	"github.com/doona-dp/doona/planner"
	"github.com/doona-dp/doona/shufflerclient"
	"github.com/doona-dp/doona/wire/task"
	"github.com/doona-dp/doona/wire/task/dummies"
)

// usual is the default of the audited tasks with events, which have cells 0, 1 and usual, the rest cell.
const usual = 2

// eventful returns the case of a task with at most one event in two epochs, over both. The victim holds 0 or 1, both
// events, in each epoch. Every other client sends the default.
func eventful() Case {
	return Case{Protocol: "augmented", Client: "native", View: OfVerifier, Attack: overEpochs,
		query: small("", task.Histogram, func(q *planner.Query) {
			labels(3)(q)
			q.Batch, q.Relays = 2, &planner.RelayNoise{}
			q.TotalEpsilon, q.TotalDelta, q.Epsilon, q.Delta = q.Epsilon, q.Delta, 0, 0
			q.Epochs, q.Events = 2, task.Events{Most: 1, Window: 2, Default: usual}
		}), pair: [2][]float64{{0}, {1}}, others: values(usual), over: &throughout{device: eventDevice, look: byLoss}}
}

// moving is [eventful] with other values: the victim holds an event or the default, and then an event. So the first
// value decides whether the second epoch's report is an event.
func moving() Case {
	c := eventful()
	c.pair = [2][]float64{{0}, {usual}}
	over := *c.over
	over.later = values(0)
	c.over = &over
	return c
}

// eventDevice returns a device that keeps a task's allowance of events by the ledger of the Go client.
func eventDevice(limit task.Epochs) device {
	ledger := &shufflerclient.Ledger{}
	limit.Length = 1
	return func(epoch int, value, _ []float64) (int, []float64) {
		reports := spend(ledger, limit, epoch)
		if value[0] != usual && ledger.Event("task", int64(epoch), limit) != nil {
			return reports, values(usual)
		}
		return reports, value
	}
}

// faultyAllowances returns the cases of events with planted faults: of the device, of the relay's dummies over epochs,
// or of the law that the noise was planned by.
func faultyAllowances() (out []Case) {
	for _, f := range []struct {
		fault  string
		of     func() Case
		plant  func(*deployment) error
		change throughout
	}{
		{"event k+1 is sent", eventful, nil, throughout{device: overAllowance}},
		{"the allowance lost at each restart", eventful, nil, throughout{device: forgetfulOfEvents}},
		{"two drafts of one epoch with events in one batch", eventful, nil, throughout{device: twoEvents}},
		{"one draw for two epochs with a rest cell", eventful, nil, throughout{draw: drawnOnce, look: byFirst}},
		{"a total fixed over epochs with a rest cell", eventful, nil, throughout{draw: balanced, look: byAll}},
		{"a budget that is charged for events alone", moving, nil, throughout{device: chargedByEvents, look: byReports}},
		{"no report once the allowance is used up", moving, nil, throughout{device: silentAfterwards, look: byReports}},
		{"a rest cell without its loss at infinity", moving, withoutTau, throughout{}},
		{"one cell’s law for independent cells", moving, withoutRest, throughout{}},
	} {
		c := f.of()
		over := *c.over
		if f.change.device != nil {
			over.device = f.change.device
		}
		if f.change.look != nil {
			over.look = f.change.look
		}
		over.draw = f.change.draw
		c.Fault, c.over, c.plant = f.fault, &over, f.plant
		out = append(out, c)
	}
	return out
}

// overAllowance plants a fault: the device sends one event more than the task allows.
func overAllowance(limit task.Epochs) device {
	limit.Events.Most++
	return eventDevice(limit)
}

// forgetfulOfEvents plants a fault: the device restarts before each epoch, and has lost its record.
func forgetfulOfEvents(limit task.Epochs) device {
	return func(epoch int, value, known []float64) (int, []float64) {
		return eventDevice(limit)(epoch, value, known)
	}
}

// twoEvents plants a fault: two drafts of an epoch leave, with different tags, so that no relay drops one.
func twoEvents(limit task.Epochs) device {
	one := eventDevice(limit)
	return func(epoch int, value, known []float64) (int, []float64) {
		reports, of := one(epoch, value, known)
		return 2 * reports, of
	}
}

// chargedByEvents plants a fault: the device enters only events in its ledger, whose budget has room for one report.
// So the report of the second epoch, to another task, tells whether the first was an event.
func chargedByEvents(task.Epochs) device {
	ledger, cost := &shufflerclient.Ledger{}, compose.Spend{Epsilon: 1, Delta: 1e-9}
	price := shufflerclient.Price{First: cost, Reports: 1, All: cost}
	budget := shufflerclient.Budget{Epsilon: 1, Delta: 1e-9, Days: 1e9}
	return func(epoch int, value, _ []float64) (int, []float64) {
		line := []string{"task", "another task"}[epoch]
		if value[0] == usual {
			return 1, value
		}
		if ledger.Spend(budget, line, price, int64(epoch), task.Epochs{Length: 1}) != nil {
			return 0, value
		}
		return 1, value
	}
}

// silentAfterwards plants a fault: the device reports nothing in place of an event beyond the allowance.
func silentAfterwards(limit task.Epochs) device {
	decide := eventDevice(limit)
	return func(epoch int, value, known []float64) (int, []float64) {
		reports, sent := decide(epoch, value, known)
		if sent[0] != value[0] {
			return 0, sent
		}
		return reports, sent
	}
}

// withoutTau plants a fault: the noise has the total that the search takes if a rest cell costs no infinite loss.
func withoutTau(r *deployment) error {
	n := *r.task.Noise
	noTau(&n)
	r.draw = dummies.New(&n).Draw
	return nil
}

func noTau(n *task.Noise) {
	total := (n.Cells - 1) * uint64(len(n.Tables[0])) / 2
	n.Total = &total
}

// withoutRest plants a fault: all cells draw independently, from the table of a noise with a rest cell.
func withoutRest(r *deployment) error {
	n := *r.task.Noise
	noRest(&n)
	r.draw, r.unresting = dummies.New(&n).Draw, true
	return nil
}

func noRest(n *task.Noise) { n.Total, n.Rest = nil, nil }
