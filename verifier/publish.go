package verifier

import (
	"slices"

	"github.com/doona-dp/doona/internal/ledger"
	"github.com/doona-dp/doona/wire/task"
)

// Budget limits what all published epochs together may cost a client. It covers a stream, or one task that is not in a
// stream.
type Budget = ledger.Budget

// Errors of a privacy ledger.
var (
	ErrBudget     = ledger.ErrBudget     // The budget is too small for a result.
	ErrRolledBack = ledger.ErrRolledBack // The ledger was rolled back or deleted.
	ErrNoLedger   = ledger.ErrNone       // A required ledger is missing, or no ledger shows the task's stream.
)

// Publishing says how results are charged to a ledger. Each epoch is charged once, before a report first shows a result
// of it.
type Publishing struct {
	// Folder holds the ledgers of all streams, one file each. All verifiers that publish results of the same stream
	// must share this folder.
	Folder string

	// Beside is a file of this verifier, such as its key file. A rollback mark next to it counts the ledger's changes.
	// So a ledger that was lost or rolled back is detected, and no new one is begun.
	Beside string

	// Budget is the operator's budget. If nil, a task outside a stream has its claimed total as its budget, and a task
	// of a stream has none.
	Budget *Budget

	// Root is the id of the stream's first task, which names the ledger. A task at position 2 or later needs it, unless
	// a ledger in Folder lists that task or the previous one. Zero means that it is not given.
	Root task.ID

	// Existing makes a missing ledger an error, [ErrNoLedger]. Otherwise a new ledger is created.
	Existing bool

	// Whole makes a report fail with [ErrBudget] if the budget is too small for all of its epochs. Otherwise the report
	// withholds the results of epochs beyond the budget.
	Whole bool

	// DryRun charges nothing. Reports then have no answers.
	DryRun bool
}

// charger charges the epochs that a verifier publishes. A nil charger charges nothing.
type charger struct {
	*ledger.Ledger
	whole, dryRun bool
}

// Publish makes the verifier charge each epoch before a report shows a result of it. Call it before the first report.
func (v *Verifier) Publish(p Publishing) error {
	l, err := ledger.Open(v.open, v.mechanism.Law, ledger.Options{Folder: p.Folder, Beside: p.Beside, Budget: p.Budget,
		Root: p.Root, Existing: p.Existing})
	if err != nil {
		return err
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	v.charger, v.cached = &charger{l, p.Whole, p.DryRun}, cached{}
	return nil
}

// charge charges the epochs whose results a report will show, and lists in the report those beyond the budget. In a dry
// run it only computes the cost.
func (b *charger) charge(epochs []uint64, r *Report, dry bool) (err error) {
	r.DryRun = dry || b != nil && b.dryRun
	switch {
	case b == nil:
	case r.DryRun:
		var cost ledger.Cost
		cost, r.Ledger.Withheld, err = b.Plan(epochs)
		r.Ledger.Published = &cost
	case b.whole:
		err = b.Charge(epochs)
	default:
		r.Ledger.Withheld, err = b.ChargeSome(epochs)
	}
	return err
}

// charged returns how many epochs of the stream are charged. They leave less of the budget for others.
func (b *charger) charged() (uint64, error) {
	if b == nil {
		return 0, nil
	}
	cost, err := b.Cost()
	return cost.Epochs, err
}

// showPublished sets the current cost of all published epochs, to which other tasks of the stream may have added.
func (b *charger) showPublished(r *Report) error {
	if b == nil || r.DryRun {
		return nil
	}
	cost, err := b.Cost()
	r.Ledger.Published = &cost
	return err
}

// removeAnswers removes everything that depends on clients' values from a report.
func (r *Report) removeAnswers() {
	r.Answer, r.Distribution, r.Texts = r.Answer.withoutResults(), nil, nil
	r.Verified, r.CoverMessages, r.Withheld = 0, 0, 0
	for _, hop := range r.ByHop { // How many slots of a batch that the verifier withholds are covers depends on values.
		r.Withheld += hop.Destroyed
	}
	for i := range r.Ledger.Epochs {
		e := &r.Ledger.Epochs[i]
		e.Answer, e.Distribution = e.Answer.withoutResults(), nil
	}
}

// notCovered explains why a withheld epoch has no answer.
const notCovered = "the budget is too small for it"

// withheld returns an epoch's row of the report without its answer.
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

// Published returns the epochs whose results are final and published: each is complete, and was charged by whatever
// program. row returns one of these epochs' row of the report, without Spent, or nil for another epoch. It charges
// nothing.
func Published(v *Verifier) (epochs []uint64, row func(epoch uint64) *EpochReport, err error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	row = func(epoch uint64) *EpochReport {
		if !slices.Contains(epochs, epoch) {
			return nil
		}
		v.mu.Lock()
		defer v.mu.Unlock()
		r := v.epochReport(epoch, v.epochs[epoch].total, v.override)
		return &r
	}
	if v.charger == nil || v.charger.dryRun {
		return nil, row, nil
	}
	var complete []uint64
	for _, number := range v.epochs.reached() {
		if v.epochs[number].closed {
			complete = append(complete, number)
		}
	}
	epochs, err = v.charger.Charged(complete)
	return epochs, row, err
}
