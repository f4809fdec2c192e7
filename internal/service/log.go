package service

import (
	"context"
	"log/slog"
	"math/bits"
	"sync"
	"time"
)

// Bounds of a [Coarse] log.
const (
	logTime  = time.Minute      // times are rounded down to a multiple of it
	quietFor = 10 * time.Minute // a repeated warning or error is logged once in this time
	maxQuiet = 1024             // maximum number of warnings and errors remembered
)

// Coarse returns a log that does not reveal when a client reported. A failure such as a full disk may repeat for each
// client, and one line per failure with milliseconds would list the times of reports. So Coarse rounds times down to
// the minute. It logs a repeated warning or error only once in ten minutes. The next such line says how many were
// omitted, rounded up to a power of two.
func Coarse(log *slog.Logger) *slog.Logger {
	if _, already := log.Handler().(*coarse); already {
		return log
	}
	return slog.New(&coarse{Handler: log.Handler(), recent: &recentLines{lines: map[string]*recentLine{}}})
}

type coarse struct {
	slog.Handler
	with   string // attributes and groups that every line has, as text
	recent *recentLines
}

type recentLines struct {
	mu    sync.Mutex
	lines map[string]*recentLine
}

type recentLine struct {
	at      time.Time
	omitted uint64 // repetitions that were not logged since at
}

// leveled is a handler whose level can be changed, by its name.
type leveled interface {
	Level() string
	SetLevel(name string) error
}

// levelOf returns the handler that holds the level of a log, or nil if the level is fixed.
func levelOf(log *slog.Logger) leveled {
	handler := log.Handler()
	if c, ok := handler.(*coarse); ok {
		handler = c.Handler
	}
	h, _ := handler.(leveled)
	return h
}

// WithAttrs implements [slog.Handler].
func (c *coarse) WithAttrs(attrs []slog.Attr) slog.Handler {
	return &coarse{c.Handler.WithAttrs(attrs), c.with + slog.GroupValue(attrs...).String(), c.recent}
}

// WithGroup implements [slog.Handler].
func (c *coarse) WithGroup(name string) slog.Handler {
	return &coarse{c.Handler.WithGroup(name), c.with + name, c.recent}
}

// Handle implements [slog.Handler].
func (c *coarse) Handle(ctx context.Context, r slog.Record) error {
	if r.Level >= slog.LevelWarn {
		line := c.with + r.Message
		r.Attrs(func(a slog.Attr) bool {
			line += " " + a.String()
			return true
		})
		omitted, omit := c.recent.shouldOmit(line, r.Time)
		if omit {
			return nil
		}
		if omitted > 0 {
			r = r.Clone()
			r.AddAttrs(slog.Uint64("repeated", RoundUp(omitted)))
		}
	}
	r.Time = r.Time.Truncate(logTime)
	return c.Handler.Handle(ctx, r)
}

// shouldOmit reports whether to omit a line, because it was logged in the last quietFor. If not, it returns how many
// repetitions were omitted since then.
func (s *recentLines) shouldOmit(line string, now time.Time) (omitted uint64, omit bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	before := s.lines[line]
	if before != nil && now.Sub(before.at) < quietFor && !now.Before(before.at) {
		before.omitted++
		return 0, true
	}
	if before != nil {
		omitted = before.omitted
	}
	s.forget(now)
	s.lines[line] = &recentLine{now, 0}
	return omitted, false
}

// forget makes space for a line. It forgets old lines of which no repetition was left out of the log. If that is not
// enough, it forgets the oldest line.
func (s *recentLines) forget(now time.Time) {
	oldest := ""
	for line, recent := range s.lines {
		if now.Sub(recent.at) >= quietFor && recent.omitted == 0 {
			delete(s.lines, line)
		} else if first := s.lines[oldest]; first == nil || recent.at.Before(first.at) {
			oldest = line
		}
	}
	if len(s.lines) >= maxQuiet {
		delete(s.lines, oldest)
	}
}

// RoundUp rounds a count up to a power of two, because the exact count of a small task would reveal single clients.
func RoundUp(n uint64) uint64 {
	if n <= 1 {
		return n
	}
	return 1 << bits.Len64(n-1)
}
