package main

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
	"strconv"
	"sync"

	"github.com/doona-dp/doona/internal/display"
	"github.com/doona-dp/doona/wire/problem"
)

// monthMaker simulates the month when a page asks for it the first time.
type monthMaker struct {
	ctx   context.Context // the program's context
	seed  uint64
	begin sync.Once

	mu   sync.Mutex // guards the fields below
	done int        // steps done, of [monthSteps]
	made *month
	err  error
}

// monthProgress is the answer while the month is not ready.
type monthProgress struct {
	Done int `json:"done"`
	Of   int `json:"of"`
}

// ask starts the simulation at its first call. It returns the month, or nil and the progress until the month is ready.
func (m *monthMaker) ask() (*month, monthProgress, error) {
	m.begin.Do(func() {
		go func() {
			made, err := makeMonth(m.ctx, m.seed, m.step)
			m.mu.Lock()
			defer m.mu.Unlock()
			m.made, m.err = made, err
		}()
	})
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.made, monthProgress{m.done, monthSteps}, m.err
}

func (m *monthMaker) step() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.done++
}

// serve writes the month as JSON or, until it is ready, the progress with status 202.
func (m *monthMaker) serve(w http.ResponseWriter, _ *http.Request) {
	made, progress, err := m.ask()
	w.Header().Set("Cache-Control", "no-store")
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	if made == nil {
		w.WriteHeader(http.StatusAccepted)
		json.NewEncoder(w).Encode(progress)
		return
	}
	json.NewEncoder(w).Encode(made)
}

// serveChart draws one of the month's charts in a width in pixels.
func (m *monthMaker) serveChart(w http.ResponseWriter, r *http.Request) {
	width, err := strconv.Atoi(r.FormValue("width"))
	if err != nil || width < 260 || width > 4000 {
		problem.New(problem.Malformed, "invalid width: want 260 to 4000").Write(w)
		return
	}
	made, _, err := m.ask()
	if err != nil || made == nil {
		http.NotFound(w, r)
		return
	}
	chart, ok := made.chart(r.PathValue("chart"), width)
	if !ok {
		http.NotFound(w, r)
		return
	}
	w.Header().Set("Cache-Control", "no-store")
	w.Header().Set("Content-Type", "image/svg+xml")
	io.WriteString(w, string(chart.SVG()))
}

// chart returns the chart with a name: visits, budget, device-N or difference-N.
func (m *month) chart(name string, width int) (c display.Chart, ok bool) {
	switch name {
	case "visits":
		return m.Visits.chart(width), true
	case "budget":
		return m.Budget.chart(width), true
	}
	for i, d := range m.Speed.Devices {
		if name == "device-"+strconv.Itoa(i) {
			return m.Speed.chart(d.Name, d.Shares, width), true
		}
	}
	for i, p := range m.Speed.Pairs {
		if name == "difference-"+strconv.Itoa(i) {
			return m.Speed.chart(p.First+" less "+p.Second, p.Shares, width), true
		}
	}
	return c, false
}

func (v *monthVisits) chart(width int) display.Chart {
	c := display.Chart{Name: "visits by day, " + strconv.Itoa(len(v.Days)) +
		" bars with intervals; the numbers are in the table below", Axis: "day of the month", Unit: "visits", Width: width,
		Bars: true}
	for i, d := range v.Days {
		c.Points = append(c.Points, display.Point{Label: d.Name, Short: strconv.Itoa(i + 1), At: float64(i),
			Estimate: d.Estimate, Lo: d.Interval[0], Hi: d.Interval[1], Error: v.Error, Truth: d.Truth})
	}
	return c
}

// chart draws fractions of visits in percent, or their differences.
func (s *monthSpeed) chart(what string, shares []*figure, width int) display.Chart {
	c := display.Chart{Name: what + " by largest contentful paint, " + strconv.Itoa(len(shares)) +
		" bars with intervals; the numbers are in the table below",
		Axis: "seconds, from", Unit: "%", Width: width, Bars: true}
	for i, f := range shares {
		if f == nil {
			continue
		}
		lo, hi := 100*f.Interval[0], 100*f.Interval[1]
		c.Points = append(c.Points, display.Point{Label: s.Bins[i], Short: strconv.FormatFloat(s.Edges[i], 'g', -1, 64),
			At: float64(i), Estimate: 100 * f.Estimate, Lo: lo, Hi: hi, Error: (hi - lo) / 4, Truth: 100 * f.Truth})
	}
	return c
}

// chart draws how much ε is spent after each day.
func (b *monthBudget) chart(width int) display.Chart {
	c := display.Chart{Name: "ε spent after each day; the numbers are in the table below", Axis: "day of the month", Unit: "ε",
		Width: width, Bars: true, Exact: true}
	for _, d := range b.Days {
		c.Points = append(c.Points, display.Point{Label: "after day " + strconv.Itoa(d.Day), Short: strconv.Itoa(d.Day),
			At: float64(d.Day), Estimate: d.Composed, Lo: d.Composed, Hi: d.Composed, Truth: d.Added})
	}
	return c
}
