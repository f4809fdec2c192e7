package display

import (
	"fmt"
	"html"
	"io"
	"math"
	"strconv"
	"strings"
	"unicode/utf8"
)

// Plot is a chart of series of (x, y) points, as a standalone SVG document. It loads nothing. It is light or dark like
// the reader's system.
type Plot struct {
	Title          string
	XLabel, YLabel string
	Note           string // A screen reader reads it out after the title; may be empty.
	LogX, LogY     bool   // Make an axis logarithmic. It omits points that are not positive.
	Lines          []Line
}

// Line is a named series of (x, y) points, with x ascending. A plot omits a line without points.
type Line struct {
	Name   string
	Points [][2]float64
	Dots   bool // Draw dots instead of a line, for measurements.
}

// The geometry of a plot, in pixels.
const (
	plotWidth, plotHeight = 860, 500
	plotLeft, plotRight   = 74, 268
	plotTop, plotBottom   = 64, 56
)

// plotColors are colors that most color-blind readers can distinguish (Okabe and Ito), each for a light and for a dark
// background. Further lines repeat the colors, dashed.
var plotColors = [][2]string{
	{"#3b49b0", "#9aa8ff"}, {"#d55e00", "#ffa04d"}, {"#00845f", "#4fd6a9"}, {"#b0578c", "#f0a3d0"},
	{"#2789bf", "#7cc8f2"}, {"#a87400", "#eec25a"}, {"#1b1d2c", "#eceef6"},
}

// plotStyle repeats colors of display.css, because an image in a document cannot load a style sheet.
func plotStyle() string {
	light, dark := "--card:#fffefb;--ink:#1b1d2c;--quiet:#565b70;--line:#dcd9cf",
		"--card:#1b1e29;--ink:#eceef6;--quiet:#a9aec3;--line:#343a4d"
	for i, c := range plotColors {
		light += fmt.Sprintf(";--c%d:%s", i, c[0])
		dark += fmt.Sprintf(";--c%d:%s", i, c[1])
	}
	return "svg{" + light + "}@media(prefers-color-scheme:dark){svg{" + dark + "}}" +
		"text{fill:var(--quiet);font:13px system-ui,'Segoe UI',Roboto,'Noto Sans',sans-serif}" +
		".title{fill:var(--ink);font-size:16px;font-weight:600}.name{fill:var(--ink)}" +
		".paper{fill:var(--card)}.grid{stroke:var(--line)}.line{fill:none;stroke-width:2;stroke-linejoin:round}"
}

// SVG writes the chart to w. A chart without points shows only the axes.
func (c Plot) SVG(w io.Writer) {
	x, y := c.axes()
	fmt.Fprintf(w, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" role="img">`+"\n", plotWidth,
		plotHeight)
	fmt.Fprintf(w, "<title>%s</title>\n<desc>%s</desc>\n<style>%s</style>\n", html.EscapeString(c.Title),
		html.EscapeString(c.Note), plotStyle())
	fmt.Fprintf(w, `<rect class="paper" width="%d" height="%d" rx="12"/>`+"\n", plotWidth, plotHeight)
	fmt.Fprintf(w, `<text class="title" x="18" y="28">%s</text><text x="18" y="50">%s</text>`+"\n",
		html.EscapeString(c.Title), html.EscapeString(c.YLabel))
	floor := plotHeight - plotBottom
	for _, tick := range x.ticks() {
		fmt.Fprintf(w, `<path class="grid" d="M%.1f %d V%d"/><text x="%.1f" y="%d" text-anchor="middle">%s</text>`+"\n",
			x.at(tick), plotTop, floor, x.at(tick), floor+20, x.label(tick))
	}
	for _, tick := range y.ticks() {
		fmt.Fprintf(w, `<path class="grid" d="M%d %.1f H%d"/><text x="%d" y="%.1f" text-anchor="end">%s</text>`+"\n",
			plotLeft, y.at(tick), plotWidth-plotRight, plotLeft-8, y.at(tick)+4, y.label(tick))
	}
	fmt.Fprintf(w, `<text x="%d" y="%d" text-anchor="middle">%s</text>`+"\n", (plotLeft+plotWidth-plotRight)/2,
		plotHeight-14, html.EscapeString(c.XLabel))
	drawn := 0
	for _, line := range c.Lines {
		if points := c.shown(line); len(points) > 0 {
			line.svg(w, points, x, y, drawn)
			drawn++
		}
	}
	fmt.Fprintln(w, "</svg>")
}

// shown returns the points of a line that the axes can show: finite, and positive on a logarithmic axis.
func (c Plot) shown(l Line) (points [][2]float64) {
	for _, p := range l.Points {
		if !math.IsNaN(p[0]+p[1]) && !math.IsInf(p[0]+p[1], 0) && (!c.LogX || p[0] > 0) && (!c.LogY || p[1] > 0) {
			points = append(points, p)
		}
	}
	return points
}

func (l Line) svg(w io.Writer, points [][2]float64, x, y scale, index int) {
	color, dash := "var(--c"+strconv.Itoa(index%len(plotColors))+")", ""
	if index >= len(plotColors) {
		dash = ` stroke-dasharray="6 4"`
	}
	atX, atY := plotWidth-plotRight+18, plotTop+10+22*index
	if l.Dots {
		for _, p := range points {
			fmt.Fprintf(w, `<circle cx="%.1f" cy="%.1f" r="4" fill="%s"/>`, x.at(p[0]), y.at(p[1]), color)
		}
		fmt.Fprintf(w, `<circle cx="%d" cy="%d" r="4" fill="%s"/>`, atX+14, atY, color)
	} else {
		var path strings.Builder
		for _, p := range points {
			fmt.Fprintf(&path, "%.1f,%.1f ", x.at(p[0]), y.at(p[1]))
		}
		fmt.Fprintf(w, `<polyline class="line" stroke="%s"%s points="%s"/>`, color, dash, path.String())
		fmt.Fprintf(w, `<path class="line" d="M%d %d h28" stroke="%s"%s/>`, atX, atY, color, dash)
	}
	fmt.Fprintf(w, `<text class="name" x="%d" y="%d">%s</text>`+"\n", atX+36, atY+4, html.EscapeString(l.Name))
}

// axes returns axes that cover all points; a linear vertical axis also covers 0.
func (c Plot) axes() (x, y scale) {
	x = scale{low: 1, high: 10, from: plotLeft, to: plotWidth - plotRight, log: c.LogX}
	y = scale{low: 0.1, high: 1, from: plotHeight - plotBottom, to: plotTop, log: c.LogY}
	first := true
	for _, line := range c.Lines {
		for _, p := range c.shown(line) {
			if first {
				x.low, x.high, y.low, y.high, first = p[0], p[0], p[1], p[1], false
			}
			x.low, x.high = min(x.low, p[0]), max(x.high, p[0])
			y.low, y.high = min(y.low, p[1]), max(y.high, p[1])
		}
	}
	if !c.LogY {
		y.low = min(y.low, 0)
	}
	return x.rounded(), y.rounded()
}

// scale maps values from low to high to pixels between from and to.
type scale struct {
	low, high, from, to float64
	log                 bool
}

// rounded widens the axis so that it starts and ends at a tick.
func (a scale) rounded() scale {
	if a.high <= a.low {
		a.high = a.low + max(math.Abs(a.low), 1)
	}
	if !a.log {
		step := a.step()
		a.low, a.high = math.Floor(a.low/step+1e-9)*step, math.Ceil(a.high/step-1e-9)*step
		return a
	}
	a.low, a.high = a.nearest(a.low, false), a.nearest(a.high, true)
	return a
}

// nearest returns the tick of a logarithmic axis that is nearest to v: at or above v if above is set, else at or below.
func (a scale) nearest(v float64, above bool) float64 {
	power := math.Pow(10, math.Floor(math.Log10(v)+1e-9))
	ends := []float64{1, 10}
	if a.decades() <= 2.5 {
		ends = []float64{1, 2, 5, 10}
	}
	best := power
	for _, f := range ends {
		if f*power <= v*(1+1e-9) {
			best = f * power
		} else if above && best < v*(1-1e-9) {
			return f * power
		}
	}
	return best
}

func (a scale) decades() float64 { return math.Log10(a.high / a.low) }

func (a scale) step() float64 { return roundStep((a.high - a.low) / 6) }

func (a scale) at(v float64) float64 {
	if a.log {
		return a.from + (a.to-a.from)*math.Log(v/a.low)/math.Log(a.high/a.low)
	}
	return a.from + (a.to-a.from)*(v-a.low)/(a.high-a.low)
}

// ticks returns round values on the axis. On a logarithmic axis these are powers of ten: only every second or third if
// there are many, with their multiples by 2 and 5 if there are few.
func (a scale) ticks() (ticks []float64) {
	if !a.log {
		for i := math.Round(a.low / a.step()); i*a.step() <= a.high*(1+1e-9); i++ {
			ticks = append(ticks, i*a.step())
		}
		return ticks
	}
	every := max(1, int(math.Ceil(a.decades()/9)))
	first, last := math.Floor(math.Log10(a.low)+1e-9), math.Ceil(math.Log10(a.high)-1e-9)
	for e := first; e <= last; e += float64(every) {
		for _, f := range []float64{1, 2, 5} {
			v := f * math.Pow(10, e)
			if (f == 1 || a.decades() <= 2.5) && v >= a.low*(1-1e-9) && v <= a.high*(1+1e-9) {
				ticks = append(ticks, v)
			}
		}
	}
	return ticks
}

// label formats a tick. Below 0.001 and from 100,000 on it writes powers of ten with superscripts.
func (a scale) label(v float64) string {
	e := math.Floor(math.Log10(math.Abs(v)) + 1e-9)
	if v == 0 || e >= -3 && e < 5 {
		return fixed(v, max(0, -int(math.Floor(math.Log10(a.fineness(v))+1e-9))))
	}
	text := "10" + superscript(int(e))
	if f := math.Round(v / math.Pow(10, e)); f != 1 {
		text = strconv.Itoa(int(f)) + "·" + text
	}
	return text
}

// fineness returns the smallest difference that the label of the tick v must show.
func (a scale) fineness(v float64) float64 {
	if a.log && v > 0 {
		return v
	}
	return a.step()
}

func superscript(e int) string {
	digits := []rune("⁰¹²³⁴⁵⁶⁷⁸⁹")
	var out strings.Builder
	for _, r := range strconv.Itoa(e) {
		if r == '-' {
			out.WriteRune('⁻')
		} else {
			out.WriteRune(digits[r-'0'])
		}
	}
	return out.String()
}

// LegendChars is how many characters of a line's name fit in a plot's legend.
const LegendChars = 32

// FitsLegend reports whether a line's name fits in a plot's legend.
func FitsLegend(name string) bool { return utf8.RuneCountInString(name) <= LegendChars }
