package clock_test

import (
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/doona-dp/doona/internal/clock"
)

const (
	epoch  = time.Hour
	epochs = 30
)

var begin = time.Unix(1_700_000_000, 0)

// world is a simulation: parties with clocks, and the true time, which only the test knows.
type world struct {
	now     time.Time
	parties []*party
}

// party is a machine with a clock, and the guard of the process on it.
type party struct {
	*clock.Guard
	world   *world
	file    string
	off     time.Duration // the machine's clock minus the true time
	slept   time.Duration // how long the machine slept: its monotonic clock stood still
	down    bool
	asks    []*party
	liesBy  time.Duration // what the party adds to its answers to others
	erased  map[int]time.Time
	refused time.Duration // how long the time was in doubt, so that reports were refused
	log     *slog.Logger  // nil for none
}

func newWorld(t *testing.T, parties int) *world {
	w := &world{now: begin.Add(10 * time.Minute)}
	for i := range parties {
		w.parties = append(w.parties, &party{world: w, file: filepath.Join(t.TempDir(), fmt.Sprint(i)),
			erased: map[int]time.Time{}})
	}
	for _, p := range w.parties {
		for _, other := range w.parties {
			if other != p {
				p.asks = append(p.asks, other)
			}
		}
	}
	return w
}

func (p *party) wall() time.Time { return p.world.now.Add(p.off) }

func (p *party) start(t *testing.T) {
	t.Helper()
	begun, slept := p.world.now, p.slept
	var err error
	p.Guard, err = clock.New(clock.Options{File: p.file, Wall: p.wall, Log: p.log, Tolerance: time.Minute,
		Elapsed: func() time.Duration { return p.world.now.Sub(begun) - (p.slept - slept) },
		Ends: func(from, to time.Time) bool {
			n := 0
			for e := range epochs {
				if end := p.end(e); p.erased[e].IsZero() && end.After(from) && !end.After(to) {
					n++
				}
			}
			return n > 1
		}})
	require.NoError(t, err)
	p.down = false
	var names []string
	for i := range p.asks {
		names = append(names, fmt.Sprint(i))
	}
	p.Await(names...)
}

func (p *party) end(e int) time.Time { return begin.Add(time.Duration(e+1) * epoch) }

// step makes a party ask its peers, as it does every minute, and erase the keys of epochs that are over.
func (p *party) step(t *testing.T, passed time.Duration) {
	t.Helper()
	if p.down {
		return
	}
	for i, n := range p.asks {
		if n.down {
			p.RecordSilence(fmt.Sprint(i))
			continue
		}
		p.RecordAnswer(fmt.Sprint(i), n.Read().Now.Add(n.liesBy).Truncate(time.Second), p.Elapsed())
	}
	read := p.Read()
	for e := range epochs {
		if p.erased[e].IsZero() && read.Over(p.end(e)) {
			p.erased[e] = p.world.now
		}
	}
	if read.Doubt != "" {
		p.refused += passed
	}
}

// run advances the true time by d, in steps of 20 s.
func (w *world) run(t *testing.T, d time.Duration) {
	t.Helper()
	for until := w.now.Add(d); w.now.Before(until); {
		w.now = w.now.Add(20 * time.Second)
		for _, p := range w.parties {
			p.step(t, 20*time.Second)
		}
	}
}

// wrong counts the epochs whose keys a party erased more than a minute too early, and those whose keys it kept more
// than a minute too long.
func (p *party) wrong() (early, late int) {
	for e := range epochs {
		end, at := p.end(e), p.erased[e]
		switch {
		case !at.IsZero() && at.Before(end.Add(-time.Minute)):
			early++
		case at.After(end.Add(time.Minute)) || at.IsZero() && p.world.now.After(end.Add(time.Minute)):
			late++
		}
	}
	return early, late
}

var jumps = []time.Duration{10 * time.Minute, 24 * time.Hour, 3653 * 24 * time.Hour}

// TestJumps tests the central guarantee: wherever and for however long a clock jumps, and whether or not the process
// restarts, it must erase no key early. If a peer is honest, it must keep no key too long. A party with a wrong clock
// must not harm the others.
func TestJumps(t *testing.T) {
	t.Parallel()
	for _, size := range jumps {
		for _, sign := range []time.Duration{1, -1} {
			for moment, at := range map[string]time.Duration{"before": 40 * time.Minute, "in": 90 * time.Minute,
				"after": 111 * time.Minute} {
				for _, lasts := range []time.Duration{time.Minute, 5 * time.Hour} {
					for _, restart := range []string{"", "during", "at the jump", "all"} {
						for parties := 2; parties <= 3; parties++ {
							t.Run(fmt.Sprint(sign*size, " ", moment, " ", lasts, " ", restart, " ", parties),
								func(t *testing.T) { jump(t, sign*size, at, lasts, restart, parties) })
						}
					}
				}
			}
		}
	}
}

func jump(t *testing.T, by, at, lasts time.Duration, restart string, parties int) {
	w := newWorld(t, parties)
	for _, p := range w.parties {
		p.start(t)
	}
	w.run(t, at)
	victim := w.parties[0]
	again := func(p *party) { // a restart that takes 5 s
		require.NoError(t, p.Save())
		w.now = w.now.Add(5 * time.Second)
		p.start(t)
	}
	if restart == "all" {
		for _, p := range w.parties[1:] {
			again(p)
		}
	}
	victim.off = by
	if restart == "at the jump" || restart == "all" {
		again(victim)
	}
	w.run(t, lasts/2)
	if restart == "during" {
		again(victim)
	}
	w.run(t, lasts/2)
	victim.off = 0
	w.run(t, 3*time.Hour)
	for i, p := range w.parties {
		early, late := p.wrong()
		require.Zero(t, early, "party %d erased keys early", i)
		require.Zero(t, late, "party %d kept keys too long", i)
		require.Empty(t, p.Read().Doubt, "party %d is in doubt at the end", i)
	}
	for _, p := range w.parties[1:] {
		require.LessOrEqual(t, p.refused, 40*time.Second, "another party refused reports for long")
	}
}

// TestFirstStart: at a first start, which has no mark, a wrong clock may end at most one epoch, and none if a peer
// contradicts it. If all parties start for the first time, they must trust clocks that agree.
func TestFirstStart(t *testing.T) {
	for _, by := range jumps {
		for parties := 1; parties <= 2; parties++ {
			w := newWorld(t, parties)
			w.parties[0].off = by
			for _, p := range w.parties {
				p.start(t)
			}
			w.run(t, 20*time.Minute)
			erased := len(w.parties[0].erased)
			require.LessOrEqual(t, erased, 1)
			if parties > 1 || by > epoch {
				require.Zero(t, erased)
				require.NotEmpty(t, w.parties[0].Read().Doubt)
			}
			w.parties[0].off = 0
			w.run(t, 2*time.Hour)
			if parties > 1 {
				early, late := w.parties[0].wrong()
				require.Zero(t, early+late, "%v", by)
			}
		}
	}
}

// TestAStartIsNoError: while a guard asks its peers at a start, it must not log an error. If no peer answers and the
// time is in doubt, it must.
func TestAStartIsNoError(t *testing.T) {
	w := newWorld(t, 2)
	p := w.parties[0]
	var log strings.Builder
	p.log = slog.New(slog.NewTextHandler(&log, nil))
	p.off = 24 * time.Hour
	p.start(t)
	require.Equal(t, clock.DoubtAsking, p.Read().Doubt)
	require.Contains(t, log.String(), "level=INFO msg=\"asking the peers for the time\"")
	require.NotContains(t, log.String(), "ERROR")
	w.parties[1].down = true
	p.step(t, 0)
	require.Contains(t, log.String(), "level=ERROR msg=\"the clock is in doubt\"")
	w.parties[1].start(t)
	p.off = 0
	w.run(t, 2*time.Minute)
	require.Empty(t, p.Read().Doubt)
	require.Contains(t, log.String(), "level=INFO msg=\"the clock is good again\"")
}

// TestUnconfirmedClock: the guard must log a warning if no peer has confirmed the clock, for example because a private
// certificate authority is missing in the configuration.
func TestUnconfirmedClock(t *testing.T) {
	w := newWorld(t, 2)
	p := w.parties[0]
	var log strings.Builder
	p.log = slog.New(slog.NewTextHandler(&log, nil))
	w.parties[1].down = true
	p.start(t)
	require.Equal(t, clock.DoubtAsking, p.Read().Doubt)
	p.step(t, 0)
	require.Empty(t, p.Read().Doubt)
	require.Contains(t, log.String(), "level=WARN msg=\"no peer has confirmed the clock")
	require.NotContains(t, log.String(), "the clock is good")
}

// TestDowntime: after many epochs without a process, two clocks that agree must end all epochs that are over. A single
// clock must end none until the operator trusts it.
func TestDowntime(t *testing.T) {
	w := newWorld(t, 2)
	p, other := w.parties[0], w.parties[1]
	p.start(t)
	other.start(t)
	w.run(t, 20*time.Minute)
	for _, p := range w.parties {
		require.NoError(t, p.Save())
		p.down = true
	}
	w.now = begin.Add(10*epoch + 30*time.Minute)
	p.start(t)
	w.run(t, 20*time.Minute)
	require.Equal(t, clock.DoubtManyEnds, p.Read().Doubt)
	require.Empty(t, p.erased)
	other.start(t)
	w.run(t, time.Minute)
	require.Len(t, p.erased, 10)
	require.Len(t, other.erased, 10)
	require.Empty(t, p.Read().Doubt)

	require.NoError(t, p.Save())
	other.down, p.down = true, true
	w.now = begin.Add(20*epoch + 30*time.Minute)
	p.start(t)
	w.run(t, time.Minute)
	require.Len(t, p.erased, 10)
	require.NoError(t, clock.Trust(p.file, p.wall()))
	require.NoError(t, p.Tick())
	w.run(t, time.Minute)
	require.Len(t, p.erased, 20)
	require.Empty(t, p.Read().Doubt)
}

// TestShortDowntime: after a restart during which no epoch ended, the guard must know the time without a peer.
func TestShortDowntime(t *testing.T) {
	w := newWorld(t, 1)
	p := w.parties[0]
	p.start(t)
	w.run(t, 5*time.Minute)
	require.NoError(t, p.Tick())
	w.now = w.now.Add(15 * time.Minute)
	p.start(t)
	require.Empty(t, p.Read().Doubt)
	w.run(t, time.Hour)
	require.Empty(t, p.Read().Doubt)
	require.Len(t, p.erased, 1, "want one epoch erased, late by the downtime, which no peer confirms")
}

// TestSleep: after a machine slept, its guard must continue as soon as another clock agrees, even if that other machine
// slept too.
func TestSleep(t *testing.T) {
	for _, both := range []bool{false, true} {
		w := newWorld(t, 2)
		for _, p := range w.parties {
			p.start(t)
		}
		w.run(t, 20*time.Minute)
		w.now = w.now.Add(3 * time.Hour)
		for i, p := range w.parties {
			if i == 0 || both {
				p.slept += 3 * time.Hour
			}
		}
		w.run(t, time.Minute)
		for _, p := range w.parties {
			require.Len(t, p.erased, 3)
			require.Empty(t, p.Read().Doubt)
		}
	}
}

// TestLiars: one lying peer must change nothing if this machine's clock is right or another peer is honest.
func TestLiars(t *testing.T) {
	for _, lie := range jumps {
		for _, sign := range []time.Duration{1, -1} {
			for _, off := range []time.Duration{0, 10 * time.Minute, -10 * time.Minute} {
				if off == sign*lie {
					continue // the liar and this machine's wrong clock would agree
				}
				w := newWorld(t, 3)
				w.parties[1].liesBy = sign * lie
				for _, p := range w.parties {
					p.start(t)
				}
				w.run(t, 20*time.Minute)
				w.parties[0].off = off
				w.run(t, 5*time.Hour)
				for _, p := range []*party{w.parties[0], w.parties[2]} {
					early, late := p.wrong()
					require.Zero(t, early, "lie %v, clock off by %v", sign*lie, off)
					require.Zero(t, late, "lie %v, clock off by %v", sign*lie, off)
				}
			}
		}
	}
}

// TestFastClock: the guard must detect a clock that runs twice as fast, although it never leaps far at once.
func TestFastClock(t *testing.T) {
	w := newWorld(t, 1)
	p := w.parties[0]
	p.start(t)
	for range 360 {
		p.off += 20 * time.Second
		w.run(t, 20*time.Second)
	}
	require.Len(t, p.erased, 2)
	early, late := p.wrong()
	require.Zero(t, early+late)
	require.Equal(t, clock.DoubtLeap, p.Read().Doubt)
}

// TestRecordPassed: a peer's statement that an epoch has begun must count, but only up to this machine's clock.
func TestRecordPassed(t *testing.T) {
	w := newWorld(t, 1)
	p := w.parties[0]
	p.start(t)
	w.run(t, time.Minute)
	require.NoError(t, p.Tick())
	w.now = w.now.Add(50 * time.Minute)
	p.start(t)
	p.RecordPassed(begin.Add(10 * epoch))
	require.WithinDuration(t, w.now, p.Read().Sure, time.Second)
	p.RecordPassed(begin)
	require.WithinDuration(t, w.now, p.Read().Sure, time.Second)
}

// TestAnEchoIsNoEvidence: a machine's clock is far ahead of a peer's, so the time is in doubt. The peer believes the
// wrong clock and states that later epochs have begun. That statement must not raise Sure.
func TestAnEchoIsNoEvidence(t *testing.T) {
	for _, by := range jumps {
		if by < 0 {
			continue
		}
		w := newWorld(t, 2)
		p, other := w.parties[0], w.parties[1]
		other.start(t)
		p.off = by
		p.start(t)
		w.run(t, 5*time.Minute)
		if p.Read().Doubt == "" {
			continue // the difference is so small that the two clocks agree
		}
		before := p.Read().Sure
		p.RecordPassed(w.now.Add(by))
		require.WithinDuration(t, before, p.Read().Sure, time.Second, "%v", by)
	}
}

// TestUnconfirmedThenTooEarly: a party starts while nobody confirms its time. It restarts with a clock that shows too
// early a time. A peer's answer and the mark must then count as two clocks that agree.
func TestUnconfirmedThenTooEarly(t *testing.T) {
	for _, by := range jumps {
		w := newWorld(t, 2)
		p, other := w.parties[0], w.parties[1]
		other.down = true
		p.start(t)
		w.run(t, 20*time.Minute)
		require.NoError(t, p.Save())
		other.start(t)
		p.off = -by
		p.start(t)
		w.run(t, 3*time.Hour)
		early, late := p.wrong()
		require.Zero(t, early+late, "%v", by)
		require.Empty(t, p.Read().Doubt)
	}
}

// TestMark: a damaged mark must be an error, not a first start.
func TestMark(t *testing.T) {
	file := filepath.Join(t.TempDir(), "mark")
	require.NoError(t, os.WriteFile(file, []byte(`{"kind":"doona hpke keys"}`), 0o600))
	_, err := clock.New(clock.Options{File: file})
	require.ErrorContains(t, err, "not a doona clock file")
}
