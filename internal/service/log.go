package service

import (
	"context"
	"log/slog"
	"math/bits"
	"sync"
	"time"
)

// Times in a log are rounded down to logTime. A warning or error is logged once per quietFor.
const (
	logTime  = time.Minute
	quietFor = 10 * time.Minute
	maxQuiet = 1024 // maximum number of lines remembered
)

// Coarse returns a log that does not reveal when a client came. A failure, such as a full disk, may repeat for each
// client. One line for each, with milliseconds, would list when clients reported. So Coarse rounds times down to the
// minute, and logs a repeated warning or error only once in ten minutes. The next such line has the number of omitted
// ones, rounded up to a power of two.
func Coarse(log *slog.Logger) *slog.Logger {
	if _, already := log.Handler().(*coarse); already {
		return log
	}
	return slog.New(&coarse{Handler: log.Handler(), recent: &recentLines{lines: map[string]*recentLine{}}})
}

type coarse struct {
	slog.Handler
	with   string // attributes and groups of every line
	recent *recentLines
}

// recentLines remembers recent lines.
type recentLines struct {
	mu    sync.Mutex
	lines map[string]*recentLine
}

type recentLine struct {
	at      time.Time
	omitted uint64 // since at
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

// shouldOmit reports whether to omit a line. If not, it returns how often the line was omitted since it was last
// logged.
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

// forget makes space for a line. It forgets old lines that were not omitted, and if that is not enough the oldest line.
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

// RoundUp rounds a count up to a power of two: the exact count of a small task would reveal single clients.
func RoundUp(n uint64) uint64 {
	if n <= 1 {
		return n
	}
	return 1 << bits.Len64(n-1)
}
