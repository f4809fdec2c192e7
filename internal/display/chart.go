package display

import (
	"fmt"
	"html"
	"html/template"
	"math"
	"strings"
	"unicode/utf8"
)

// Point is one estimate on a chart.
type Point struct {
	Label            string  // The point's name in its tooltip.
	Short            string  // Label below the axis, if there is space; empty: Label.
	At               float64 // Position on the axis, ascending; adjacent bars differ by 1.
	Estimate, Lo, Hi float64 // Lo and Hi are infinite if there is no interval.
	Error            float64 // Error of the estimate: numbers show its first two digits. 0: three digits.
	Truth            float64 // Exact answer, known only for simulated clients; NaN if unknown.

	Wide *[2]float64 // In a series, the interval that holds for all points at once; nil or infinite for none.
}

// Chart draws estimates in SVG: as a series over time, or as bars side by side. The page's style sheet sets its colors.
type Chart struct {
	Name   string // A screen reader reads it out.
	Axis   string // Label of the horizontal axis.
	Unit   string // Unit of the estimates; may be empty.
	Width  int    // In pixels; at least 260.
	Bars   bool   // Draw bars from zero; otherwise a series of points.
	Exact  bool   // The estimates are exact: draw no intervals.
	Points []Point
}

// The geometry of a chart, in pixels.
const (
	tall      = 300 // height of a chart
	short     = 200 // height of a chart that is narrower than narrow, for a phone
	narrow    = 400 // below this width a chart has the height short
	topEdge   = 26
	rightEdge = 14
	bottom    = 48
	charWidth = 7 // average width of a character of 12 px text
)

func (c Chart) height() int {
	if c.Width < narrow {
		return short
	}
	return tall
}

// plot is a chart with the scales of its axes.
type plot struct {
	Chart
	lo, hi, step float64 // ends of the vertical axis, and distance of its grid lines
	left         float64
	first, slots float64 // At of the first point; number of positions on the horizontal axis
	out          strings.Builder
}

// SVG returns the chart as an element for a page, or "" if there are no points.
func (c Chart) SVG() template.HTML {
	if len(c.Points) == 0 {
		return ""
	}
	p := &plot{Chart: c, first: c.Points[0].At}
	p.slots = max(c.Points[len(c.Points)-1].At-p.first+1, 1)
	p.scale()
	fmt.Fprintf(&p.out, `<svg xmlns="http://www.w3.org/2000/svg" class="chart" viewBox="0 0 %d %d" role="img" aria-label="%s">`, c.Width, c.height(), html.EscapeString(c.Name))
	p.axes()
	if !c.Bars {
		p.wideBand()
		p.line()
	}
	for _, m := range c.Points {
		p.point(m)
	}
	p.out.WriteString("</svg>")
	return template.HTML(p.out.String()) // safe: html.EscapeString escaped every text in it
}

// scale chooses the range and the grid of the vertical axis, and the space for its labels.
func (p *plot) scale() {
	lo, hi := math.Inf(1), math.Inf(-1)
	for _, m := range p.Points {
		lo, hi = min(lo, m.Estimate), max(hi, m.Estimate)
		if m.bounded() {
			lo, hi = min(lo, m.Lo), max(hi, m.Hi)
		}
		if m.wide() {
			lo, hi = min(lo, m.Wide[0]), max(hi, m.Wide[1])
		}
		if !math.IsNaN(m.Truth) {
			lo, hi = min(lo, m.Truth), max(hi, m.Truth)
		}
	}
	if p.Bars {
		lo, hi = min(lo, 0), max(hi, 0)
	}
	pad := 0.07 * (hi - lo)
	if pad == 0 {
		pad = max(math.Abs(hi), 1)
	}
	if p.hi = hi + pad; !p.Bars || lo < 0 {
		lo -= pad
	}
	p.lo = lo
	p.step = roundStep((p.hi - p.lo) / 5)
	longest := 0
	for v := p.firstTick(); v <= p.hi; v += p.step {
		longest = max(longest, utf8.RuneCountInString(p.tick(v)))
	}
	p.left = float64(longest*charWidth + 16)
}

func (p *plot) firstTick() float64 { return math.Ceil(p.lo/p.step) * p.step }

// tick formats a value of the vertical axis. It uses enough decimals to distinguish adjacent grid lines.
func (p *plot) tick(v float64) string {
	return fixed(v, max(0, -int(math.Floor(math.Log10(p.step)+1e-9))))
}

// roundStep returns the smallest number 1, 2 or 5 times a power of ten that is at least x.
func roundStep(x float64) float64 {
	power := math.Pow(10, math.Floor(math.Log10(x)))
	for _, f := range []float64{1, 2, 5} {
		if f*power >= x {
			return f * power
		}
	}
	return 10 * power
}

func (p *plot) innerWidth() float64 { return float64(p.Width) - p.left - rightEdge }

func (p *plot) x(m Point) float64 { return p.left + (m.At-p.first+0.5)*p.innerWidth()/p.slots }

func (p *plot) innerHeight() int { return p.height() - topEdge - bottom }

func (p *plot) y(v float64) float64 { return topEdge + float64(p.innerHeight())*(p.hi-v)/(p.hi-p.lo) }

// axes draws grid lines at round values. It draws labels below the points if there is space.
func (p *plot) axes() {
	for v := p.firstTick(); v <= p.hi; v += p.step {
		class := "grid"
		if math.Abs(v) < p.step/2 {
			class = "grid zero"
		}
		fmt.Fprintf(&p.out, `<line class="%s" x1="%.1f" x2="%d" y1="%.1f" y2="%.1f"/>`, class, p.left,
			p.Width-rightEdge, p.y(v), p.y(v))
		fmt.Fprintf(&p.out, `<text x="%.1f" y="%.1f" text-anchor="end">%s</text>`, p.left-8, p.y(v)+4, p.tick(v))
	}
	p.text(4, 12, "start", p.Unit)
	p.text(p.left+p.innerWidth()/2, float64(p.height()-6), "middle", p.Axis)
	half, free := 0.0, math.Inf(-1) // half the width of the longest label; smallest x at which the next label may begin
	for _, m := range p.Points {
		half = max(half, float64(utf8.RuneCountInString(m.short())*charWidth)/2)
	}
	for _, m := range p.Points {
		if at := p.x(m); at-half >= free && at-half > 0 && at+half < float64(p.Width) {
			p.text(at, float64(topEdge+p.innerHeight()+18), "middle", m.short())
			free = at + half + 10
		}
	}
}

func (m Point) short() string {
	if m.Short == "" {
		return m.Label
	}
	return m.Short
}

func (p *plot) text(x, y float64, anchor, text string) {
	fmt.Fprintf(&p.out, `<text x="%.1f" y="%.1f" text-anchor="%s">%s</text>`, x, y, anchor, html.EscapeString(text))
}

// bounded reports whether the point has an interval.
func (m Point) bounded() bool { return !math.IsInf(m.Lo, 0) && !math.IsInf(m.Hi, 0) }

// wide reports whether the point has an interval that holds for all points at once.
func (m Point) wide() bool {
	return m.Wide != nil && !math.IsInf(m.Wide[0], 0) && !math.IsInf(m.Wide[1], 0)
}

// wideBand draws the interval that holds for all points at once, as one rectangle per point. The rectangles of many
// adjacent points touch.
func (p *plot) wideBand() {
	width := min(p.innerWidth()/p.slots, 72)
	for _, m := range p.Points {
		if m.wide() {
			fmt.Fprintf(&p.out, `<rect class="wideband" x="%.1f" width="%.1f" y="%.1f" height="%.1f"/>`, p.x(m)-width/2,
				width, p.y(m.Wide[1]), p.y(m.Wide[0])-p.y(m.Wide[1]))
		}
	}
}

// line joins the points of consecutive epochs. It leaves a gap where epochs are missing.
func (p *plot) line() {
	path := ""
	for i, m := range p.Points {
		command := "L"
		if i == 0 || m.At != p.Points[i-1].At+1 {
			command = "M"
		}
		path += fmt.Sprintf("%s%.1f %.1f", command, p.x(m), p.y(m.Estimate))
	}
	fmt.Fprintf(&p.out, `<path class="line" d="%s"/>`, path)
}

func (p *plot) point(m Point) {
	slot := p.innerWidth() / p.slots
	x := p.x(m)
	fmt.Fprintf(&p.out, `<g class="mark"><title>%s</title>`, html.EscapeString(p.title(m)))
	fmt.Fprintf(&p.out, `<rect class="hit" x="%.1f" width="%.1f" y="%d" height="%d"/>`, x-slot/2, slot,
		topEdge, p.innerHeight())
	half := min(26, 0.38*slot)
	if p.Bars {
		top, foot := min(p.y(m.Estimate), p.y(0)), max(p.y(m.Estimate), p.y(0))
		fmt.Fprintf(&p.out, `<rect class="bar" x="%.1f" width="%.1f" y="%.1f" height="%.1f"/>`, x-half, 2*half, top,
			foot-top)
		if m.bounded() {
			fmt.Fprintf(&p.out, `<line class="whisker" x1="%.1f" x2="%.1f" y1="%.1f" y2="%.1f" stroke-width="%.1f"/>`,
				x, x, p.y(m.Lo), p.y(m.Hi), min(2.5, max(0.8, half/2)))
		}
	} else {
		half = min(11, 0.42*slot)
		if !p.Exact && m.bounded() {
			fmt.Fprintf(&p.out, `<rect class="band" x="%.1f" width="%.1f" y="%.1f" height="%.1f" rx="%.1f"/>`, x-half/2,
				half, p.y(m.Hi), p.y(m.Lo)-p.y(m.Hi), min(4, half/2))
		}
		fmt.Fprintf(&p.out, `<circle class="point" cx="%.1f" cy="%.1f" r="%.1f"/>`, x, p.y(m.Estimate),
			min(4.5, max(1.4, 0.35*slot)))
	}
	if !math.IsNaN(m.Truth) {
		fmt.Fprintf(&p.out, `<line class="truth" x1="%.1f" x2="%.1f" y1="%.1f" y2="%.1f"/>`, x-half, x+half,
			p.y(m.Truth), p.y(m.Truth))
	}
	p.out.WriteString("</g>")
}

func (p *plot) title(m Point) string {
	if p.Exact {
		return m.Label + ": " + Number(m.Estimate)
	}
	text := fmt.Sprintf("%s: %s", m.Label, Figure(m.Estimate, m.Error))
	if m.bounded() {
		text += fmt.Sprintf(", between %s and %s", Figure(m.Lo, m.Error), Figure(m.Hi, m.Error))
	} else {
		text += ", no interval"
	}
	if m.wide() {
		text += fmt.Sprintf("; all at once between %s and %s", Figure(m.Wide[0], m.Error), Figure(m.Wide[1], m.Error))
	}
	if !math.IsNaN(m.Truth) {
		text += ", truth " + Number(m.Truth)
	}
	return text
}
