package verifier

import (
	"fmt"
	"math"
	"math/big"
	"strconv"
	"strings"

	"github.com/doona-dp/doona/internal/display"
	"github.com/doona-dp/doona/randomizer"
	"github.com/doona-dp/doona/wire/task"
)

// Labels returns the names of the answer's entries: the bins or categories of a histogram, or a vector's coordinates,
// from 1. It is empty for a number. If a task clips, the outer bins also hold clipped values.
func Labels(t *task.Task) []string {
	in := t.Input
	out := make([]string, in.Bins)
	edges := edgeTexts(t)
	for j := range out {
		switch {
		case t.Query.Info().Shape != task.PerBin:
			out[j] = strconv.Itoa(j + 1)
		case in.Labels:
			out[j] = strconv.Itoa(j)
		case in.Clip && j == 0:
			out[j] = "below " + edges[1]
		case in.Clip && j == len(out)-1:
			out[j] = edges[j] + " or more"
		default:
			out[j] = edges[j] + " to " + edges[j+1]
		}
	}
	return out
}

// isBinned reports whether the answer is a histogram over a range of numbers.
func isBinned(t *task.Task) bool { return t.Query.Info().Shape == task.PerBin && !t.Input.Labels }

// edges returns the edges of the bins of a histogram over a range: bin j reaches from edge j to edge j+1. It is empty
// for other tasks. If a task clips, its outer bins also hold the clipped values.
//
// Edge j is the float64 nearest to lo + (hi−lo)·j/bins. For lo = a/b and hi = c/d this is the quotient of ad·bins +
// (cb−ad)·j and bd·bins.
func edges(t *task.Task) []float64 {
	if !isBinned(t) {
		return nil
	}
	lo, hi, bins := t.Input.Lo, t.Input.Hi, new(big.Int).SetUint64(t.Input.Bins)
	times := func(a, b *big.Int) *big.Int { return new(big.Int).Mul(a, b) }
	b, d := new(big.Int).SetUint64(lo.Den), new(big.Int).SetUint64(hi.Den)
	ad, cb := times(big.NewInt(lo.Num), d), times(big.NewInt(hi.Num), b)
	at, step := times(ad, bins), new(big.Int).Sub(cb, ad)
	all := new(big.Float).SetInt(times(times(b, d), bins))
	out := make([]float64, t.Input.Bins+1)
	var edge, quotient big.Float
	for j := range out {
		quotient.SetPrec(53).Quo(edge.SetPrec(0).SetInt(at), all)
		out[j], _ = quotient.Float64()
		at.Add(at, step)
	}
	return out
}

// edgeTexts returns the edges as texts. It rounds them at the fourth digit of a bin's width, so that no two edges look
// alike.
func edgeTexts(t *task.Task) []string {
	edges := edges(t)
	out := make([]string, len(edges))
	for j, x := range edges {
		scale := math.Pow10(max(0, 3-int(math.Floor(math.Log10(edges[1]-edges[0])))))
		if math.Abs(x)*scale < 1<<53 { // otherwise all digits of x are needed
			x = math.Round(x*scale)/scale + 0 // adding 0 turns −0 into 0
		}
		out[j] = strconv.FormatFloat(x, 'f', -1, 64)
	}
	return out
}

// Ticks returns labels short enough for a chart's axis. For a histogram over a range they are the bins' lower edges.
func Ticks(t *task.Task) []string {
	if !isBinned(t) {
		return Labels(t)
	}
	return edgeTexts(t)[:t.Input.Bins]
}

// measure describes in words what a task estimates.
func measure(t *task.Task) string {
	m := t.Query.Info().Measure
	return strings.ToUpper(m[:1]) + m[1:]
}

// values describes in words the values that a client may have. It is empty for a count.
func values(t *task.Task) string {
	in, info := t.Input, t.Query.Info()
	switch lo, hi := plain(in.Lo), plain(in.Hi); {
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

// plain writes a number of the task with all its digits, without exponent.
func plain(r randomizer.Rational) string { return strconv.FormatFloat(r.Float64(), 'f', -1, 64) }

// EntryName returns the word for an entry of the answer, such as "category"; empty for a number.
func EntryName(t *task.Task) string {
	if t.Query.Info().Shape != task.PerBin {
		return t.Query.Info().Entry
	}
	if t.Input.Labels {
		return "category"
	}
	return "value"
}

// quantileName returns the name of the p-quantile, such as "75 % quantile".
func quantileName(p float64) string {
	if p == 0.5 {
		return "median"
	}
	return display.Number(math.Round(1e4*p)/100) + " % quantile"
}
