package clock

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"time"

	"github.com/doona-dp/doona/internal/durable"
)

// savedTime is the content of a guard's mark file.
type savedTime struct {
	Kind      string `json:"kind"`
	Sure      int64  `json:"sure"`              // the guard's time sure, in Unix seconds; 0 if none is known
	Confirmed bool   `json:"evident"`           // two clocks or the operator confirmed Sure
	Trusted   int64  `json:"trusted,omitempty"` // Unix seconds of the operator's order to trust this machine's clock
}

const markKind = "doona clock"

// orderAge is how long an operator's order to trust this machine's clock is valid, by that clock.
const orderAge = time.Hour

func (m savedTime) time() time.Time {
	if m.Sure == 0 {
		return time.Time{}
	}
	return time.Unix(m.Sure, 0)
}

// readMark reads a mark file. A missing file is no error.
func readMark(path string) (m savedTime, err error) {
	if path == "" {
		return m, nil
	}
	in, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return m, nil
	}
	if err != nil {
		return m, fmt.Errorf("couldn't read the mark of the clock: %w", err)
	}
	if err := json.Unmarshal(in, &m); err != nil || m.Kind != markKind || m.Sure < 0 {
		return m, fmt.Errorf("couldn't read %s: not a %s file", path, markKind)
	}
	return m, nil
}

// change modifies a mark file, durably, while it holds the file's lock.
func change(path string, to func(*savedTime)) (m savedTime, err error) {
	unlock, err := durable.Lock(path)
	if err != nil {
		return m, fmt.Errorf("couldn't lock the mark of the clock: %w", err)
	}
	defer unlock()
	if m, err = readMark(path); err != nil {
		return m, err
	}
	m.Kind = markKind
	to(&m)
	out, err := json.Marshal(m)
	if err == nil {
		err = durable.WriteFile(path, append(out, '\n'), 0o600)
	}
	if err != nil {
		return m, fmt.Errorf("couldn't write the mark of the clock: %w", err)
	}
	return m, nil
}

// Trust orders the relay or issuer with the mark file path to trust its machine's clock, which shows now. A running
// process obeys at once, another one if it starts within an hour.
func Trust(path string, now time.Time) error {
	_, err := change(path, func(m *savedTime) { m.Trusted = now.Unix() })
	return err
}

// Tick reads the operator's orders. If sure has moved by more than half the tolerance, it writes the mark. Call it
// about every second.
func (g *Guard) Tick() error { return g.updateMark(g.o.Tolerance / 2) }

// Save writes the mark even if sure has moved less than Tick requires. Call it before the process ends.
func (g *Guard) Save() error { return g.updateMark(0) }

// updateMark writes sure to the mark file if it is ahead of the file by more than tolerated.
func (g *Guard) updateMark(tolerated time.Duration) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.update()
	if g.o.File == "" {
		return nil
	}
	m, err := readMark(g.o.File)
	if err != nil {
		return err
	}
	g.applyOrder(m)
	moved := g.sure.Sub(g.mark.time())
	if g.sure.IsZero() || !g.sureConfirmed && g.doubt != "" ||
		moved <= tolerated && moved >= 0 && g.sureConfirmed == g.mark.Confirmed {
		return nil
	}
	m, err = change(g.o.File, func(m *savedTime) { m.Sure, m.Confirmed = g.sure.Unix(), g.sureConfirmed })
	if err == nil {
		g.mark = m
	}
	return err
}

// applyOrder trusts this machine's clock if the operator has ordered that within the last hour.
func (g *Guard) applyOrder(m savedTime) {
	age := g.wall.Sub(time.Unix(m.Trusted, 0))
	if m.Trusted == 0 || m.Trusted == g.obeyed || age < -g.o.Tolerance || age > orderAge {
		return
	}
	g.obeyed = m.Trusted
	g.sure, g.sureConfirmed, g.estimate, g.estimateGood, g.contradicted = g.wall, true, g.wall, true, false
	g.confirmedAt, g.everConfirmed = g.elapsed, true
	g.keepAnswers()
	g.o.Log.Warn("the operator has confirmed this machine's clock", "clock", g.wall.UTC())
	g.evaluate()
}
