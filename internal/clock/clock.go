// Package clock decides how late it is where being wrong destroys keys.
//
// A party has its machine's clock, W; its neighbours' clocks N, signed for a fresh nonce; and the time
// that passes in the process (monotonic), which nobody sets. From these a [Guard] keeps two times:
//
//	sure     the time that has surely come. Keys are erased by it and by nothing else.
//	now      the best estimate, by which reports are taken; or a doubt, in which none are.
//
// Sure goes on with the time that passes, and else only to what two clocks say has come: the second
// latest of W and all N. So one wrong clock, whosever, erases nothing early; and it cannot keep a key for
// longer where two others agree. The mark, a file, keeps it over restarts. A clock that is behind
// the mark is shown wrong; a single neighbour then speaks for the time. The first start of all has no
// mark: it takes W's word if at most one epoch ends by that, until a neighbour contradicts.
//
// Now is W, unless W leaps against the time that passes. Then it is whichever a neighbour agrees with:
// W, as after a machine slept, or the time from before the leap that goes on. What no neighbour
// confirms is a doubt. So is a start after which more than one epoch would end, and a neighbour's
// contradiction where none has agreed for as long as W could have drifted away.
package clock

import (
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"
)

// Doubt says why the time is not known; "" says that it is.
type Doubt string

// The doubts of a [Reading].
const (
	DoubtAsking   Doubt = "the neighbours' clocks have not answered yet"
	DoubtLeap     Doubt = "this machine's clock has leapt, and no neighbour's clock says which time it is"
	DoubtDiffers  Doubt = "this machine's clock and the neighbours' differ"
	DoubtBehind   Doubt = "this machine's clock is behind a time that has surely passed"
	DoubtManyEnds Doubt = "by this machine's clock several epochs have ended meanwhile, and nobody else says so"
)

// Options describe a guard.
type Options struct {
	File string // of the mark; "" for none

	Wall    func() time.Time     // this machine's clock. Default time.Now.
	Elapsed func() time.Duration // the time that has passed in this process. Default: by Wall's monotonic readings.

	// Tolerance is by how much clocks that agree may differ. Default a minute. Range above 0.
	Tolerance time.Duration

	// Ends says whether more than one epoch of a task that has not ended here ends after from, which
	// may be the zero time, and by to.
	Ends func(from, to time.Time) bool

	Log *slog.Logger // Default: none.
}

// Reading is what a guard says about the time.
type Reading struct {
	Now    time.Time // the best estimate; this machine's clock in doubt
	Sure   time.Time // has surely come; zero where nothing is known
	Latest time.Time // nobody's clock says that it is later
	Doubt  Doubt
}

// Over says whether a moment has surely come.
func (r Reading) Over(at time.Time) bool { return !r.Sure.IsZero() && !r.Sure.Before(at) }

// Tolerance returns the tolerance for epochs of a length in seconds: a minute, or half of an epoch, and 2
// seconds at least, as a signed time has no fractions.
func Tolerance(epoch uint64) time.Duration {
	return max(2*time.Second, min(time.Minute, time.Duration(min(epoch, 120))*time.Second/2))
}

// Guard keeps a party's time. It is safe for concurrent use.
type Guard struct {
	o     Options
	first time.Time // the first reading of Wall

	mu       sync.Mutex // guards the rest
	wall     time.Time  // at the last look, as all that follows
	elapsed  time.Duration
	estimate time.Time // what wall was when it was last good, and the time since
	sure     time.Time
	evident  bool // sure was ever what two clocks said, or the operator
	marked   bool // sure is the mark, and the time since the start
	settled  bool // estimate is good
	differs  bool // neighbours contradicted, and none agreed since
	words    map[string]word
	known    []string        // all neighbours' names
	pending  map[string]bool // those that have not been asked since the start or the last leap
	off      map[string]bool // neighbours whose clocks differ, for the log
	agreed   time.Duration   // when a neighbour last agreed with the estimate
	ever     bool            // one did
	mark     mark            // in the file
	obeyed   int64           // the last order of the operator
	doubt    Doubt           // that of the last look

	neighbours []neighbour // whom [Guard.Watch] asks
	watching   bool
}

// word is what a neighbour said about its clock.
type word struct {
	clock time.Time     // its clock stood there, or later by at most give
	give  time.Duration // how long the answer took, and the second that was cut off
	at    time.Duration // elapsed when it came
	ahead time.Duration // by how much wall was ahead of estimate then
}

// maxAge is how long a neighbour's word stands.
const maxAge = 10 * time.Minute

// slew is the part of the time that passes by which the estimate may follow a clock that runs faster or
// slower; NTP corrects by half of it at most.
const slew = 1000

// New returns a guard that goes on from the mark, if there is one.
func New(o Options) (*Guard, error) {
	if o.Wall == nil {
		o.Wall = time.Now
	}
	if o.Tolerance == 0 {
		o.Tolerance = time.Minute
	}
	if o.Ends == nil {
		o.Ends = func(time.Time, time.Time) bool { return false }
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	g := &Guard{o: o, first: o.Wall(), words: map[string]word{}, pending: map[string]bool{}, off: map[string]bool{}}
	g.wall, g.elapsed = g.clocks()
	g.estimate = g.wall
	m, err := readMark(o.File)
	if err != nil {
		return nil, err
	}
	g.mark = m
	g.remember()
	return g, nil
}

// Await has the guard wait for the first answers of some neighbours, or for [Guard.Silent], before it
// goes by this machine's clock alone.
func (g *Guard) Await(neighbours ...string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.waitFor(neighbours)
}

func (g *Guard) waitFor(neighbours []string) {
	g.known = neighbours
	g.await()
	if g.settled && len(neighbours) > 0 {
		g.settled = false
		g.remember()
	}
}

func (g *Guard) await() {
	for _, name := range g.known {
		g.pending[name] = true
	}
}

// remember goes back to the mark, unless there has been evidence since.
func (g *Guard) remember() {
	if !g.evident {
		g.sure, g.evident, g.marked = g.mark.time(), g.mark.Evident, g.mark.Sure > 0
	}
}

// Read says how late it is.
func (g *Guard) Read() Reading {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.update()
	latest := later(later(g.wall, g.estimate), g.sure)
	for _, w := range g.words {
		latest = later(latest, g.said(w))
	}
	sure := g.sure
	if !g.evident && !g.near(sure, g.wall, 0) && sure.After(g.wall) {
		sure = time.Time{} // this machine's clock says now that it was wrong
	}
	return Reading{g.now(), sure, latest, g.doubt}
}

// Elapsed is the time that has passed in this process, for [Guard.Heard].
func (g *Guard) Elapsed() time.Duration {
	_, elapsed := g.clocks()
	return elapsed
}

// clocks reads this machine's clock, once: every report has it read.
func (g *Guard) clocks() (wall time.Time, elapsed time.Duration) {
	now := g.o.Wall()
	if g.o.Elapsed != nil {
		return now.Round(0), g.o.Elapsed()
	}
	return now.Round(0), now.Sub(g.first)
}

// Heard takes a neighbour's signed time, which was asked for at a moment of [Guard.Elapsed].
func (g *Guard) Heard(neighbour string, clock time.Time, asked time.Duration) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.hear(neighbour, clock, asked)
}

// hear is Heard. g.mu is held.
func (g *Guard) hear(neighbour string, clock time.Time, asked time.Duration) {
	g.update()
	delete(g.pending, neighbour)
	g.words[neighbour] = word{clock.Round(0), max(g.elapsed-asked, 0) + time.Second, g.elapsed, g.ahead()}
	g.judge()
	off := !g.near(clock, g.wall, g.elapsed-asked+time.Second)
	if off && !g.off[neighbour] {
		g.o.Log.Warn("a neighbour's clock and this machine's differ", "neighbour", neighbour, "ahead",
			clock.Sub(g.wall).Round(time.Second))
	}
	g.off[neighbour] = off
}

// Silent takes note that a neighbour did not answer. What it said before stands until it is old.
func (g *Guard) Silent(neighbour string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	delete(g.pending, neighbour)
	g.update()
}

// Told takes a neighbour's signed word that a moment has come, without saying how late it is: of an epoch
// that it has begun, or has ended. It counts as much as this machine's clock says, too; and not at all while the
// time is in doubt: the word may be an echo of what this machine's wrong clock has told the neighbour.
func (g *Guard) Told(at time.Time) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.update(); g.doubt != "" {
		return
	}
	if own := g.now(); own.Before(at) {
		at = own
	}
	if at = at.Round(0); at.After(g.sure) {
		g.raise(at)
	}
}

// Offsets returns by how much each neighbour's clock is ahead of this machine's.
func (g *Guard) Offsets() map[string]time.Duration {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.update()
	out := map[string]time.Duration{}
	for name, w := range g.words {
		out[name] = g.said(w).Add(w.give / 2).Sub(g.wall)
	}
	return out
}

// look takes the time that has passed since the last look, and judges.
func (g *Guard) update() {
	wall, elapsed := g.clocks()
	passed := max(elapsed-g.elapsed, 0)
	g.wall, g.elapsed = wall, elapsed
	g.estimate = g.estimate.Add(passed)
	if !g.sure.IsZero() {
		g.sure = g.sure.Add(passed)
	}
	if g.doubt == "" && g.near(g.estimate, wall, 0) {
		g.estimate = follow(g.estimate, wall, passed/slew)
		if g.near(g.sure, wall, 0) {
			g.sure = follow(g.sure, wall, passed/slew)
		}
	}
	heard := len(g.words)
	maps.DeleteFunc(g.words, func(_ string, w word) bool {
		// Before a sleep, the neighbours' clocks too would be counted on by too little.
		return elapsed-w.at > maxAge || (g.ahead()-w.ahead).Abs() > g.o.Tolerance
	})
	if len(g.words) < heard {
		g.await()
	}
	g.judge()
}

// ahead is by how much this machine's clock is ahead of the estimate.
func (g *Guard) ahead() time.Duration { return g.wall.Sub(g.estimate) }

// said is what a neighbour's clock says now, at least.
func (g *Guard) said(w word) time.Time { return w.clock.Add(g.elapsed - w.at) }

func (g *Guard) near(a, b time.Time, give time.Duration) bool {
	return a.Sub(b).Abs() <= g.o.Tolerance+give
}

// agrees says whether a neighbour's clock agrees with a time.
func (g *Guard) agrees(t time.Time) bool {
	for _, w := range g.words {
		if g.near(g.said(w), t, w.give) {
			return true
		}
	}
	return false
}

// now is the best estimate: this machine's clock, unless it has leapt and a neighbour says that it was
// right before.
func (g *Guard) now() time.Time {
	if g.doubt == "" && !g.near(g.estimate, g.wall, 0) {
		return g.estimate
	}
	return g.wall
}

// judge decides whether the time is known, and what has surely come.
func (g *Guard) judge() {
	before := g.doubt
	if g.settled {
		g.doubt = g.keep()
	}
	if !g.settled {
		g.doubt = g.settle()
	}
	if g.doubt == "" && g.agrees(g.now()) {
		g.agreed, g.ever, g.differs = g.elapsed, true, false
	}
	g.witness()
	switch ahead := g.ahead().Round(time.Second); {
	case g.doubt == before:
	case g.doubt == DoubtAsking: // For a moment, at every start: each neighbour answers, or is silent.
		g.o.Log.Info("asking the neighbours for the time")
	case g.doubt != "":
		g.o.Log.Error("the clock is in doubt", "why", string(g.doubt))
	case before == DoubtAsking && len(g.words) == 0:
		g.o.Log.Warn("no neighbour has told the time: going by this machine's clock alone")
	case before == DoubtAsking:
		g.o.Log.Info("the clock is good", "ahead", ahead)
	default:
		g.o.Log.Info("the clock is good again", "ahead", ahead)
	}
}

// keep judges a clock that was good.
func (g *Guard) keep() Doubt {
	before, after := g.agrees(g.estimate), g.agrees(g.wall)
	switch {
	case g.near(g.estimate, g.wall, 0):
		drifted := !g.ever || (g.elapsed-g.agreed)/slew > g.o.Tolerance
		if len(g.words) == 0 || before || after || !drifted {
			return ""
		}
		g.settled, g.differs = false, true
		return DoubtDiffers
	case before && !after:
		return ""
	case after && (!before || g.near(g.estimate, g.wall, 2*g.o.Tolerance)):
		g.estimate = g.wall
		g.rehear()
		return ""
	}
	return DoubtLeap
}

// rehear keeps what neighbours have said where the estimate has been moved.
func (g *Guard) rehear() {
	for name, w := range g.words {
		w.ahead = g.ahead()
		g.words[name] = w
	}
}

// settle judges a clock at a start, and one that neighbours contradicted.
func (g *Guard) settle() (why Doubt) {
	if !g.near(g.estimate, g.wall, 0) { // it has been set since: what was said of it is over
		g.differs = false
	}
	g.estimate = g.wall
	switch {
	case g.marked && g.near(g.sure, g.wall, 0): // the mark is a clock, too
		g.agreed, g.ever = g.elapsed, g.evident
	case g.agrees(g.wall) && !(g.behind() && g.evident):
	case g.behind() && len(g.words) > 0 && len(g.pending) == 0:
		if g.estimate = g.others(); g.estimate.Before(g.sure.Add(-g.o.Tolerance)) {
			why = DoubtBehind
		}
	case len(g.pending) > 0:
		return DoubtAsking
	case g.behind():
		return DoubtBehind
	case len(g.words) > 0 || g.differs:
		g.differs = true
		return DoubtDiffers
	case g.o.Ends(g.sure, g.wall):
		return DoubtManyEnds
	case g.sure.IsZero():
		g.sure = g.wall
	}
	g.rehear()
	g.settled = why == ""
	return why
}

// behind says whether this machine's clock is behind a time that it has said, or others have, before.
func (g *Guard) behind() bool { return g.wall.Before(g.sure.Add(-g.o.Tolerance)) }

// others is the time by the neighbours' clocks alone: the second latest, or the only one.
func (g *Guard) others() time.Time {
	var all []time.Time
	for _, w := range g.words {
		all = append(all, g.said(w))
	}
	return second(all)
}

// second returns the second latest of some times, and of one that.
func second(all []time.Time) time.Time {
	slices.SortFunc(all, func(a, b time.Time) int { return b.Compare(a) })
	return all[min(1, len(all)-1)]
}

// witness raises sure to what two clocks say. A first start's time that nobody confirmed falls
// when neighbours contradict it.
func (g *Guard) witness() {
	if !g.evident && g.doubt != "" && len(g.words) > 0 && !g.behind() {
		g.sure, g.marked = time.Time{}, false
	}
	if len(g.words) == 0 {
		return
	}
	if g.behind() {
		if len(g.pending) == 0 { // one word does not count alone while there may be another
			g.raise(g.others())
		}
		return
	}
	own := g.now()
	if g.doubt != "" && g.estimate.Before(own) {
		own = g.estimate
	}
	all := []time.Time{own}
	for _, w := range g.words {
		all = append(all, g.said(w))
	}
	g.raise(second(all))
}

// raise raises sure to a time that there is evidence for.
func (g *Guard) raise(to time.Time) {
	if !g.evident && g.sure.After(to) && !g.near(g.sure, to, 0) {
		g.sure = to
	}
	g.sure, g.evident, g.marked = later(g.sure, to), true, false
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

// follow moves a time towards another, by at most so much.
func follow(t, to time.Time, most time.Duration) time.Time {
	return t.Add(max(-most, min(most, to.Sub(t))))
}
