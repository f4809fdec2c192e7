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
	maxQuiet = 1024 // most lines that are remembered
)

// Coarse returns a log that does not reveal when a client came. A failure, such as a full disk, may repeat for each
// client: one line for each, with milliseconds, would list when clients reported. So Coarse rounds times down to the
// minute, and logs a repeated warning or error only once in ten minutes. The next such line says how often it was
// omitted, rounded up to a power of two.
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
	leftOut uint64
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
		leftOut, quiet := c.recent.again(line, r.Time)
		if quiet {
			return nil
		}
		if leftOut > 0 {
			r = r.Clone()
			r.AddAttrs(slog.Uint64("repeated", RoundUp(leftOut)))
		}
	}
	r.Time = r.Time.Truncate(logTime)
	return c.Handler.Handle(ctx, r)
}

// again says whether to omit a line. If not, it returns how often the line was omitted since it was last logged.
func (s *recentLines) again(line string, now time.Time) (leftOut uint64, quiet bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	before := s.lines[line]
	if before != nil && now.Sub(before.at) < quietFor && !now.Before(before.at) {
		before.leftOut++
		return 0, true
	}
	if before != nil {
		leftOut = before.leftOut
	}
	s.forget(now)
	s.lines[line] = &recentLine{now, 0}
	return leftOut, false
}

// forget makes space for a line. It forgets old lines that were not omitted, and if that is not enough the oldest line.
func (s *recentLines) forget(now time.Time) {
	oldest := ""
	for line, saying := range s.lines {
		if now.Sub(saying.at) >= quietFor && saying.leftOut == 0 {
			delete(s.lines, line)
		} else if first := s.lines[oldest]; first == nil || saying.at.Before(first.at) {
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
