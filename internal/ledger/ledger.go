// Package ledger durably records which epochs a verifier has published results of, and what they cost together.
//
// A stream has one ledger for all of its tasks, whichever keys sign them. A task outside a stream has its own. The
// verifier charges an epoch before it shows any result of it. An epoch is charged once: after a crash or a second
// analysis, it stays charged. The ledger refuses charges that would exceed a budget.
//
// An epoch costs the (ε, δ) that its task claims, for a client who reports in every epoch. The first charged task pins
// a claim and a privacy-loss law for the whole stream, and no later task may exceed them (docs/proofs/loss-laws.md,
// Theorem 3 (a)). So the cost depends only on the number of epochs, and a budget limits this number. Publishing fewer
// epochs never costs more (docs/proofs/budget.md, Lemma 5).
package ledger

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/doona-dp/doona/accountant/compose"
	"github.com/doona-dp/doona/internal/decimal"
	"github.com/doona-dp/doona/internal/invalid"
	"github.com/doona-dp/doona/protocols"
	"github.com/doona-dp/doona/wire/task"
	"github.com/doona-dp/doona/wire/taskfile"
)

// ErrBudget means that the budget is too small for the results.
var ErrBudget = errors.New("couldn't publish: the budget is spent")

// ErrRolledBack means that the ledger is missing or is not the version written last: a state rollback.
var ErrRolledBack = errors.New("couldn't use the ledger: another version was written last")

// ErrNone means that a required ledger is missing, or that no ledger lists a task.
var ErrNone = errors.New("couldn't find the ledger")

// Budget limits what all published epochs of a stream may cost a client.
type Budget struct {
	Epsilon float64 `json:"epsilon"` // Above 0.
	Delta   float64 `json:"delta"`   // In (0, 1).
}

// Check returns an error that names a field out of range.
func (b Budget) Check() error {
	switch {
	case !(b.Epsilon > 0 && b.Epsilon <= math.MaxFloat64):
		return invalid.Field("total_epsilon", decimal.Format(b.Epsilon, -1), "a number above 0")
	case !(b.Delta > 0 && b.Delta < 1):
		return invalid.Field("total_delta", decimal.Format(b.Delta, -1), "a number between 0 and 1")
	}
	return nil
}

// Options configure where a ledger is and what may be charged.
type Options struct {
	// Folder holds the ledgers, each in the file STREAM.ledger. The first charge creates it.
	Folder string

	// Beside is a file of the verifier that is not lost together with Folder, such as its key file. The ledger's
	// rollback mark is the file BESIDE.STREAM.ledger.mark, with STREAM cut to 16 digits.
	Beside string

	// Budget is the operator's. If it is nil, a task outside a stream has its claimed total as its budget, and a task
	// of a stream has none.
	Budget *Budget

	// Root is the id of the stream's first task. It is required for a task at position 2 or later, unless a ledger in
	// Folder lists that task or the previous task. See [Name].
	Root task.ID

	// Existing makes a missing ledger an error, [ErrNone], instead of creating it.
	Existing bool
}

// Cost is what all published epochs cost together, for a client who reported in each of them, or as often as the task's
// cap allows.
type Cost struct {
	Stream  string   `json:"stream"`  // The ledger's name: id of the stream's first task, or of the single task.
	Epochs  uint64   `json:"epochs"`  // Charged epochs of all tasks of the stream.
	Reports uint64   `json:"reports"` // The most reports of one client in these: fewer with a cap.
	Epsilon *float64 `json:"epsilon"` // Null if no finite ε is known at Delta.
	Delta   float64  `json:"delta"`   // The budget's δ; without a budget, the sum of the epochs' δ.
	Budget  *Budget  `json:"budget"`  // Null without a budget.

	Copies uint64 `json:"-"` // Copies of the pinned law that cover these reports: fewer than reports with events.
}

// PersonCost is an (ε, δ). Epsilon is null if no finite ε holds.
type PersonCost struct {
	Epsilon *float64 `json:"epsilon"`
	Delta   float64  `json:"delta"`
}

// PersonCosts is what the published epochs, or those that arrived, cost a person in cases that the claim leaves out.
type PersonCosts struct {
	Exact bool `json:"exact"` // Computed from the law of equal reports, and not by group privacy.

	// Devices is the cost if two devices, browsers or accounts of a person answered alike in every epoch.
	Devices PersonCost `json:"two_devices"`
	// Wiped is the cost if the browser's storage was lost once, with the cap's record: within one epoch, so that it
	// reported twice in it.
	Wiped PersonCost `json:"storage_lost"`
	// Batch is the cost of one epoch in which two equal reports of a person were in one batch.
	Batch PersonCost `json:"two_in_a_batch"`
}

// Ledger is one task's access to the ledger of its stream. It is safe for concurrent use, also by several processes.
type Ledger struct {
	options Options
	task    *taskfile.Open
	law     func() (*compose.Law, error)
	stream  string
	budget  *Budget

	mu    sync.Mutex // guards the rest
	state *state     // As last read or written.
	costs map[uint64]Cost
}

// Open opens the ledger of a task's stream, which need not exist, and writes nothing. law computes the privacy-loss law
// of one epoch of the task, whose claim the caller has checked. Open fails if the ledger is damaged or of another
// format version. If the ledger is missing, another one or older than its rollback mark says, it returns
// [ErrRolledBack].
func Open(open *taskfile.Open, law func() (*compose.Law, error), o Options) (*Ledger, error) {
	stream, err := Name(open, o.Folder, o.Root)
	if err != nil {
		return nil, err
	}
	l := &Ledger{options: o, task: open, law: sync.OnceValues(law), stream: stream, budget: o.Budget,
		costs: map[uint64]Cost{}}
	if total := open.Claim.Total; o.Budget == nil && open.Stream == nil && !total.IsZero() {
		l.budget = &Budget{total.Epsilon.Value(), total.Delta.Value()}
	}
	if l.budget != nil {
		if err := l.budget.Check(); err != nil {
			return nil, err
		}
	}
	l.state, err = l.read()
	return l, err
}

// Charge durably charges epochs of the task, before their results are published. Epochs that are charged already cost
// nothing. If the budget does not allow all epochs, it returns [ErrBudget] and charges none.
func (l *Ledger) Charge(epochs []uint64) error {
	refused, err := l.charge(epochs, false)
	if err == nil && len(refused) > 0 {
		err = l.budgetError(refused)
	}
	return err
}

// ChargeSome charges as many epochs, in ascending order, as the budget allows. It returns the refused ones.
func (l *Ledger) ChargeSome(epochs []uint64) (refused []uint64, err error) {
	return l.charge(epochs, true)
}

// Charged returns those of the epochs that are charged. It charges none.
func (l *Ledger) Charged(epochs []uint64) (charged []uint64, err error) {
	l.mu.Lock()
	err = l.refresh()
	uncharged := l.state.uncharged(l.task, epochs)
	l.mu.Unlock()
	for _, e := range epochs {
		if !slices.Contains(uncharged, e) {
			charged = append(charged, e)
		}
	}
	if err != nil || len(charged) == 0 {
		return nil, err
	}
	return charged, l.Charge(charged) // completes the rollback mark, if a crash prevented that
}

func (l *Ledger) charge(epochs []uint64, partial bool) (refused []uint64, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.state.written && len(l.state.uncharged(l.task, epochs)) == 0 {
		return nil, nil
	}
	unlock, err := l.lock()
	if err != nil {
		return nil, err
	}
	defer unlock()
	if err := l.refresh(); err != nil {
		return nil, err
	}
	next, refused, err := l.plan(epochs, partial)
	if err != nil || len(refused) > 0 && !partial {
		return refused, err
	}
	return refused, l.write(next)
}

// Plan returns what all published epochs would cost together with the given ones, and which of these the budget
// refuses. It charges nothing.
func (l *Ledger) Plan(epochs []uint64) (cost Cost, refused []uint64, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if err := l.refresh(); err != nil {
		return Cost{}, nil, err
	}
	next, refused, err := l.plan(epochs, true)
	if err == nil {
		cost, err = l.cost(next)
	}
	return cost, refused, err
}

// refresh reads what other processes have charged. The caller holds l.mu.
func (l *Ledger) refresh() error {
	s, err := l.read()
	if err != nil {
		return err
	}
	if s.id != l.state.id { // another process began the ledger, perhaps with another law
		clear(l.costs)
	}
	if s.id != l.state.id || s.generation != l.state.generation {
		l.state = s
	}
	return nil
}

// Cost returns the cost of all charged epochs of the stream, whoever charged them.
func (l *Ledger) Cost() (Cost, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if err := l.refresh(); err != nil {
		return Cost{}, err
	}
	return l.cost(l.state)
}

// plan returns the state after charging epochs, and the refused epochs. If partial is false and the budget does not
// allow all, it refuses all. The caller holds l.mu.
func (l *Ledger) plan(epochs []uint64, partial bool) (next *state, refused []uint64, err error) {
	uncharged := l.state.uncharged(l.task, epochs)
	if len(uncharged) == 0 {
		return l.state, nil, nil
	}
	next = l.state.clone()
	if err := l.admit(next); err != nil {
		return nil, nil, err
	}
	affordable, err := l.affordable(next, uncharged)
	if err != nil || affordable < uint64(len(uncharged)) && !partial {
		return l.state, uncharged, err
	}
	if affordable == 0 {
		return l.state, uncharged, nil
	}
	next.add(l.task, uncharged[:affordable])
	return next, uncharged[affordable:], nil
}

// affordable returns how many of the uncharged epochs, from the first on, the budget allows.
func (l *Ledger) affordable(s *state, uncharged []uint64) (uint64, error) {
	asked := uint64(len(uncharged))
	if l.budget == nil {
		return asked, nil
	}
	low, high := uint64(0), asked+1 // The budget allows low, but not high.
	for low+1 < high {
		middle := (low + high) / 2
		if high == asked+1 {
			middle = asked
		}
		eps, err := l.epsilon(s, s.with(l.task, uncharged[:middle]).copies())
		if err != nil {
			return 0, err
		}
		if eps <= l.budget.Epsilon {
			low = middle
		} else {
			high = middle
		}
	}
	return low, nil
}

// epsilon returns the ε of this number of copies of the pinned law at the budget's δ, or +Inf if no finite one is
// known.
func (l *Ledger) epsilon(s *state, copies uint64) (float64, error) {
	var failed error
	law := func() (law *compose.Law, err error) {
		law, failed = l.pinned(s)
		return law, failed
	}
	eps, err := protocols.EpochsEpsilon(s.pinnedTask(l.task.Task), law, copies, l.budget.Delta)
	if err != nil && failed == nil {
		return math.Inf(1), nil // The δ is too small for any finite bound.
	}
	return eps, failed
}

func (l *Ledger) cost(s *state) (Cost, error) {
	n := s.copies()
	if known, ok := l.costs[n]; ok {
		known.Epochs, known.Reports = s.count(), s.reports()
		return known, nil
	}
	c := Cost{Stream: l.stream, Epochs: s.count(), Reports: s.reports(), Budget: l.budget, Copies: n}
	var err error
	switch {
	case n == 0:
		c.Epsilon = new(float64)
	case l.budget == nil:
		law := func() (*compose.Law, error) { return l.pinned(s) }
		var spent compose.Spend
		spent, err = protocols.EpochsSpend(s.pinnedTask(l.task.Task), law, n)
		c.Epsilon, c.Delta = &spent.Epsilon, spent.Delta
	default:
		var eps float64
		eps, err = l.epsilon(s, n)
		if c.Delta = l.budget.Delta; !math.IsInf(eps, 1) {
			c.Epsilon = &eps
		}
	}
	if err == nil {
		l.costs[n] = c
	}
	return c, err
}

// pinned returns the privacy-loss law of the stream's first charged task; before that, this task's.
func (l *Ledger) pinned(s *state) (*compose.Law, error) {
	if s.pin == nil || s.pin.law == nil {
		return l.law()
	}
	return s.pin.law, nil
}

// admit adds the task to the ledger. The first task pins its law and claim. A later task that exceeds them gets an
// error.
func (l *Ledger) admit(s *state) error {
	if s.has(l.task) {
		return nil
	}
	defer s.add(l.task, nil)
	if s.pin != nil && l.task.Stream == nil {
		return nil // a task outside a stream is the only task of its ledger
	}
	pin := newPin(l.task.Task)
	if l.task.Stream == nil {
		s.pin = pin
		return nil
	}
	law, err := l.law()
	if err != nil {
		return err
	}
	pin.law = law
	if s.pin == nil {
		s.pin = pin
		return nil
	}
	s.pin, err = s.pin.covering(pin)
	return err
}

// budgetError returns an [ErrBudget] that says what publishing the refused epochs would cost.
func (l *Ledger) budgetError(refused []uint64) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	n := l.state.count()
	with, err := l.epsilon(l.state, l.state.with(l.task, refused).copies())
	if err != nil {
		return err
	}
	cost := "no epsilon"
	if !math.IsInf(with, 1) {
		cost = "epsilon " + decimal.Up(with, 4)
	}
	return fmt.Errorf("%w: %s published, and %s more (%s) would make it %s at delta %s, above %s", ErrBudget,
		plural(n, "epoch is", "epochs are"), strconv.Itoa(len(refused)), list(refused), cost,
		decimal.Format(l.budget.Delta, -1), decimal.Format(l.budget.Epsilon, -1))
}

func plural(n uint64, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return strconv.FormatUint(n, 10) + " " + many
}

// list joins numbers with commas, but only the first 10.
func list(numbers []uint64) string {
	const most = 10
	var parts []string
	for _, n := range numbers[:min(most, len(numbers))] {
		parts = append(parts, strconv.FormatUint(n, 10))
	}
	if len(numbers) > most {
		parts = append(parts, "…")
	}
	return strings.Join(parts, ", ")
}

// pin is what no task of a stream may exceed: the claim and privacy-loss law of the first charged task. Outside a
// stream the law is nil.
type pin struct {
	claim  task.Claim
	epochs task.Epochs // The number of epochs that the claim's total covers, and with a cap or events their length.
	rest   bool        // With events: the noise has a rest cell.
	law    *compose.Law
}

func newPin(t *task.Task) *pin {
	p := &pin{claim: t.Claim, epochs: task.Epochs{Count: t.Epochs.Count, Cap: t.Epochs.Cap,
		Events: t.Epochs.Events}, rest: t.Noise != nil && t.Noise.Rest != nil}
	if p.needsTimes() {
		p.epochs.Length = t.Epochs.Length
	}
	return p
}

// needsTimes reports whether costs depend on which epochs are charged, and not only on their number.
func (p *pin) needsTimes() bool { return !p.epochs.Cap.IsZero() || !p.epochs.Events.IsZero() }

// covering returns a pin that also covers another task of the stream, so that no epoch of it costs more. If p covers
// the task except beyond the ends of the laws' grids, it returns a wider pin, which would have been valid from the
// start.
func (p *pin) covering(next *pin) (*pin, error) {
	if !(next.claim.Epsilon.Value() <= p.claim.Epsilon.Value() && next.claim.Delta.Value() <= p.claim.Delta.Value()) {
		return nil, invalid.Field("claim", next.claim.Epsilon.String()+", "+next.claim.Delta.String(), "at most "+
			p.claim.Epsilon.String()+", "+p.claim.Delta.String()+", the claim of the stream's first charged task")
	}
	if next.epochs.Cap != p.epochs.Cap || next.epochs.Length != p.epochs.Length {
		return nil, invalid.Field("cap", next.epochs.Cap.String(), p.epochs.Cap.String()+
			", with epochs of one length, as the stream's first charged task")
	}
	if next.epochs.Events != p.epochs.Events || next.rest != p.rest {
		return nil, invalid.Field("events", next.epochs.Events.String(), p.epochs.Events.String()+
			", with the default and the kind of noise of the stream's first charged task")
	}
	if slices.Equal(next.law.Encode(), p.law.Encode()) || next.law.Below(p.law) {
		return p, nil
	}
	wider := *p
	if wider.law = p.law.WithTail(); next.law.Below(wider.law) {
		return &wider, nil
	}
	return nil, invalid.Field("stream", "a task with more privacy loss", "a privacy-loss law nowhere above that of "+
		"the stream's first charged task")
}
