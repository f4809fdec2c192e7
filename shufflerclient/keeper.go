package shufflerclient

import (
	"fmt"
	"math"

	"github.com/doona-dp/doona/internal/invalid"
	"github.com/doona-dp/doona/protocols"
	"github.com/doona-dp/doona/wire/task"
)

// Keeper stores one ledger, durably: the ledger of one person, or of whatever else the budget covers. [LedgerFile]
// returns a Keeper.
type Keeper interface {
	// Update lets change modify the ledger, stores the result durably and then returns. If change fails, Update stores
	// nothing and returns the error. Only one Update runs at a time, over all processes that share the ledger.
	Update(change func(*Ledger) error) error
}

// mostEpochs is the largest number of epochs of a task, and the largest number whose cost is composed.
const mostEpochs = 65536

// priceOf returns the cost of a task's reports within a budget's days. The δ of all reports is the task's claimed δ for
// that number of epochs, or the budget's δ if that is smaller. The task's privacy law then gives the ε at this δ. A
// task's cap limits the number of reports, and its events the cost of all: the price is charged for reports, never for
// events. A stream that continues counts as many epochs as fit into the days. Its δ is the larger of two: the task's
// claimed total, and the sum of the per-epoch claims. The total alone is not enough, because later tasks may have other
// numbers of epochs than it was planned for.
func priceOf(t *task.Task, m protocols.Mechanism, b Budget, goesOn bool) (p Price, err error) {
	epochs := t.Epochs.Count
	if goesOn && !math.IsInf(b.Days, 1) {
		epochs = mostEpochs
	}
	epochs = t.Epochs.Length.MostIn(b.seconds(), epochs)
	copies := t.MostCopies(epochs)
	p = Price{First: protocols.AddedClaims(t.Claim, 1), Reports: t.Epochs.MostReports(epochs),
		Events: !t.Epochs.Events.IsZero()}
	p.All.Delta = protocols.AddedClaims(t.Claim, copies).Delta
	if total := t.Claim.Total; !total.IsZero() && epochs == t.Epochs.Count {
		p.All.Delta = total.Delta.Value()
	} else if goesOn && !total.IsZero() {
		p.All.Delta = max(p.All.Delta, total.Delta.Value())
	}
	if b.Delta < 1 {
		p.All.Delta = min(p.All.Delta, b.Delta)
	}
	p.All.Epsilon, err = protocols.EpochsEpsilon(t, m.Law, copies, p.All.Delta)
	if err != nil {
		return p, err
	}
	if !(p.All.Epsilon <= b.Epsilon) {
		return p, invalid.Field("Budget", fmt.Sprint(b.Epsilon),
			fmt.Sprintf("an epsilon of at least %v: the cost of %d reports in %v days at delta %v", p.All.Epsilon,
				p.Reports, b.Days, p.All.Delta))
	}
	return p, nil
}

// withBudget computes the price of the task's reports, if the client has a ledger.
func (c *Client) withBudget() (err error) {
	if c.options.Ledger == nil {
		const why = "none without a ledger: the client must count one browser's or person's reports, which an edge " +
			"worker cannot"
		if limit := c.open.Epochs.Cap; !limit.IsZero() {
			return invalid.Field("cap", limit.String(), why)
		}
		if events := c.open.Epochs.Events; !events.IsZero() {
			return invalid.Field("events", events.String(), why)
		}
		if c.options.Budget != (Budget{}) {
			return invalid.Field("Ledger", "nil", "a ledger, with a budget")
		}
		return nil
	}
	if err := c.options.Budget.check(); err != nil {
		return err
	}
	if s := c.open.Stream; s != nil && s.Position > 0 && c.line == c.open.ID.String() {
		const why = "its stream followed from the first task: it counts the reports of all its tasks"
		if limit := c.open.Epochs.Cap; !limit.IsZero() {
			return invalid.Field("cap", limit.String(), why)
		}
		if events := c.open.Epochs.Events; !events.IsZero() {
			return invalid.Field("events", events.String(), why)
		}
	}
	c.price, err = priceOf(c.open.Task, c.mechanism, c.options.Budget, c.goesOn)
	return err
}

// spend enters a report for an epoch in the ledger, and whether it is an event. Without a ledger it does nothing.
// instead is not nil if the allowance of events is used up, so that the default must be sent.
func (c *Client) spend(epoch uint64, event bool) (instead, err error) {
	if c.options.Ledger == nil {
		return nil, nil
	}
	e := c.open.Epochs
	if epoch >= e.Count {
		return nil, invalid.Field("epoch", fmt.Sprint(epoch), fmt.Sprintf("0 to %d", e.Count-1))
	}
	start := int64(e.Begin(epoch))
	err = c.options.Ledger.Update(func(l *Ledger) error {
		if err := l.Spend(c.options.Budget, c.line, c.price, start, e); err != nil || !event {
			return err
		}
		instead = l.Event(c.line, start, e)
		return nil
	})
	return instead, err
}
