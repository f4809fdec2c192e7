package verifier

import (
	"github.com/doona-dp/doona/internal/ledger"
	"github.com/doona-dp/doona/wire/task"
)

// Budget bounds what all published epochs of a stream, or of a task that is in none, may cost a client.
type Budget = ledger.Budget

// Errors of a ledger.
var (
	ErrBudget     = ledger.ErrBudget     // The budget does not suffice for a result.
	ErrRolledBack = ledger.ErrRolledBack // The ledger is not as it was written last, or gone.
	ErrNoLedger   = ledger.ErrNone       // There is no ledger where one must be, or none tells whose stream a task is of.
)

// Publishing says how results are charged. What is charged is an epoch of which a report shows a result, once.
type Publishing struct {
	// Folder has the ledgers of all streams, each in a file of its own. Verifiers that publish results of one stream
	// must share it.
	Folder string

	// Beside is a file of this verifier, such as its keys, beside which a mark says how far the ledger has come: so
	// one that is lost, or was set back, is not begun anew.
	Beside string

	// Budget is the operator's. Nil: the total that the task claims, if it is in no stream, and else none.
	Budget *Budget

	// Root is the id of the first task of the stream, by which its ledger is named. It must be given for a task at
	// position 2 or later unless a ledger in Folder lists that or the task before. Zero: not given.
	Root task.ID

	// Existing refuses to begin a ledger with [ErrNoLedger].
	Existing bool

	// Whole refuses a report with [ErrBudget] where the budget does not suffice for all of its epochs. Else a
	// report leaves out those that it does not suffice for.
	Whole bool

	// Dry charges nothing, and reports have no answers.
	DryRun bool
}

// charger charges what a verifier publishes. A nil one charges nothing.
type charger struct {
	*ledger.Ledger
	whole, dryRun bool
}

// Publish has every epoch charged before a report shows a result of it. It is called before the first report.
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

// charge charges epochs whose results a report is to show, and says in its ledger which it must leave out; in a dry
// run also what that would cost.
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

// showPublished says what all published epochs cost by now: other tasks of the stream may have more.
func (b *charger) showPublished(r *Report) error {
	if b == nil || b.dryRun {
		return nil
	}
	cost, err := b.Cost()
	r.Ledger.Published = &cost
	return err
}

// removeAnswers takes all out of a report that clients' answers moved.
func (r *Report) removeAnswers() {
	r.Answer, r.Distribution, r.Texts = r.Answer.withoutResults(), nil, nil
	r.Verified, r.CoverMessages = 0, 0
	for i := range r.Ledger.Epochs {
		e := &r.Ledger.Epochs[i]
		e.Answer, e.Distribution = e.Answer.withoutResults(), nil
	}
}

// notCovered is why a withheld epoch has no answer.
const notCovered = "the budget does not suffice for it"

// withheld is an epoch's line without its answer.
func (e EpochReport) withheld() EpochReport {
	e.Answer, e.Distribution = e.Answer.withoutResults(), nil
	e.Usable, e.UnusableBecause = false, notCovered
	return e
}

// withoutResults is an answer without what it answers.
func (a Answer) withoutResults() Answer {
	return Answer{Reports: a.Reports, Missing: a.Missing, Usable: a.Usable, UnusableBecause: a.UnusableBecause,
		Confidence: a.Confidence}
}
