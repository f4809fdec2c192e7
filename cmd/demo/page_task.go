package main

import (
	"context"
	"fmt"
	"html/template"
	"math"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/doona-dp/doona/internal/display"
	"github.com/doona-dp/doona/protocols"
	"github.com/doona-dp/doona/verifier"
	"github.com/doona-dp/doona/verifier/report"
	"github.com/doona-dp/doona/wire/task"
)

// pageTask is a task to which people report on a page. It also plays simulated clients, because relays never release a
// batch with too few reports.
type pageTask struct {
	task  *simulatedTask
	words words
	value func(i int) []float64 // Returns the value of simulated client i.

	mu     sync.Mutex             // guards the fields below
	played map[uint64][][]float64 // Values of the simulated clients, by epoch.
	acked  map[uint64]uint64      // How many of them the first relay has acknowledged, by epoch.
	people map[uint64]uint64      // How many people reported on a page, by epoch.
	filled time.Duration          // How long the last batch took to fill; 0 before the first.
	next   int
}

func newPageTask(r *simulatedTask, w words, value func(int) []float64) *pageTask {
	return &pageTask{task: r, words: w, value: value, played: map[uint64][][]float64{}, acked: map[uint64]uint64{},
		people: map[uint64]uint64{}}
}

func (c *pageTask) joined(epoch uint64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.people[epoch]++
}

// reports returns how many reports of an epoch the demo knows of: acknowledged simulated ones and people's.
func (c *pageTask) reports(epoch uint64) uint64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.acked[epoch] + c.people[epoch]
}

// play sends the reports of this many simulated clients in an epoch.
func (c *pageTask) play(ctx context.Context, epoch, clients uint64) error {
	begin := time.Now()
	c.mu.Lock()
	values := make([][]float64, clients)
	for i := range values {
		values[i] = c.value(c.next)
		c.next++
	}
	c.played[epoch] = append(c.played[epoch], values...)
	c.mu.Unlock()
	err := c.task.send(ctx, epoch, values, func() {
		c.mu.Lock()
		c.acked[epoch]++
		c.mu.Unlock()
	})
	c.mu.Lock()
	c.filled = time.Since(begin) // if the epoch ended too early, this is a lower bound
	c.mu.Unlock()
	return err
}

// state is the answer when a page polls a task.
type state struct {
	TaskURL string     `json:"task_url"`
	Owner   string     `json:"owner"`
	Query   task.Query `json:"query"`
	words
	Protocol string  `json:"protocol"`
	Lo       float64 `json:"lo"`
	Hi       float64 `json:"hi"`
	Bins     uint64  `json:"bins"`
	Labels   bool    `json:"labels"`
	Batch    uint64  `json:"batch"`
	Hops     int     `json:"hops"`
	verifier.Guarantee
	Epoch        epochState             `json:"epoch"`
	Counts       countState             `json:"counts"`
	ByHop        []verifier.HopCounts   `json:"by_hop"`
	History      []row                  `json:"history"` // Released epochs, ascending.
	Total        *row                   `json:"total"`   // All released epochs together; null if there are none.
	Distribution *verifier.Distribution `json:"distribution,omitempty"`
	Texts        []foundText            `json:"texts"` // Texts found; null for other queries.
	AboutTexts   string                 `json:"about_texts"`

	ticks []string // labels on the chart's axis
}

// epochState describes the running epoch. Simulated counts the acknowledged reports of simulated clients.
type epochState struct {
	Number    uint64    `json:"number"`
	EndsAt    time.Time `json:"ends_at"`
	Simulated uint64    `json:"simulated"`
	// Fill is how many seconds the last batch took to fill, 0 before the first. If less time is left in the epoch, the
	// page should report in the next epoch.
	Fill float64 `json:"fill_seconds"`
}

type countState struct {
	Sent     uint64 `json:"messages_sent"`
	Covers   uint64 `json:"cover_messages"`
	Verified uint64 `json:"verified"`
	Rejected uint64 `json:"rejected"`
	Withheld uint64 `json:"withheld"`
}

// row is the answer of a released epoch. Truth covers the simulated clients only, because the demo does not know a
// person's value.
type row struct {
	Epoch uint64          `json:"epoch"`
	Users uint64          `json:"users"`
	Truth verifier.Values `json:"truth"`
	verifier.Answer
}

func (c *pageTask) state() (*state, error) {
	made, err := c.task.Verifier.Report()
	if err != nil {
		return nil, err
	}
	t := c.task.Open
	number, running := t.Epochs.At(uint64(time.Now().Unix()))
	if !running {
		number = t.Epochs.Count - 1
	}
	s := &state{
		TaskURL: c.task.URL, Owner: c.task.Owner, Query: t.Query, words: c.words, Protocol: t.Protocol,
		Lo: t.Input.Lo.Float64(), Hi: t.Input.Hi.Float64(), Bins: t.Input.Bins, Labels: t.Input.Labels,
		Batch: t.Batch.Size, Hops: made.Hops, Guarantee: made.Guarantee, ByHop: made.ByHop,
		Distribution: withinRange(made.Distribution), AboutTexts: report.AboutTexts(made),
		Counts: countState{made.MessagesSent, made.CoverMessages, made.Verified, made.Rejected,
			made.Withheld},
		History: []row{}, ticks: verifier.Ticks(t.Task),
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	s.Epoch = epochState{number, time.Unix(int64(t.Epochs.End(number)), 0).UTC(), c.acked[number], c.filled.Seconds()}
	var all [][]float64
	for _, e := range made.Ledger.Epochs {
		if e.Estimate == nil && !e.Usable {
			continue
		}
		exact, err := truth(t.Task, c.played[e.Epoch])
		if err != nil {
			return nil, err
		}
		all = append(all, c.played[e.Epoch]...)
		s.History = append(s.History, row{e.Epoch, e.Users, exact, bounded(t.Task, e.Answer, e.Users)})
	}
	if s.Texts = foundTexts(made.Texts, all); made.Estimate != nil || made.Texts != nil {
		exact, err := truth(t.Task, all)
		if err != nil {
			return nil, err
		}
		s.Total = &row{Users: made.Users, Truth: exact, Answer: bounded(t.Task, made.Answer, made.Users)}
	}
	return s, nil
}

// bounded returns an answer for the page, which needs two ends of each interval: where there is none, they are those of
// all possible answers.
func bounded(t *task.Task, a verifier.Answer, clients uint64) verifier.Answer {
	lo, hi := protocols.Contribution(t)
	scale := protocols.Scale(t.Query, clients) * float64(clients)
	a.Interval = slices.Clone(a.Interval)
	for j, i := range a.Interval {
		if i.IsNone() {
			a.Interval[j] = [2]float64{lo * scale, hi * scale}
		}
	}
	return a
}

// withinRange does the same for quantiles and the mean; nil if there are none.
func withinRange(d *verifier.Distribution) *verifier.Distribution {
	if d == nil {
		return nil
	}
	out := *d
	out.Quantiles = slices.Clone(d.Quantiles)
	bound := func(l *verifier.Location) {
		if l.Interval.IsNone() {
			l.Interval = d.Range
		}
	}
	for i := range out.Quantiles {
		bound(&out.Quantiles[i])
	}
	bound(&out.Mean)
	return &out
}

// chart draws a single number by epoch. It draws an answer with several entries as bars, over all epochs together.
func (s *state) chart(width int) template.HTML {
	c := display.Chart{Unit: s.AnswerUnit, Axis: s.Axis, Width: width}
	if s.Total == nil || s.Query.Info().Shape == task.PerText { // the page lists texts in a table instead
		return ""
	}
	if len(s.Total.Estimate) > 1 {
		if c.Bars = true; s.Query.Info().Shape == task.PerBin && !s.Labels {
			c.Axis += ", from"
		}
		c.Name = fmt.Sprintf("%s, %d bars with intervals; the numbers are in the table below", s.Measure,
			len(s.Total.Estimate))
		for j := range s.Total.Estimate {
			m := s.Total.point(j, float64(j), s.Entries[j])
			m.Short = s.ticks[j]
			c.Points = append(c.Points, m)
		}
		return c.SVG()
	}
	c.Axis = "epoch"
	c.Name = fmt.Sprintf("%s in %d epochs, with intervals; the numbers are in the table below", s.Measure,
		len(s.History))
	const narrowest = 30 // pixels per epoch
	for _, r := range s.History[max(0, len(s.History)-width/narrowest):] {
		c.Points = append(c.Points, r.point(0, float64(r.Epoch), strconv.FormatUint(r.Epoch, 10)))
	}
	return c.SVG()
}

func (r *row) point(j int, at float64, label string) display.Point {
	m := display.Point{Label: label, At: at, Estimate: r.Estimate[j], Lo: r.Interval[j][0], Hi: r.Interval[j][1],
		Truth: math.NaN()}
	if j < len(r.Truth) {
		m.Truth = r.Truth[j]
	}
	return m
}
