package shufflerclient

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"

	"github.com/doona-dp/doona/accountant/compose"
	"github.com/doona-dp/doona/internal/invalid"
	"github.com/doona-dp/doona/randomizer"
	"github.com/doona-dp/doona/wire/task"
)

// SetState is what a set's line of the ledger has of its tables. The line's own runs are the days that count: those
// with a submission, and those on which an epoch of a slow table began to which it reported (docs/proofs/sets.md).
type SetState struct {
	Day    int64        `json:"day"` // When the last day that was claimed begins, a Unix time in seconds.
	Tables []TableState `json:"tables"`
}

// TableState has, of one table, what a [Line] has of a task: times are Unix times in seconds.
type TableState struct {
	Runs   []Run   `json:"runs"`
	Block  *int64  `json:"block,omitempty"`
	Events []int64 `json:"events,omitempty"`
}

// line returns the state as a line, for the rules of caps, paces and events.
func (s TableState) line(length task.Length) Line {
	return Line{Length: length, Runs: s.Runs, Block: s.Block, Events: s.Events}
}

// ErrClaimed is the error of [SetClient.Report] for a day at or before the last one that the ledger has.
var ErrClaimed = errors.New("couldn't report: the ledger has this day, or a later one")

// errNotOpen is why a table that has no values, or no epoch on a day, takes no value.
var errNotOpen = errors.New("couldn't report: the table takes no value on this day")

// checkLedger checks a set against the budget, and finds the tables' defaults.
func (c *SetClient) checkLedger() error {
	b, total := c.options.Budget, c.set.Total
	if err := b.check(); err != nil {
		return err
	}
	switch {
	case c.set.Position > 0:
		return invalid.Field("Ledger", "a renewal", "the set at position 0: the ledger does not follow renewals")
	case !(b.Days <= float64(total.Days)):
		return invalid.Field("Budget.Days", fmt.Sprint(b.Days), fmt.Sprintf("at most %d, the days of the set's total",
			total.Days))
	case !(total.Epsilon.Value() <= b.Epsilon && total.Delta.Value() <= b.Delta):
		return invalid.Field("Budget", fmt.Sprintf("(%v, %v)", b.Epsilon, b.Delta), "at least the set's total, ("+
			total.Epsilon.String()+", "+total.Delta.String()+")")
	}
	for i, t := range c.set.Tasks {
		m := task.Message{Cover: true}
		switch name := c.set.Tables[i].Name; {
		case c.set.Tables[i].Bare:
		case !t.Epochs.Events.IsZero():
			m = task.Message{Body: defaultMessage(t)[0][0]}
		default:
			drawn, err := c.mechanisms[i].Randomize(randomizer.NewSource(), c.options.Usual[name])
			if err != nil {
				return fmt.Errorf("option Usual, table %s: %w", name, err)
			}
			m = task.Message{Body: drawn[0][0]}
		}
		c.usual = append(c.usual, m)
	}
	return nil
}

// Report claims a day and seals its submission. Call it once a day, when all its values are known, also if there are
// none. It needs a ledger. Errors such as [ErrClaimed] and [ErrBudget] change nothing.
//
// By earlier reports alone, the ledger decides to which tables it reports. Such a table reports its default if it has
// no value, an invalid one, or an event beyond its allowance. The others get covers. The report's Instead says for
// which tables values were left out, and why. All is recorded durably before Report returns. So after a crash the day
// is used.
func (c *SetClient) Report(ctx context.Context, day uint64, values map[string][]float64) (*Report, error) {
	if c.options.Ledger == nil {
		return nil, invalid.Field("Ledger", "nil", "a ledger")
	}
	if count := c.set.Tasks[0].Epochs.Count; day >= count {
		return nil, invalid.Field("day", fmt.Sprint(day), fmt.Sprintf("0 to %d", count-1))
	}
	for name := range values {
		if !c.has(name) {
			return nil, errOtherTable
		}
	}
	sealer, err := c.sealer(ctx, day)
	if err != nil {
		return nil, err
	}
	claim, messages, instead := c.claimOf(day, values)
	err = c.options.Ledger.Update(func(l *Ledger) error { return l.claimDay(c.options.Budget, claim) })
	if err != nil {
		return nil, err
	}
	for i := range claim.tables {
		table := &claim.tables[i]
		switch {
		case table.notDue != nil:
			messages[i] = task.Message{Cover: true}
		case table.allowance != nil:
			messages[i] = c.usual[i]
		}
		name := c.set.Tables[i].Name
		if why := cmp.Or(table.notDue, table.allowance); why != nil && values[name] != nil {
			instead = append(instead, fmt.Errorf("table %s: %w", name, why))
		}
	}
	r, err := c.seal(sealer, day, messages)
	if err != nil {
		return nil, err
	}
	r.Instead = errors.Join(instead...)
	return r, nil
}

func (c *SetClient) has(table string) bool {
	for _, t := range c.set.Tables {
		if t.Name == table {
			return true
		}
	}
	return false
}

// claimOf returns the claim of a day, each table's message if it is due, and which values are invalid.
func (c *SetClient) claimOf(day uint64, values map[string][]float64) (claim *dayClaim, messages []task.Message,
	instead []error) {
	total, days := c.set.Total, c.set.Tasks[0].Epochs
	claim = &dayClaim{id: c.set.RootID().String(), start: int64(days.Begin(day)), length: days.Length,
		total: compose.Spend{Epsilon: total.Epsilon.Value(), Delta: total.Delta.Value()}}
	for i, t := range c.set.Tasks {
		epoch, open := c.set.At(i, day)
		table, m := tableDay{open: open && !c.set.Tables[i].Bare, start: int64(t.Epochs.Begin(epoch)),
			epochs: t.Epochs}, c.usual[i]
		if value := values[c.set.Tables[i].Name]; table.open && value != nil {
			drawn, err := c.mechanisms[i].Randomize(randomizer.NewSource(), value) // Draws nothing.
			if err == nil {
				m = task.Message{Body: drawn[0][0]}
			} else {
				instead = append(instead, fmt.Errorf("table %s: %w", c.set.Tables[i].Name, err))
			}
			table.event = !t.Epochs.Events.IsZero() && !bytes.Equal(m.Body, c.usual[i].Body)
		}
		claim.tables, messages = append(claim.tables, table), append(messages, m)
	}
	return claim, messages, instead
}

// dayClaim is a day of a set to claim.
type dayClaim struct {
	id     string // of the set
	start  int64  // when the day begins, in Unix time
	length task.Length
	total  compose.Spend
	tables []tableDay
}

// tableDay is a table on a day.
type tableDay struct {
	open   bool  // it has values, and an epoch on this day
	start  int64 // of its epoch
	epochs task.Epochs
	event  bool // it has a value other than its default

	notDue    error // set by the claim: why the browser does not report to it; nil if it does
	allowance error // set by the claim: why it must send the default; nil if it need not
}

// allReports is more reports than any window has, so that the line of a set always costs its whole total.
const allReports = 1 << 40

// claimDay decides to which tables a browser reports on a day, and enters the day, the reports and the events.
func (l *Ledger) claimDay(b Budget, claim *dayClaim) error {
	if err := l.check(); err != nil {
		return err
	}
	line := Line{ID: claim.id, Price: Price{First: claim.total, Reports: allReports, All: claim.total},
		Length: claim.length}
	tables := make([]TableState, len(claim.tables))
	at := l.index(claim.id)
	if at < len(l.Lines) {
		old := l.Lines[at]
		if old.Set == nil || len(old.Set.Tables) != len(tables) {
			return invalid.Field("ledger", claim.id, "the line of a set with as many tables")
		}
		if claim.start <= old.Set.Day {
			return ErrClaimed
		}
		copy(tables, old.Set.Tables)
		line.Runs = old.Runs
	}
	counted := []int64{claim.start}
	for i := range tables {
		if tables[i] = claim.tables[i].claim(tables[i]); claim.tables[i].notDue == nil {
			counted = append(counted, claim.tables[i].start)
		}
	}
	line.Set = &SetState{claim.start, tables}
	for _, start := range counted {
		if !line.has(start, line.Length.Add(start, 1)) {
			line.Runs = insert(line.Runs, start, line.Length)
		}
	}
	next := &Ledger{Lines: l.Lines}
	for _, start := range counted {
		if err := next.admit(b, next.index(claim.id), line, start); err != nil {
			return err
		}
	}
	l.Lines = next.Lines
	return nil
}

// index returns the index of the line with an id, or the number of lines.
func (l *Ledger) index(id string) int {
	for i, line := range l.Lines {
		if line.ID == id {
			return i
		}
	}
	return len(l.Lines)
}

// claim decides whether the table is due, and returns its state with this report and event. Whether it is due does not
// depend on the event.
func (d *tableDay) claim(s TableState) TableState {
	line := s.line(d.epochs.Length)
	switch {
	case !d.open:
		d.notDue = errNotOpen
	case line.has(d.start, d.epochs.Length.Add(d.start, 1)):
		d.notDue = ErrReported
	default:
		d.notDue = cmp.Or(line.checkPace(d.epochs.Pace, d.start), line.checkCap(d.epochs.Cap, d.start))
	}
	if d.notDue != nil {
		return s
	}
	if d.event {
		d.allowance = line.event(d.start, d.epochs)
	}
	return TableState{insert(line.Runs, d.start, line.Length), line.Block, line.Events}
}

// check returns an error unless the tables' states are consistent. How long their epochs are is not recorded.
func (s *SetState) check(id string) error {
	for _, table := range s.Tables {
		line := table.line(1)
		line.ID, line.Price = id, Price{First: compose.Spend{Epsilon: 1}, Reports: 1, All: compose.Spend{Epsilon: 1}}
		if err := line.check(); err != nil {
			return err
		}
	}
	return nil
}
