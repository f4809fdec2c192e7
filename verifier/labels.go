package verifier

import (
	"strconv"

	"github.com/doona-dp/doona/internal/look"
	"github.com/doona-dp/doona/wire/task"
)

// Labels names the entries of the answer: a histogram's bins or categories, a vector's coordinates
// from 1; none for a number. The outer bins of a task that clips hold what was clipped.
func Labels(t *task.Task) []string {
	in := t.Input
	out := make([]string, in.Bins)
	for j := range out {
		from, to := look.Number(binEdge(in, j)), look.Number(binEdge(in, j+1))
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

// Ticks are the labels as a chart has room for them: of bins of a range their lower edges.
func Ticks(t *task.Task) []string {
	if t.Query.Info().Shape != task.PerBin || t.Input.Labels {
		return Labels(t)
	}
	out := make([]string, t.Input.Bins)
	for j := range out {
		out[j] = look.Number(binEdge(t.Input, j))
	}
	return out
}

func binEdge(in task.Input, j int) float64 {
	lo, hi := in.Lo.Float64(), in.Hi.Float64()
	return lo + (hi-lo)*float64(j)/float64(in.Bins)
}
