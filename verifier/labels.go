package verifier

import (
	"fmt"
	"math"
	"strconv"
	"strings"

	"github.com/doona-dp/doona/internal/display"
	"github.com/doona-dp/doona/wire/task"
)

// Labels returns the names of the answer's entries: a histogram's bins or categories, or a vector's coordinates from 1.
// It is empty for a number. The outer bins of a task that clips also hold clipped values.
func Labels(t *task.Task) []string {
	in := t.Input
	out := make([]string, in.Bins)
	for j := range out {
		from, to := display.Number(binEdge(in, j)), display.Number(binEdge(in, j+1))
		switch {
		case t.Query.Info().Shape != task.PerBin:
			out[j] = strconv.Itoa(j + 1)
		case in.Labels:
			out[j] = strconv.Itoa(j)
		case in.Clip && j == 0:
			out[j] = "below " + to
		case in.Clip && j == len(out)-1:
			out[j] = from + " or more"
		default:
			out[j] = from + " to " + to
		}
	}
	return out
}

// Ticks returns labels short enough for a chart's axis: for bins of a range, their lower edges.
func Ticks(t *task.Task) []string {
	if t.Query.Info().Shape != task.PerBin || t.Input.Labels {
		return Labels(t)
	}
	out := make([]string, t.Input.Bins)
	for j := range out {
		out[j] = display.Number(binEdge(t.Input, j))
	}
	return out
}

func binEdge(in task.Input, j int) float64 {
	lo, hi := in.Lo.Float64(), in.Hi.Float64()
	return lo + (hi-lo)*float64(j)/float64(in.Bins)
}

// measure returns what a task estimates, in words.
func measure(t *task.Task) string {
	m := t.Query.Info().Measure
	return strings.ToUpper(m[:1]) + m[1:]
}

// values describes the values that a client may have; empty for a count.
func values(t *task.Task) string {
	in, info := t.Input, t.Query.Info()
	switch lo, hi := display.Number(in.Lo.Float64()), display.Number(in.Hi.Float64()); {
	case info.Shape == task.PerText:
		return fmt.Sprintf("texts of at most %d bytes", in.Bins)
	case info.Ball():
		return fmt.Sprintf("%d coordinates of length at most 1", in.Bins)
	case info.Shape == task.PerVector:
		return fmt.Sprintf("%d coordinates from %s to %s", in.Bins, lo, hi)
	case in.Labels:
		return fmt.Sprintf("one of %d categories", in.Bins)
	case info.Shape == task.PerBin:
		return fmt.Sprintf("%s to %s in %d bins", lo, hi, in.Bins)
	case info.YesNo():
		return ""
	default:
		return lo + " to " + hi
	}
}

// EntryName returns what an entry of the answer is called; empty for a number.
func EntryName(t *task.Task) string {
	if t.Query.Info().Shape != task.PerBin {
		return t.Query.Info().Entry
	}
	if t.Input.Labels {
		return "category"
	}
	return "value"
}

// quantileName names the quantile at a probability.
func quantileName(p float64) string {
	if p == 0.5 {
		return "median"
	}
	return display.Number(math.Round(1e4*p)/100) + " % quantile"
}
