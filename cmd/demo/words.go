package main

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/doona-dp/doona/internal/display"
	"github.com/doona-dp/doona/verifier"
	"github.com/doona-dp/doona/wire/task"
)

// words holds the page's texts about the question and the estimate.
type words struct {
	Title      string `json:"title"`       // The question to a person.
	Unit       string `json:"unit"`        // Unit of a person's value; may be empty.
	Measure    string `json:"measure"`     // What is estimated.
	AnswerUnit string `json:"answer_unit"` // Unit of the estimate; may be empty.
	Axis       string `json:"axis"`        // What the entries of the estimate are.
	// A histogram's bins, a count's two answers, a vector's coordinates, or texts from which to choose.
	Entries []string `json:"entries"`
}

type subject struct {
	question, noun, unit string
	within               string // Question whether the value is between two numbers.
}

// subjects describes the columns of the flights. For other inputs, the page knows only the column's name.
var subjects = map[string]subject{
	"delay_minutes":  {"How late was your flight?", "delay", "minutes", "Was your flight %s to %s minutes late?"},
	"distance_miles": {"How far was your flight?", "distance", "miles", "Was your flight %s to %s miles long?"},
	"hour": {"At what hour did your flight leave?", "hour of departure", "o’clock",
		"Did your flight leave between %s and %s o’clock?"},
}

func (o *options) subject() subject {
	if s, ok := subjects[o.column]; ok && o.input == "" {
		return s
	}
	name := o.column
	if name == "" {
		name = "value"
	} else if _, err := strconv.Atoi(name); err == nil {
		name = "column " + name
	}
	return subject{"What is your " + name + "?", name, "", "Is your " + strings.ReplaceAll(name, "%", "%%") +
		" between %s and %s?"}
}

// words returns the page's texts for a task of the demo's query.
func (o *options) words(t *task.Task) words {
	s, info := o.subject(), o.query.Info()
	w := words{Title: s.question, Unit: s.unit, Measure: info.Measure, Entries: []string{}}
	switch o.query {
	case task.Count:
		from, to := display.Number(o.lo), display.Number(o.hi)
		w.Title = fmt.Sprintf(s.within, from, to)
		w.Unit, w.Entries = "", []string{"No", "Yes"}
	case task.Mean:
		w.Measure = "mean " + s.noun
	case task.Sum:
		w.Measure = "total " + s.noun
	case task.Histogram:
		w.Measure, w.Axis, w.Entries = "clients by "+s.noun, axis(s), verifier.Labels(t)
	case task.Vector, task.VectorMean:
		w.Title, w.Axis, w.Entries = "What is your vector?", info.Entry, verifier.Labels(t)
	case task.Strings:
		w.Title, w.Axis, w.Entries = "What is your text?", info.Entry, []string{}
		if o.input == "" {
			w.Title, w.Axis, w.Entries = "Which address had no page?", "address", suggestedLinks()
		}
	}
	switch {
	case info.Clients:
		w.AnswerUnit = "clients"
	case info.Shape == task.Scalar:
		w.AnswerUnit = s.unit
	}
	return w
}

func axis(s subject) string {
	if s.unit == "" {
		return s.noun
	}
	return s.noun + " (" + s.unit + ")"
}
