package look

import (
	"fmt"
	"html"
	"io"
	"math"
)

// LogLogChart is a chart of positive data.
type LogLogChart struct {
	Title          string
	XLabel, YLabel string
	Lines          []LogLogLine
}

// LogLogLine is a named series of (x, y) points, x ascending, both positive. An empty one is left out.
type LogLogLine struct {
	Name   string
	Points [][2]float64
}

// The geometry, in pixels.
const (
	logWidth, logHeight = 860, 520
	left, right         = 80, 230
	top, logBottom      = 50, 60
)

// colors are distinguishable for most color-blind readers (Okabe and Ito); dashes repeat them.
var colors = []string{"#0072b2", "#d55e00", "#009e73", "#cc79a7", "#56b4e9", "#e69f00", "#000000"}

// SVG writes the chart to w. A chart without points has axes only.
func (c LogLogChart) SVG(w io.Writer) {
	x, y := c.axes()
	fmt.Fprintf(w, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" font-family="sans-serif" font-size="13">`+"\n", logWidth, logHeight)
	fmt.Fprintf(w, `<rect width="%d" height="%d" fill="#fff"/>`+"\n", logWidth, logHeight)
	fmt.Fprintf(w, `<text x="%d" y="28" font-size="16">%s</text>`+"\n", left, html.EscapeString(c.Title))
	for _, tick := range x.ticks() {
		fmt.Fprintf(w, `<path d="M%.1f %d V%d" stroke="#ddd"/><text x="%.1f" y="%d" text-anchor="middle">%s</text>`+
			"\n",
			x.at(tick), top, logHeight-logBottom, x.at(tick), logHeight-logBottom+20, label(tick))
	}
	for _, tick := range y.ticks() {
		fmt.Fprintf(w, `<path d="M%d %.1f H%d" stroke="#ddd"/><text x="%d" y="%.1f" text-anchor="end">%s</text>`+"\n",
			left, y.at(tick), logWidth-right, left-8, y.at(tick)+4, label(tick))
	}
	fmt.Fprintf(w, `<text x="%d" y="%d" text-anchor="middle">%s</text>`+"\n", (left+logWidth-right)/2, logHeight-15,
		html.EscapeString(c.XLabel))
	fmt.Fprintf(w, `<text x="20" y="%d">%s</text>`+"\n", (top+logHeight-logBottom)/2, html.EscapeString(c.YLabel))
	drawn := 0
	for _, line := range c.Lines {
		if len(line.Points) > 0 {
			line.svg(w, x, y, drawn)
			drawn++
		}
	}
	fmt.Fprintln(w, "</svg>")
}

// svg writes line and its entry in the legend.
func (l LogLogLine) svg(w io.Writer, x, y axis, index int) {
	color, dash := colors[index%len(colors)], ""
	if index >= len(colors) {
		dash = ` stroke-dasharray="6 4"`
	}
	fmt.Fprintf(w, `<polyline fill="none" stroke="%s" stroke-width="2"%s points="`, color, dash)
	for _, p := range l.Points {
		fmt.Fprintf(w, "%.1f,%.1f ", x.at(p[0]), y.at(p[1]))
	}
	line := top + 10 + 22*index
	fmt.Fprintf(w, `"/><path d="M%d %d h28" stroke="%s" stroke-width="2"%s/><text x="%d" y="%d">%s</text>`+"\n",
		logWidth-right+15, line, color, dash, logWidth-right+50, line+4, html.EscapeString(l.Name))
}

// axes returns the axes that hold all points.
func (c LogLogChart) axes() (x, y axis) {
	x = axis{1, 10, left, logWidth - right}
	y = axis{0.1, 1, logHeight - logBottom, top}
	first := true
	for _, line := range c.Lines {
		for _, p := range line.Points {
			if first {
				x.low, x.high, y.low, y.high, first = p[0], p[0], p[1], p[1], false
			}
			x.low, x.high = math.Min(x.low, p[0]), math.Max(x.high, p[0])
			y.low, y.high = math.Min(y.low, p[1]), math.Max(y.high, p[1])
		}
	}
	return x.rounded(), y.rounded()
}

// axis maps [low, high] logarithmically to the pixels from…to.
type axis struct{ low, high, from, to float64 }

// rounded widens the axis to whole powers of ten.
func (a axis) rounded() axis {
	a.low = math.Pow(10, math.Floor(math.Log10(a.low)+1e-9))
	a.high = math.Pow(10, math.Ceil(math.Log10(a.high)-1e-9))
	if a.high <= a.low {
		a.high = a.low * 10
	}
	return a
}

func (a axis) at(v float64) float64 {
	return a.from + (a.to-a.from)*math.Log(v/a.low)/math.Log(a.high/a.low)
}

// ticks returns the powers of ten on the axis.
func (a axis) ticks() []float64 {
	var ticks []float64
	for v := a.low; v <= a.high*1.001; v *= 10 {
		ticks = append(ticks, v)
	}
	return ticks
}

func label(v float64) string { return fmt.Sprintf("%.3g", v) }
