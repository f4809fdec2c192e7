package service

import (
	"context"
	"log/slog"
	"math/bits"
	"sync"
	"time"
)

// The times in a log are to the minute, and of one warning or error there is a line in quietFor.
const (
	logTime  = time.Minute
	quietFor = 10 * time.Minute
	maxQuiet = 1024 // different lines that are remembered
)

// Coarse returns a log that does not tell when a client came. What fails may fail for each client, as a store
// that is full does: a line for each with its milliseconds would be the list of who reported when that nobody
// is to keep. So times are to the minute, and a warning or an error is not said again within ten minutes; the
// line after that says how often it was left out, rounded up to a power of two.
func Coarse(log *slog.Logger) *slog.Logger {
	if _, already := log.Handler().(*coarse); already {
		return log
	}
	return slog.New(&coarse{Handler: log.Handler(), recent: &recentLines{lines: map[string]*recentLine{}}})
}

type coarse struct {
	slog.Handler
	with   string // what has been added to every line
	recent *recentLines
}

// said is what was said lately.
type recentLines struct {
	mu    sync.Mutex
	lines map[string]*recentLine
}

type recentLine struct {
	at      time.Time
	leftOut uint64
}

// WithAttrs is that of [slog.Handler].
func (c *coarse) WithAttrs(attrs []slog.Attr) slog.Handler {
	return &coarse{c.Handler.WithAttrs(attrs), c.with + slog.GroupValue(attrs...).String(), c.recent}
}

// WithGroup is that of [slog.Handler].
func (c *coarse) WithGroup(name string) slog.Handler {
	return &coarse{c.Handler.WithGroup(name), c.with + name, c.recent}
}

// Handle is that of [slog.Handler].
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

// again says whether a line is to be left out, and else how often it was since it was last said.
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

// forget makes room for a line: those go that may be said again and were not left out, and where that is not enough
// the one that was said longest ago.
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

// RoundUp rounds a count up to a power of two: an exact one of a small task would tell of single clients.
func RoundUp(n uint64) uint64 {
	if n <= 1 {
		return n
	}
	return 1 << bits.Len64(n-1)
}
