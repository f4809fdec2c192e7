// Package clock decides what time it is, because a wrong time would destroy keys.
//
// A party (a relay or an issuer) has its machine's clock W, its peers' clocks N, signed for a fresh nonce, and the
// process's monotonic clock, which nobody can set. From these a [Guard] keeps two times:
//
//	sure     a time that has certainly passed. A party erases keys by sure, and by nothing else.
//	now      the best estimate, by which a party accepts reports. In doubt it accepts none.
//
// Sure advances with the monotonic clock. Otherwise it advances only to a time that two clocks have reached: the second
// latest of W and all N. So one wrong clock, whichever it is, erases no key early, and it cannot delay an erasure if
// two others agree. A file called the mark keeps sure over restarts. If W shows less than the mark, W is wrong, and a
// single peer determines the time. At the very first start there is no mark. The guard then trusts W if at most one
// epoch has ended by W, until a peer contradicts.
//
// Now is W, unless W leaps against the monotonic clock. After a leap, now is the time that a peer confirms: W, for
// example after the machine slept, or the time from before the leap, advanced by the monotonic clock. The time is in
// doubt if no peer confirms either of them. It is also in doubt after a start if more than one epoch would end at W.
// And it is in doubt if a peer contradicts W and the last confirmation is so old that W could have drifted away.
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
	DoubtAsking   Doubt = "the peers' clocks have not answered yet"
	DoubtLeap     Doubt = "this machine's clock has leapt, and no peer's clock confirms a time"
	DoubtDiffers  Doubt = "this machine's clock and the peers' differ"
	DoubtTooEarly Doubt = "this machine's clock shows a time earlier than one that has certainly passed"
	DoubtManyEnds Doubt = "by this machine's clock several epochs have ended since the last run; no peer confirms it"
)

// Options configure a guard.
type Options struct {
	File string // path of the mark; "" for none

	Wall    func() time.Time     // this machine's clock. Default time.Now.
	Elapsed func() time.Duration // monotonic time of this process. Default: from the monotonic part of Wall.

	// Tolerance is the largest difference between clocks that count as equal. Default 1 minute. Range above 0.
	Tolerance time.Duration

	// Ends reports whether, of the epochs that have not ended here, more than one ends in (from, to]. from may be the
	// zero time.
	Ends func(from, to time.Time) bool

	Log *slog.Logger // Default: none.
}

// Reading is the time as a guard knows it.
type Reading struct {
	Now    time.Time // best estimate; in doubt, this machine's clock
	Sure   time.Time // a time that has certainly passed; zero if none is known
	Latest time.Time // no clock shows a later time
	Doubt  Doubt
}

// Over reports whether the moment at has certainly passed.
func (r Reading) Over(at time.Time) bool { return !r.Sure.IsZero() && !r.Sure.Before(at) }

// Tolerance returns Options.Tolerance for epochs of epoch seconds: the lesser of 1 minute and half an epoch, but at
// least 2 s, because a signed time is in whole seconds.
func Tolerance(epoch uint64) time.Duration {
	return max(2*time.Second, min(time.Minute, time.Duration(min(epoch, 120))*time.Second/2))
}

// Guard tells a party the time. It is safe for concurrent use.
type Guard struct {
	o     Options
	first time.Time // first reading of Wall

	mu            sync.Mutex // guards the rest
	wall          time.Time  // Wall at the last update; all that follows is from then, too
	elapsed       time.Duration
	estimate      time.Time // last time known to be right, advanced since
	sure          time.Time
	sureConfirmed bool // two clocks or the operator confirmed sure
	sureFromMark  bool // sure is the mark's time, advanced since the start
	estimateGood  bool
	contradicted  bool              // peers contradicted the estimate, and none has confirmed it since
	answers       map[string]answer // by the peer's name
	names         []string          // names of all peers
	pending       map[string]bool   // peers that have not answered or failed since the start or the last leap
	differing     map[string]bool   // peers whose clocks differ from wall, for the log
	confirmedAt   time.Duration     // elapsed when a peer last confirmed the estimate
	everConfirmed bool              // a peer has confirmed the estimate
	mark          savedTime         // content of the file
	obeyed        int64             // time of the last order followed
	doubt         Doubt             // at the last update

	peers    []peer // asked by [Guard.Watch]
	watching bool
}

// answer is a peer's answer about its clock.
type answer struct {
	clock  time.Time     // the peer's clock showed between clock and clock + margin
	margin time.Duration // duration of the exchange, plus 1 s for the peer's rounding down
	at     time.Duration // elapsed when the answer came
	ahead  time.Duration // how far wall was ahead of estimate then
}

// maxAge is how long a peer's answer counts.
const maxAge = 10 * time.Minute

// slew limits how fast the estimate follows a clock that runs too fast or slow: by at most 1/slew of the time that
// passes. NTP corrects at most half of that.
const slew = 1000

// New returns a guard. If there is a mark, the guard continues from it.
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
	g := &Guard{o: o, first: o.Wall(), answers: map[string]answer{}, pending: map[string]bool{},
		differing: map[string]bool{}}
	g.wall, g.elapsed = g.clocks()
	g.estimate = g.wall
	m, err := readMark(o.File)
	if err != nil {
		return nil, err
	}
	g.mark = m
	g.restoreMark()
	return g, nil
}

// Await makes the guard wait until each of these peers has answered or [Guard.RecordSilence] was called for it. Only
// then may the guard use this machine's clock alone.
func (g *Guard) Await(peers ...string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.waitFor(peers)
}

func (g *Guard) waitFor(peers []string) {
	g.names = peers
	g.await()
	if g.estimateGood && len(peers) > 0 {
		g.estimateGood = false
		g.restoreMark()
	}
}

func (g *Guard) await() {
	for _, name := range g.names {
		g.pending[name] = true
	}
}

// restoreMark sets sure back to the mark, unless clocks or the operator have confirmed sure since.
func (g *Guard) restoreMark() {
	if !g.sureConfirmed {
		g.sure, g.sureConfirmed, g.sureFromMark = g.mark.time(), g.mark.Confirmed, g.mark.Sure > 0
	}
}

// Read returns the time.
func (g *Guard) Read() Reading {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.update()
	latest := later(later(g.wall, g.estimate), g.sure)
	for _, a := range g.answers {
		latest = later(latest, g.earliest(a))
	}
	sure := g.sure
	if !g.sureConfirmed && !g.near(sure, g.wall, 0) && sure.After(g.wall) {
		sure = time.Time{} // wall now contradicts its earlier reading
	}
	return Reading{g.now(), sure, latest, g.doubt}
}

// Elapsed returns the monotonic time of this process, for [Guard.RecordAnswer].
func (g *Guard) Elapsed() time.Duration {
	_, elapsed := g.clocks()
	return elapsed
}

// clocks reads this machine's clock only once, because it runs for every report.
func (g *Guard) clocks() (wall time.Time, elapsed time.Duration) {
	now := g.o.Wall()
	if g.o.Elapsed != nil {
		return now.Round(0), g.o.Elapsed()
	}
	return now.Round(0), now.Sub(g.first)
}

// RecordAnswer records a peer's signed time. asked is what [Guard.Elapsed] returned when the peer was asked.
func (g *Guard) RecordAnswer(peer string, clock time.Time, asked time.Duration) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.record(peer, clock, asked)
}

// record is RecordAnswer; the caller holds g.mu.
func (g *Guard) record(peer string, clock time.Time, asked time.Duration) {
	g.update()
	delete(g.pending, peer)
	g.answers[peer] = answer{clock.Round(0), max(g.elapsed-asked, 0) + time.Second, g.elapsed, g.ahead()}
	g.evaluate()
	off := !g.near(clock, g.wall, g.elapsed-asked+time.Second)
	if off && !g.differing[peer] {
		g.o.Log.Warn("a peer's clock and this machine's differ", "peer", peer, "ahead",
			clock.Sub(g.wall).Round(time.Second))
	}
	g.differing[peer] = off
}

// RecordSilence records that a peer did not answer. Its last answer still counts for 10 minutes.
func (g *Guard) RecordSilence(peer string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	delete(g.pending, peer)
	g.update()
}

// RecordPassed records a peer's signed statement that a moment has passed: for example, that an epoch has begun or
// ended. It counts only up to this machine's time, and not while the time is in doubt: the peer may have set its clock
// by this machine's wrong one.
func (g *Guard) RecordPassed(at time.Time) {
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

// Offsets returns how far each peer's clock is ahead of this machine's.
func (g *Guard) Offsets() map[string]time.Duration {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.update()
	out := map[string]time.Duration{}
	for name, a := range g.answers {
		out[name] = g.earliest(a).Add(a.margin / 2).Sub(g.wall)
	}
	return out
}

// update advances estimate and sure by the monotonic time since the last call, then evaluates them.
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
	before := len(g.answers)
	maps.DeleteFunc(g.answers, func(_ string, a answer) bool {
		// A leap of wall, for example after a sleep, makes earlier answers unreliable.
		return elapsed-a.at > maxAge || (g.ahead()-a.ahead).Abs() > g.o.Tolerance
	})
	if len(g.answers) < before {
		g.await()
	}
	g.evaluate()
}

// ahead returns how far this machine's clock is ahead of the estimate.
func (g *Guard) ahead() time.Duration { return g.wall.Sub(g.estimate) }

// earliest returns the earliest time that a peer's clock may show now, given its last answer.
func (g *Guard) earliest(a answer) time.Time { return a.clock.Add(g.elapsed - a.at) }

// near reports whether two times differ by at most the tolerance plus margin.
func (g *Guard) near(a, b time.Time, margin time.Duration) bool {
	return a.Sub(b).Abs() <= g.o.Tolerance+margin
}

// isConfirmed reports whether at least one peer's clock agrees with t.
func (g *Guard) isConfirmed(t time.Time) bool {
	for _, a := range g.answers {
		if g.near(g.earliest(a), t, a.margin) {
			return true
		}
	}
	return false
}

// now returns the best estimate: this machine's clock, unless that has leapt and a peer confirms the time from before
// the leap.
func (g *Guard) now() time.Time {
	if g.doubt == "" && !g.near(g.estimate, g.wall, 0) {
		return g.estimate
	}
	return g.wall
}

// evaluate decides whether the time is in doubt and which time has certainly passed.
func (g *Guard) evaluate() {
	before := g.doubt
	if g.estimateGood {
		g.doubt = g.checkGood()
	}
	if !g.estimateGood {
		g.doubt = g.findEstimate()
	}
	if g.doubt == "" && g.isConfirmed(g.now()) {
		g.confirmedAt, g.everConfirmed, g.contradicted = g.elapsed, true, false
	}
	g.advanceSure()
	switch ahead := g.ahead().Round(time.Second); {
	case g.doubt == before:
	case g.doubt == DoubtAsking: // At every start, until each peer has answered or failed.
		g.o.Log.Info("asking the peers for the time")
	case g.doubt != "":
		g.o.Log.Error("the clock is in doubt", "why", string(g.doubt))
	case before == DoubtAsking && len(g.answers) == 0:
		g.o.Log.Warn("no peer has confirmed the clock: using this machine's clock alone")
	case before == DoubtAsking:
		g.o.Log.Info("the clock is good", "ahead", ahead)
	default:
		g.o.Log.Info("the clock is good again", "ahead", ahead)
	}
}

// checkGood checks whether an estimate that was good still is. It returns the doubt.
func (g *Guard) checkGood() Doubt {
	before, after := g.isConfirmed(g.estimate), g.isConfirmed(g.wall)
	switch {
	case g.near(g.estimate, g.wall, 0):
		drifted := !g.everConfirmed || (g.elapsed-g.confirmedAt)/slew > g.o.Tolerance
		if len(g.answers) == 0 || before || after || !drifted {
			return ""
		}
		g.estimateGood, g.contradicted = false, true
		return DoubtDiffers
	case before && !after:
		return ""
	case after && (!before || g.near(g.estimate, g.wall, 2*g.o.Tolerance)):
		g.estimate = g.wall
		g.keepAnswers()
		return ""
	}
	return DoubtLeap
}

// keepAnswers keeps the peers' answers valid after the estimate has moved.
func (g *Guard) keepAnswers() {
	for name, a := range g.answers {
		a.ahead = g.ahead()
		g.answers[name] = a
	}
}

// findEstimate looks for a good estimate at a start, or after peers contradicted the last one. It returns the doubt.
func (g *Guard) findEstimate() (why Doubt) {
	if !g.near(g.estimate, g.wall, 0) { // this machine's clock was set since: forget the contradiction
		g.contradicted = false
	}
	g.estimate = g.wall
	switch {
	case g.sureFromMark && g.near(g.sure, g.wall, 0): // the mark confirms wall, like a peer
		g.confirmedAt, g.everConfirmed = g.elapsed, g.sureConfirmed
	case g.isConfirmed(g.wall) && !(g.tooEarly() && g.sureConfirmed):
	case g.tooEarly() && len(g.answers) > 0 && len(g.pending) == 0:
		if g.estimate = g.timeOfPeers(); g.estimate.Before(g.sure.Add(-g.o.Tolerance)) {
			why = DoubtTooEarly
		}
	case len(g.pending) > 0:
		return DoubtAsking
	case g.tooEarly():
		return DoubtTooEarly
	case len(g.answers) > 0 || g.contradicted:
		g.contradicted = true
		return DoubtDiffers
	case g.o.Ends(g.sure, g.wall):
		return DoubtManyEnds
	case g.sure.IsZero():
		g.sure = g.wall
	}
	g.keepAnswers()
	g.estimateGood = why == ""
	return why
}

// tooEarly reports whether this machine's clock shows a time earlier than sure.
func (g *Guard) tooEarly() bool { return g.wall.Before(g.sure.Add(-g.o.Tolerance)) }

// timeOfPeers returns the time by the peers' clocks alone: the second latest, or the only one.
func (g *Guard) timeOfPeers() time.Time {
	var all []time.Time
	for _, a := range g.answers {
		all = append(all, g.earliest(a))
	}
	return secondLatest(all)
}

func secondLatest(all []time.Time) time.Time {
	slices.SortFunc(all, func(a, b time.Time) int { return b.Compare(a) })
	return all[min(1, len(all)-1)]
}

// advanceSure raises sure to the time that two clocks have reached. If peers contradict a sure that nothing confirms,
// as at a first start, it drops sure.
func (g *Guard) advanceSure() {
	if !g.sureConfirmed && g.doubt != "" && len(g.answers) > 0 && !g.tooEarly() {
		g.sure, g.sureFromMark = time.Time{}, false
	}
	if len(g.answers) == 0 {
		return
	}
	if g.tooEarly() {
		if len(g.pending) == 0 { // a single answer does not count while another may come
			g.raise(g.timeOfPeers())
		}
		return
	}
	own := g.now()
	if g.doubt != "" && g.estimate.Before(own) {
		own = g.estimate
	}
	all := []time.Time{own}
	for _, a := range g.answers {
		all = append(all, g.earliest(a))
	}
	g.raise(secondLatest(all))
}

// raise raises sure to a confirmed time. It lowers a sure that nothing has confirmed.
func (g *Guard) raise(to time.Time) {
	if !g.sureConfirmed && g.sure.After(to) && !g.near(g.sure, to, 0) {
		g.sure = to
	}
	g.sure, g.sureConfirmed, g.sureFromMark = later(g.sure, to), true, false
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

// follow moves t towards to, by at most limit.
func follow(t, to time.Time, limit time.Duration) time.Time {
	return t.Add(max(-limit, min(limit, to.Sub(t))))
}
