package shufflerclient

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"slices"

	"github.com/doona-dp/doona/accountant/compose"
	"github.com/doona-dp/doona/internal/invalid"
	"github.com/doona-dp/doona/randomizer"
	"github.com/doona-dp/doona/wire/task"
)

// Budget limits the privacy loss of one client's reports in any window of Days days. All reports of a window together,
// over all tasks, are (Epsilon, Delta)-private, even if earlier results influence the choice of later tasks
// (docs/proofs/budget.md, Theorem 4).
type Budget struct {
	Epsilon float64 // Above 0.
	Delta   float64 // In (0, 1]; 1 means no limit.
	Days    float64 // Length of the window. Above 0; +Inf for all time.
}

func (b Budget) check() error {
	switch {
	case !(b.Epsilon > 0):
		return invalid.Field("Budget.Epsilon", fmt.Sprint(b.Epsilon), "a number above 0")
	case !(b.Delta > 0 && b.Delta <= 1):
		return invalid.Field("Budget.Delta", fmt.Sprint(b.Delta), "a number in (0, 1]")
	case !(b.Days > 0):
		return invalid.Field("Budget.Days", fmt.Sprint(b.Days), "a number above 0")
	}
	return nil
}

func (b Budget) seconds() float64 { return b.Days * 86400 }

// Price is the cost of the reports of one [Line]: of a task or a stream. The first task of a stream fixes the privacy
// law of all its tasks.
type Price struct {
	First   compose.Spend `json:"first"`   // Cost of one report.
	Reports uint64        `json:"reports"` // Largest number of reports in a window.
	All     compose.Spend `json:"all"`     // Cost of that number of reports together, composed.

	// Events means that All relies on the task's limit on events, in all of its epochs that begin in a window.
	Events bool `json:"events,omitempty"`
}

// Line is a ledger's record of one task or stream.
type Line struct {
	ID      string `json:"id"`
	Price   Price  `json:"price"`
	Stepped bool   `json:"stepped"` // Charge reports singly, up to All; else the first report costs All.
	Runs    []Run  `json:"runs"`    // In ascending order, without overlaps.

	Length task.Length `json:"length"`

	// Block is the Unix time at which a block of the task's pace begins; nil without a pace. The first report draws it.
	Block *int64 `json:"block,omitempty"`

	// Events are the starts of the epochs of the last events, ascending: as many as the task allows in a window.
	Events []int64 `json:"events,omitempty"`

	// Set is what the line of a set has of its tables; nil for a task or a stream.
	Set *SetState `json:"set,omitempty"`
}

// Run is Count consecutive epochs that have one report each. The first of them begins at Start, a Unix time in seconds.
type Run struct {
	Start int64  `json:"start"`
	Count uint64 `json:"count"`
}

// Ledger records what a client's reports have cost, over all tasks. It never reads a clock and never removes an entry,
// so a wrong clock cannot free any budget. The zero value is an empty ledger. It is not safe for concurrent use; see
// [Keeper].
type Ledger struct {
	Lines   []Line `json:"lines"`
	Streams []Seen `json:"streams,omitempty"`
}

// ErrBudget, ErrReported and ErrCapped are the errors of [Ledger.Spend] that refuse a report. ErrAllowance is that of
// [Ledger.Event].
var (
	ErrAllowance = errors.New("couldn't send the event: its allowance is used up")

	ErrBudget   = errors.New("couldn't report: the budget is spent")
	ErrReported = errors.New("couldn't report: the ledger already has a report for this epoch")
	ErrCapped   = errors.New("couldn't report: the task's cap is reached")
)

// Spend enters a report in the line with this id. start is the Unix time at which the report's epoch begins. Of epochs,
// Spend reads the length, the cap and the pace. Spend fails and changes nothing if the reports of some window would
// exceed the budget ([ErrBudget]), if the line already has a report in that epoch ([ErrReported]), or if the task's cap
// or pace allows no report in it ([ErrCapped]).
func (l *Ledger) Spend(b Budget, id string, p Price, start int64, epochs task.Epochs) error {
	if err := b.check(); err != nil {
		return err
	}
	if err := l.check(); err != nil {
		return err
	}
	if err := (&Line{ID: id, Price: p, Length: epochs.Length}).check(); err != nil {
		return err
	}
	at := slices.IndexFunc(l.Lines, func(line Line) bool { return line.ID == id })
	if at >= 0 {
		line := l.Lines[at]
		if line.has(start, epochs.Length.Add(start, 1)) {
			return ErrReported
		}
		if err := cmp.Or(line.checkPace(epochs.Pace, start), line.checkCap(epochs.Cap, start)); err != nil {
			return err
		}
		if err := line.checkSpan(p); err != nil {
			return err
		}
		line.Runs = insert(line.Runs, start, line.Length)
		return l.admit(b, at, line, start)
	}
	line := Line{ID: id, Price: p, Stepped: b.Delta == 1, Length: epochs.Length, Runs: []Run{{start, 1}}}
	if err := line.checkPace(epochs.Pace, start); err != nil {
		return err
	}
	err := l.admit(b, len(l.Lines), line, start)
	if errors.Is(err, ErrBudget) && !line.Stepped {
		line.Stepped = true // Stepped charging needs less ε at first and more δ, so it may still fit.
		err = l.admit(b, len(l.Lines), line, start)
	}
	return err
}

// checkCap returns [ErrCapped] if a report in the epoch that begins at start would be the (R+1)-th in some W epochs'
// time. Like the budget, the cap reads no clock.
func (l *Line) checkCap(c task.Cap, start int64) error {
	if c.IsZero() {
		return nil
	}
	window := int64(c.Window)
	near := append(l.between(l.Length.Add(start, -window), l.Length.Add(start, window)), start)
	for _, first := range near {
		reports := uint64(0)
		for _, at := range near {
			if first <= start && at >= first && at < l.Length.Add(first, window) {
				reports++
			}
		}
		if reports > c.Reports {
			return fmt.Errorf("%w: at most %d in %d epochs, and %d are made", ErrCapped, c.Reports, c.Window, reports-1)
		}
	}
	return nil
}

// checkPace returns [ErrCapped] if the block of the pace that contains start already has as many reports as the pace
// allows. The line's first report draws where the blocks begin: otherwise all clients would fall silent together. The
// draw knows no value, and no claim counts on the pace.
func (l *Line) checkPace(pace task.Cap, start int64) error {
	if pace.IsZero() {
		return nil
	}
	if l.Block == nil {
		begin := l.Length.Add(start, -int64(randomizer.NewSource().Below(pace.Window)))
		l.Block = &begin
	}
	window, epoch := int64(pace.Window), l.Length.Between(*l.Block, start)
	into := epoch % window
	if into < 0 {
		into += window
	}
	from := l.Length.Add(*l.Block, epoch-into)
	reports := uint64(len(l.between(from-1, l.Length.Add(from, window))))
	if reports >= pace.Reports {
		return fmt.Errorf("%w: by its pace, %d in each %d epochs, and %d are made", ErrCapped, pace.Reports, pace.Window,
			reports)
	}
	return nil
}

// checkSpan returns [ErrBudget] if the price of a task with events covered fewer epochs when the line began than it
// would now: the budget's window has become longer, or the client follows a stream that it did not follow before. The
// price's reports could then be spread over more epochs, with more events.
func (l *Line) checkSpan(now Price) error {
	was := l.Price
	if (was.Events || now.Events) && (was.Events != now.Events || now.Reports > was.Reports ||
		now.All.Epsilon > was.All.Epsilon*(1+1e-6) || now.All.Delta > was.All.Delta*(1+1e-6)) {
		return fmt.Errorf("%w: the task has events, and its price was fixed for %d reports at epsilon %v; now they are %d "+
			"at %v", ErrBudget, was.Reports, was.All.Epsilon, now.Reports, now.All.Epsilon)
	}
	return nil
}

// Event records that the line's report in the epoch that begins at start is an event. It returns [ErrAllowance] and
// records nothing if the last epochs of the task's window have as many events as it allows, or if a recorded event is
// not older: the clock may have leapt. Send the default then. Like the cap, it reads no clock.
func (l *Ledger) Event(id string, start int64, e task.Epochs) error {
	at := slices.IndexFunc(l.Lines, func(line Line) bool { return line.ID == id })
	if at < 0 {
		return invalid.Field("ledger", id, "a line with a report")
	}
	return l.Lines[at].event(start, e)
}

// event is [Ledger.Event] for the line.
func (l *Line) event(start int64, e task.Epochs) error {
	n, most := len(l.Events), int(e.Events.Most)
	switch {
	case n > 0 && l.Events[n-1] >= start:
		return fmt.Errorf("%w: a later one is recorded", ErrAllowance)
	case n >= most && e.Length.Add(l.Events[n-most], int64(e.Events.Window)) > start:
		return fmt.Errorf("%w: at most %d in %d epochs", ErrAllowance, e.Events.Most, e.Events.Window)
	}
	events := append(slices.Clone(l.Events), start)
	l.Events = events[max(0, len(events)-most):]
	return nil
}

// admit stores a line if all windows around start then stay within the budget. The line replaces the one at index at,
// or is appended if at is the number of lines.
func (l *Ledger) admit(b Budget, at int, line Line, start int64) error {
	lines := append(slices.Clone(l.Lines[:at]), line)
	if at < len(l.Lines) {
		lines = append(lines, l.Lines[at+1:]...)
	}
	worst := most(lines, b, start)
	if !(fits(worst.Epsilon, b.Epsilon) && (fits(worst.Delta, b.Delta) || b.Delta == 1)) {
		return fmt.Errorf("%w: %v days with this report would cost epsilon %v, delta %v", ErrBudget, b.Days, worst.Epsilon,
			worst.Delta)
	}
	l.Lines = lines
	return nil
}

// fits reports whether a sum of decimals is within a limit. It tolerates binary rounding errors: three times 0.1 fits
// 0.3.
func fits(sum, limit float64) bool { return sum <= limit*(1+1e-12) }

// most returns the largest ε and the largest δ of all windows that contain the time around. It only tries windows that
// begin with an epoch: each other window has no more reports than one of these.
func most(lines []Line, b Budget, around int64) (worst compose.Spend) {
	type event struct {
		at   int64
		line int
	}
	window := math.Ceil(min(b.seconds(), 1<<50))
	after, before := around-int64(window), around+int64(window)
	var events []event
	for i := range lines {
		for _, at := range lines[i].between(after, before) {
			events = append(events, event{at, i})
		}
	}
	slices.SortFunc(events, func(x, y event) int { return int(min(max(x.at-y.at, -1), 1)) })
	counts, next := make([]uint64, len(lines)), 0
	for _, first := range events {
		if first.at > around {
			break
		}
		for ; next < len(events) && float64(events[next].at-first.at) < b.seconds(); next++ {
			counts[events[next].line]++
		}
		sum := compose.Spend{}
		for i := range lines {
			cost := lines[i].cost(counts[i])
			sum.Epsilon, sum.Delta = sum.Epsilon+cost.Epsilon, sum.Delta+cost.Delta
		}
		worst.Epsilon, worst.Delta = max(worst.Epsilon, sum.Epsilon), max(worst.Delta, sum.Delta)
		counts[first.line]--
	}
	return worst
}

// between returns the start times of the line's epochs that begin after one time and before another, in ascending
// order. A run of a line of months may begin within a month, if a later task of the stream has other epochs.
func (l *Line) between(after, before int64) (out []int64) {
	for _, run := range l.Runs {
		at := run.Start
		for i := max(0, l.Length.Between(run.Start, after)); i < int64(run.Count); i++ {
			if i > 0 {
				at = l.Length.Add(run.Start, i)
			}
			if at >= before {
				break
			}
			if at > after {
				out = append(out, at)
			}
		}
	}
	return out
}

// cost returns the charge for n reports in a window. Every Price.Reports reports form a group, and the charges of the
// groups add up.
func (l *Line) cost(n uint64) compose.Spend {
	groups, rest := n/l.Price.Reports, n%l.Price.Reports
	if rest == 0 && groups > 0 {
		groups, rest = groups-1, l.Price.Reports
	}
	one, last := l.group(l.Price.Reports), l.group(rest)
	return compose.Spend{
		Epsilon: float64(groups)*one.Epsilon + last.Epsilon,
		Delta:   float64(groups)*one.Delta + last.Delta,
	}
}

// group returns the charge for n reports of one group, n at most Price.Reports (docs/proofs/budget.md).
func (l *Line) group(n uint64) compose.Spend {
	p := l.Price
	added := min(uint64(p.All.Epsilon/p.First.Epsilon), p.Reports) // k: single reports that All pays for
	switch {
	case n == 0:
		return compose.Spend{}
	case !l.Stepped:
		return p.All
	case added == p.Reports:
		return compose.Spend{Epsilon: float64(n) * p.First.Epsilon, Delta: float64(added) * p.First.Delta}
	case n > added:
		return compose.Spend{Epsilon: p.All.Epsilon, Delta: p.All.Delta + float64(added)*p.First.Delta}
	}
	return compose.Spend{Epsilon: float64(n) * p.First.Epsilon, Delta: p.All.Delta + float64(added)*p.First.Delta}
}

// check returns an error unless the ledger, as read from storage, is consistent.
func (l *Ledger) check() error {
	seen := map[string]bool{}
	for i := range l.Lines {
		line := &l.Lines[i]
		if err := line.check(); err != nil {
			return err
		}
		if seen[line.ID] {
			return invalid.Field("ledger", line.ID, "each line once")
		}
		seen[line.ID] = true
	}
	return l.checkStreams()
}

// maxCount is the largest Count of a stored run; no task has that many epochs.
const maxCount = 1 << 32

func (l *Line) check() error {
	p := l.Price
	positive := p.Reports > 0 && p.First.Epsilon > 0 && p.All.Epsilon > 0
	isLength := l.Length > 0 && l.Length < 1<<30 || l.Length == task.Month
	if !(positive && p.First.Delta >= 0 && p.All.Delta >= 0 && isLength) {
		return invalid.Field("ledger", l.ID, "a line with a price, and the length of its epochs")
	}
	for i, run := range l.Runs {
		if run.Count < 1 || run.Count > maxCount || i > 0 &&
			l.over(l.Runs[i-1]) > run.Start {
			return invalid.Field("ledger", l.ID, "runs of 1 to 2^32 epochs, ascending, without overlaps")
		}
	}
	for i, at := range l.Events {
		if i > 0 && l.Events[i-1] >= at {
			return invalid.Field("ledger", l.ID, "events in ascending order")
		}
	}
	if l.Set != nil {
		return l.Set.check(l.ID)
	}
	return nil
}

// over returns when the last epoch of a run ends.
func (l *Line) over(r Run) int64 { return l.Length.Add(r.Start, int64(r.Count)) }

// has reports whether an epoch overlaps an epoch that already has a report.
func (l *Line) has(start, end int64) bool {
	return slices.ContainsFunc(l.Runs, func(r Run) bool { return start < l.over(r) && r.Start < end })
}

// insert returns runs with one more epoch, and joins runs that touch.
func insert(runs []Run, start int64, length task.Length) []Run {
	at, _ := slices.BinarySearchFunc(runs, start, func(r Run, start int64) int {
		return int(min(max(r.Start-start, -1), 1))
	})
	out := slices.Insert(slices.Clone(runs), at, Run{start, 1})
	for i := len(out) - 1; i > 0; i-- {
		if before := &out[i-1]; length.Add(before.Start, int64(before.Count)) == out[i].Start {
			before.Count += out[i].Count
			out = slices.Delete(out, i, i+1)
		}
	}
	return out
}
