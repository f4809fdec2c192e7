// Package ledger keeps, durably, of which epochs a verifier has published results, and says what they have
// cost together.
//
// There is one ledger for all tasks of a stream, whoever signs them, and one for each task that is in none. An
// epoch is charged before anything that came of it is shown, and once: whoever is killed in between, or analyzes
// it again, has it charged already. The ledger refuses to charge past a budget.
//
// What is charged is the claim of an epoch, for a client who reports in each. All tasks of a stream are one
// line of losses: its first charged task pins a law and a claim, and no later one may exceed them
// (docs/proofs/loss-laws.md, Theorem 3 (a)). So the number of epochs is all that counts, a budget is a
// largest number, and whoever stops earlier has spent no more (docs/proofs/budget.md, Lemma 5).
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

// ErrBudget is returned where results are refused because the budget does not suffice.
var ErrBudget = errors.New("couldn't publish: the budget is spent")

// ErrRolledBack is returned where the ledger is not the one that was written last, or is gone.
var ErrRolledBack = errors.New("couldn't use the ledger: it is not as it was written last")

// ErrNone is returned where there must be a ledger, or one that tells of a task, and there is none.
var ErrNone = errors.New("couldn't find the ledger")

// Budget bounds what all published epochs of a stream may cost a client.
type Budget struct {
	Epsilon float64 `json:"epsilon"` // Above 0.
	Delta   float64 `json:"delta"`   // In (0, 1).
}

// Check is an error that names the field which is not in its range.
func (b Budget) Check() error {
	switch {
	case !(b.Epsilon > 0 && b.Epsilon <= math.MaxFloat64):
		return invalid.Field("total_epsilon", decimal.Format(b.Epsilon, -1), "a number above 0")
	case !(b.Delta > 0 && b.Delta < 1):
		return invalid.Field("total_delta", decimal.Format(b.Delta, -1), "a number between 0 and 1")
	}
	return nil
}

// Options say where a ledger is and what it may be charged.
type Options struct {
	// Folder has the ledgers, each in the file STREAM.ledger. It is created by the first charge.
	Folder string

	// Beside is a file of the verifier's that does not lie in Folder, or may be lost apart from the ledger, such
	// as its keys: BESIDE.STREAM.ledger.mark says how far the ledger has come, STREAM cut to 16 digits.
	Beside string

	// Budget is the operator's. Nil: the total that the task claims, if it is in no stream, and else none.
	Budget *Budget

	// Root is the id of the stream's first task, which must be known of a task at position 2 or later, unless a
	// ledger in Folder lists that or the one before it. See [Name].
	Root task.ID

	// Existing refuses to begin a ledger: [ErrNone] where there is none.
	Existing bool
}

// Cost is what published epochs cost a client together who reported in each of them.
type Cost struct {
	Stream  string   `json:"stream"`  // The ledger's name: of all tasks of a stream, or of one task.
	Epochs  uint64   `json:"epochs"`  // That were charged, over all tasks of the stream.
	Epsilon *float64 `json:"epsilon"` // Null where no ε is known at that δ.
	Delta   float64  `json:"delta"`   // The budget's, else what the epochs' δ add up to.
	Budget  *Budget  `json:"budget"`  // Null: there is none.
}

// Ledger is one task's access to the ledger of its stream. It is safe for concurrent use, by several processes too.
type Ledger struct {
	options Options
	task    *taskfile.Open
	law     func() (*compose.Law, error)
	stream  string
	budget  *Budget

	mu    sync.Mutex // guards the rest
	state *state     // As it was read or written last.
	costs map[uint64]Cost
}

// Open opens the ledger of a task's stream, which need not be there yet. law makes the law of an epoch of the
// task, whose claim has been checked. It changes nothing. It is an error where the ledger is damaged, of
// another version, gone, or not the one, or a later one, that the mark is of ([ErrRolledBack]).
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

// Charge charges epochs of the task, durably, before their results are published; those that were charged
// before cost nothing. It is [ErrBudget] where the budget does not suffice for all, and then charges nothing.
func (l *Ledger) Charge(epochs []uint64) error {
	refused, err := l.charge(epochs, false)
	if err == nil && len(refused) > 0 {
		err = l.budgetError(refused)
	}
	return err
}

// ChargeSome is Charge for as many epochs, from the first on, as the budget suffices for. It returns the others.
func (l *Ledger) ChargeSome(epochs []uint64) (refused []uint64, err error) {
	return l.charge(epochs, true)
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

// Plan returns what the published epochs will cost when those given are charged too, and which of them the budget
// does not suffice for. It charges nothing.
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

// refresh takes what other processes have charged. l.mu is held.
func (l *Ledger) refresh() error {
	s, err := l.read()
	if err != nil {
		return err
	}
	if s.id != l.state.id { // It was begun meanwhile, and another task may have pinned another law.
		clear(l.costs)
	}
	if s.id != l.state.id || s.generation != l.state.generation {
		l.state = s
	}
	return nil
}

// Cost returns what the epochs cost that are charged, by whomever.
func (l *Ledger) Cost() (Cost, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if err := l.refresh(); err != nil {
		return Cost{}, err
	}
	return l.cost(l.state)
}

// plan returns the state in which epochs are charged, and those that are refused: all where partial is false. l.mu is
// held.
func (l *Ledger) plan(epochs []uint64, partial bool) (next *state, refused []uint64, err error) {
	uncharged := l.state.uncharged(l.task, epochs)
	if len(uncharged) == 0 {
		return l.state, nil, nil
	}
	next = l.state.clone()
	if err := l.admit(next); err != nil {
		return nil, nil, err
	}
	room, err := l.affordable(next, uint64(len(uncharged)))
	if err != nil || room < uint64(len(uncharged)) && !partial {
		return l.state, uncharged, err
	}
	if room == 0 {
		return l.state, uncharged, nil
	}
	next.add(l.task, uncharged[:room])
	return next, uncharged[room:], nil
}

// affordable returns how many further epochs the budget suffices for, at most as many as are asked for.
func (l *Ledger) affordable(s *state, asked uint64) (uint64, error) {
	if l.budget == nil {
		return asked, nil
	}
	low, high := uint64(0), asked+1 // It suffices for low, and not for high.
	for low+1 < high {
		middle := (low + high) / 2
		if high == asked+1 {
			middle = asked
		}
		eps, err := l.epsilon(s, s.count()+middle)
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

// epsilon returns the ε of so many epochs at the budget's δ, +Inf where none is known.
func (l *Ledger) epsilon(s *state, epochs uint64) (float64, error) {
	var failed error
	law := func() (law *compose.Law, err error) {
		law, failed = l.pinned(s)
		return law, failed
	}
	eps, err := protocols.Within(s.pinnedTask(l.task.Task), law, epochs, l.budget.Delta)
	if err != nil && failed == nil {
		return math.Inf(1), nil // That δ is less than what bounds nothing.
	}
	return eps, failed
}

// cost returns what so many epochs cost as a state has.
func (l *Ledger) cost(s *state) (Cost, error) {
	n := s.count()
	if known, ok := l.costs[n]; ok {
		return known, nil
	}
	c := Cost{Stream: l.stream, Epochs: n, Budget: l.budget}
	var err error
	switch {
	case n == 0:
		c.Epsilon = new(float64)
	case l.budget == nil:
		law := func() (*compose.Law, error) { return l.pinned(s) }
		var spent compose.Spend
		spent, err = protocols.Together(s.pinnedTask(l.task.Task), law, n)
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

// pinned returns the law of the stream's line.
func (l *Ledger) pinned(s *state) (*compose.Law, error) {
	if s.pin == nil || s.pin.law == nil {
		return l.law()
	}
	return s.pin.law, nil
}

// admit takes the task into the line: the first one pins it, and no other may exceed that.
func (l *Ledger) admit(s *state) error {
	if s.has(l.task) {
		return nil
	}
	defer s.add(l.task, nil)
	if s.pin != nil && l.task.Stream == nil {
		return nil // It is the only one.
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

// budgetError says what publishing would have cost.
func (l *Ledger) budgetError(refused []uint64) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	n := l.state.count()
	with, err := l.epsilon(l.state, n+uint64(len(refused)))
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

// list names numbers, of many the first.
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

// pin is what no task of a line may exceed: what its first charged task claims, with its law, which one of a single
// task does not need.
type pin struct {
	claim  task.Claim
	epochs uint64 // Of which the claim's total is.
	law    *compose.Law
}

func newPin(t *task.Task) *pin { return &pin{claim: t.Claim, epochs: t.Epochs.Count} }

// covering returns the pin, which covers another task of the stream: that costs no more in any epoch. Where it is so
// but for where grids end, the pin becomes one that could have been taken at first.
func (p *pin) covering(next *pin) (*pin, error) {
	if !(next.claim.Epsilon.Value() <= p.claim.Epsilon.Value() && next.claim.Delta.Value() <= p.claim.Delta.Value()) {
		return nil, invalid.Field("claim", next.claim.Epsilon.String()+", "+next.claim.Delta.String(), "at most "+
			p.claim.Epsilon.String()+", "+p.claim.Delta.String()+", what the first task claims whose epochs of the "+
			"stream were published")
	}
	if slices.Equal(next.law.Encode(), p.law.Encode()) || next.law.Below(p.law) {
		return p, nil
	}
	wider := *p
	if wider.law = p.law.WithTail(); next.law.Below(wider.law) {
		return &wider, nil
	}
	return nil, invalid.Field("stream", "a task of more privacy loss", "a law that lies nowhere above that of the "+
		"first task whose epochs of the stream were published")
}
