// Package clock decides what time it is, where a wrong time would destroy keys.
//
// A party has its machine's clock W, its neighbours' clocks N, signed for a fresh nonce, and the process's monotonic
// clock, which nobody can set. From these a [Guard] keeps two times:
//
//	sure     the time that has surely come. Keys are erased by it and by nothing else.
//	now      the best estimate, by which reports are taken; or a doubt, in which none are.
//
// Sure advances with the monotonic clock. Otherwise it advances only to a time that two clocks say has come: the second
// latest of W and all N. So one wrong clock, whosever, erases nothing early. It cannot keep a key longer if two others
// agree. A file, the mark, keeps sure over restarts. A clock that is behind the mark is wrong; a single neighbour then
// determines the time. The very first start has no mark: the guard then trusts W if at most one epoch has ended by it,
// until a neighbour contradicts.
//
// Now is W, unless W leaps against the monotonic clock. After a leap, now is the time that a neighbour agrees with: W,
// as after a machine slept, or the time from before the leap, advanced. If no neighbour confirms either, the time is in
// doubt. It is also in doubt after a start by which more than one epoch would end, and when a neighbour contradicts and
// none has agreed for so long that W could have drifted away.
package clock

import (
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"
)

// Doubt says why the time is in doubt; "" if it is known.
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
	Elapsed func() time.Duration // monotonic time of this process. Default: by Wall's monotonic readings.

	// Tolerance is by how much clocks that agree may differ. Default 1 minute. Range above 0.
	Tolerance time.Duration

	// Ends says whether more than one epoch that has not ended here ends in (from, to]. from may be the zero time.
	Ends func(from, to time.Time) bool

	Log *slog.Logger // Default: none.
}

// Reading is the time, by a guard.
type Reading struct {
	Now    time.Time // best estimate; this machine's clock while in doubt
	Sure   time.Time // has surely come; zero if nothing is known
	Latest time.Time // no clock shows a later time
	Doubt  Doubt
}

// Over says whether a moment has surely come.
func (r Reading) Over(at time.Time) bool { return !r.Sure.IsZero() && !r.Sure.Before(at) }

// Tolerance returns the tolerance for epochs of epoch seconds: the lesser of 1 minute and half an epoch, but at least 2
// s, as a signed time has no fractions.
func Tolerance(epoch uint64) time.Duration {
	return max(2*time.Second, min(time.Minute, time.Duration(min(epoch, 120))*time.Second/2))
}

// Guard keeps a party's time. It is safe for concurrent use.
type Guard struct {
	o     Options
	first time.Time // the first reading of Wall

	mu       sync.Mutex // guards the rest
	wall     time.Time  // at the last update, as all that follows
	elapsed  time.Duration
	estimate time.Time // wall when it was last good, advanced since
	sure     time.Time
	evident  bool // two clocks, or the operator, confirmed sure
	marked   bool // sure is the mark, advanced since the start
	settled  bool // estimate is good
	differs  bool // neighbours contradicted, and none has agreed since
	words    map[string]word
	known    []string        // names of all neighbours
	pending  map[string]bool // neighbours to ask since the start or the last leap
	off      map[string]bool // neighbours whose clocks differ, for the log
	agreed   time.Duration   // elapsed when a neighbour last agreed with the estimate
	ever     bool            // a neighbour has agreed
	mark     mark            // as in the file
	obeyed   int64           // the operator's last order, by its time
	doubt    Doubt           // at the last update

	neighbours []neighbour // [Guard.Watch] asks them
	watching   bool
}

// word is what a neighbour said about its clock.
type word struct {
	clock time.Time     // its clock showed this, or up to give more
	give  time.Duration // duration of the answer, plus the second that was truncated
	at    time.Duration // elapsed when the answer came
	ahead time.Duration // by how much wall was ahead of estimate then
}

// maxAge is how long a neighbour's word counts.
const maxAge = 10 * time.Minute

// slew limits how fast the estimate follows a clock that runs faster or slower: 1/slew of the time that passes. NTP
// corrects by half of that at most.
const slew = 1000

// New returns a guard that continues from the mark, if there is one.
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

// Await makes the guard wait for the first answers of neighbours, or for [Guard.Silent], before it uses this machine's
// clock alone.
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

// remember returns to the mark, unless there has been evidence since.
func (g *Guard) remember() {
	if !g.evident {
		g.sure, g.evident, g.marked = g.mark.time(), g.mark.Evident, g.mark.Sure > 0
	}
}

// Read returns the time.
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
		sure = time.Time{} // this machine's clock now contradicts its earlier reading
	}
	return Reading{g.now(), sure, latest, g.doubt}
}

// Elapsed returns the monotonic time of this process, for [Guard.Heard].
func (g *Guard) Elapsed() time.Duration {
	_, elapsed := g.clocks()
	return elapsed
}

// clocks reads this machine's clock, once: every report calls it.
func (g *Guard) clocks() (wall time.Time, elapsed time.Duration) {
	now := g.o.Wall()
	if g.o.Elapsed != nil {
		return now.Round(0), g.o.Elapsed()
	}
	return now.Round(0), now.Sub(g.first)
}

// Heard records a neighbour's signed time. asked is the [Guard.Elapsed] at which it was asked for.
func (g *Guard) Heard(neighbour string, clock time.Time, asked time.Duration) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.hear(neighbour, clock, asked)
}

// hear is Heard; the caller holds g.mu.
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

// Silent records that a neighbour did not answer. Its earlier word counts until it is old.
func (g *Guard) Silent(neighbour string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	delete(g.pending, neighbour)
	g.update()
}

// Told records a neighbour's signed statement that a moment has come: for example, that an epoch has begun or ended. It
// counts only up to this machine's clock, and not at all while the time is in doubt: the statement may echo what this
// machine's wrong clock has told the neighbour.
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

// update advances the times by the monotonic time since the last call, then judges.
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
		// A leap, such as a sleep, makes earlier words unreliable.
		return elapsed-w.at > maxAge || (g.ahead()-w.ahead).Abs() > g.o.Tolerance
	})
	if len(g.words) < heard {
		g.await()
	}
	g.judge()
}

// ahead returns by how much this machine's clock is ahead of the estimate.
func (g *Guard) ahead() time.Duration { return g.wall.Sub(g.estimate) }

// said returns the least time that a neighbour's clock shows now.
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

// now returns the best estimate: this machine's clock, unless it has leapt and a neighbour says that it was right
// before.
func (g *Guard) now() time.Time {
	if g.doubt == "" && !g.near(g.estimate, g.wall, 0) {
		return g.estimate
	}
	return g.wall
}

// judge decides whether the time is known, and what time has surely come.
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
	case g.doubt == DoubtAsking: // For a moment at every start: each neighbour answers or is silent.
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

// rehear keeps neighbours' words after the estimate was moved.
func (g *Guard) rehear() {
	for name, w := range g.words {
		w.ahead = g.ahead()
		g.words[name] = w
	}
}

// settle judges a clock at a start, or after neighbours contradicted it.
func (g *Guard) settle() (why Doubt) {
	if !g.near(g.estimate, g.wall, 0) { // it was set since: forget the contradiction
		g.differs = false
	}
	g.estimate = g.wall
	switch {
	case g.marked && g.near(g.sure, g.wall, 0): // the mark counts as a clock
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

// behind says whether this machine's clock is behind a time that it or others have shown before.
func (g *Guard) behind() bool { return g.wall.Before(g.sure.Add(-g.o.Tolerance)) }

// others returns the time by the neighbours' clocks alone: the second latest, or the only one.
func (g *Guard) others() time.Time {
	var all []time.Time
	for _, w := range g.words {
		all = append(all, g.said(w))
	}
	return second(all)
}

// second returns the second latest of several times, or the only one.
func second(all []time.Time) time.Time {
	slices.SortFunc(all, func(a, b time.Time) int { return b.Compare(a) })
	return all[min(1, len(all)-1)]
}

// witness raises sure to the time that two clocks agree has come. It drops the unconfirmed time of a first start if
// neighbours contradict it.
func (g *Guard) witness() {
	if !g.evident && g.doubt != "" && len(g.words) > 0 && !g.behind() {
		g.sure, g.marked = time.Time{}, false
	}
	if len(g.words) == 0 {
		return
	}
	if g.behind() {
		if len(g.pending) == 0 { // one word does not count alone while another may come
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

// raise raises sure to a time for which there is evidence.
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

// follow moves a time towards another, by at most most.
func follow(t, to time.Time, most time.Duration) time.Time {
	return t.Add(max(-most, min(most, to.Sub(t))))
}
