package verifier

import (
	"github.com/doona-dp/doona/internal/ledger"
	"github.com/doona-dp/doona/wire/task"
)

// Budget bounds what all published epochs may cost a client, over a stream, or over one task outside a stream.
type Budget = ledger.Budget

// Errors of a ledger.
var (
	ErrBudget     = ledger.ErrBudget     // The budget is too small for a result.
	ErrRolledBack = ledger.ErrRolledBack // The ledger was rolled back or is gone.
	ErrNoLedger   = ledger.ErrNone       // A required ledger is missing, or no ledger tells a task's stream.
)

// Publishing configures how results are charged. Each epoch is charged once, before a report first shows a result of
// it.
type Publishing struct {
	// Folder holds the ledgers of all streams, one file each. Verifiers that publish results of the same stream must
	// share it.
	Folder string

	// Beside is a file of this verifier, such as its key file. A mark beside it records how far the ledger has come,
	// so a lost or rolled back ledger is detected and not begun anew.
	Beside string

	// Budget is the operator's. If nil, a task outside a stream has the total that it claims as its budget, and a
	// task of a stream has none.
	Budget *Budget

	// Root is the id of the stream's first task, which names the ledger. It is required for a task at position 2 or
	// later, unless a ledger in Folder lists that task or the previous one. Zero means not given.
	Root task.ID

	// Existing makes a missing ledger an error, [ErrNoLedger], and does not begin one.
	Existing bool

	// Whole makes a report fail with [ErrBudget] if the budget is too small for all of its epochs. Otherwise the
	// report withholds the epochs beyond the budget.
	Whole bool

	// DryRun charges nothing, and reports have no answers.
	DryRun bool
}

// charger charges what a verifier publishes. A nil charger charges nothing.
type charger struct {
	*ledger.Ledger
	whole, dryRun bool
}

// Publish charges every epoch before a report shows a result of it. Call it before the first report.
func (v *Verifier) Publish(p Publishing) error {
	l, err := ledger.Open(v.open, v.mechanism.Law, ledger.Options{Folder: p.Folder, Beside: p.Beside, Budget: p.Budget,
		Root: p.Root, Existing: p.Existing})
	if err != nil {
		return err
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	v.charger, v.cached = &charger{l, p.Whole, p.DryRun}, nil
	return nil
}

// charge charges the epochs whose results a report is to show, and lists in its ledger those to withhold. In a dry run
// it only computes the cost.
func (b *charger) charge(epochs []uint64, r *Report) (err error) {
	switch {
	case b == nil:
	case b.dryRun:
		var cost ledger.Cost
		cost, r.Ledger.Withheld, err = b.Plan(epochs)
		r.Ledger.Published, r.DryRun = &cost, true
	case b.whole:
		err = b.Charge(epochs)
	default:
		r.Ledger.Withheld, err = b.ChargeSome(epochs)
	}
	return err
}

// showPublished sets the current cost of all published epochs. Other tasks of the stream may have added to it.
func (b *charger) showPublished(r *Report) error {
	if b == nil || b.dryRun {
		return nil
	}
	cost, err := b.Cost()
	r.Ledger.Published = &cost
	return err
}

// removeAnswers removes everything from a report that depends on clients' values.
func (r *Report) removeAnswers() {
	r.Answer, r.Distribution, r.Texts = r.Answer.withoutResults(), nil, nil
	r.Verified, r.CoverMessages = 0, 0
	for i := range r.Ledger.Epochs {
		e := &r.Ledger.Epochs[i]
		e.Answer, e.Distribution = e.Answer.withoutResults(), nil
	}
}

// notCovered explains why a withheld epoch has no answer.
const notCovered = "the budget is too small for it"

// withheld returns an epoch's line without its answer.
func (e EpochReport) withheld() EpochReport {
	e.Answer, e.Distribution = e.Answer.withoutResults(), nil
	e.Usable, e.UnusableBecause = false, notCovered
	return e
}

// withoutResults returns an answer without estimates and error bars.
func (a Answer) withoutResults() Answer {
	return Answer{Reports: a.Reports, Missing: a.Missing, Usable: a.Usable, UnusableBecause: a.UnusableBecause,
		Confidence: a.Confidence}
}
