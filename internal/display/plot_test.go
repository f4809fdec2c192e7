package display_test

import (
	"encoding/xml"
	"io"
	"math"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/doona-dp/doona/internal/display"
)

func drawn(t *testing.T, p display.Plot) string {
	t.Helper()
	var svg strings.Builder
	p.SVG(&svg)
	decoder := xml.NewDecoder(strings.NewReader(svg.String()))
	for {
		_, err := decoder.Token()
		if err == io.EOF {
			break
		}
		require.NoError(t, err)
	}
	require.NotRegexp(t, "NaN|Inf", svg.String())
	return svg.String()
}

func TestPlotIsWellFormedAndNamesItsLines(t *testing.T) {
	svg := drawn(t, display.Plot{
		Title: "a < b & c", XLabel: "users", YLabel: "ε", LogX: true, LogY: true,
		Lines: []display.Line{{Name: "exact", Points: [][2]float64{{10, .5}, {1000, .02}}}, {Name: "empty"}},
	})
	require.Contains(t, svg, "exact")
	require.NotContains(t, svg, "empty")
	require.Contains(t, svg, "prefers-color-scheme")
}

func TestPlotLeavesOutWhatItsAxesCannotShow(t *testing.T) {
	points := [][2]float64{{0, 1}, {1, 0}, {1, 1}, {2, math.NaN()}, {3, math.Inf(1)}, {10, 4}}
	for lines, log := range map[int]bool{2: true, 4: false} {
		svg := drawn(t, display.Plot{LogX: log, LogY: log, Lines: []display.Line{{Name: "x", Points: points, Dots: true}}})
		require.Equal(t, lines+1, strings.Count(svg, "<circle"), "one more in the legend")
	}
	drawn(t, display.Plot{Title: "nothing"})
	drawn(t, display.Plot{LogX: true, LogY: true, Lines: []display.Line{{Name: "one", Points: [][2]float64{{5, 5}}}}})
}

func TestPlotTicksAreRound(t *testing.T) {
	svg := drawn(t, display.Plot{LogX: true, LogY: true, Lines: []display.Line{{Name: "x",
		Points: [][2]float64{{1e3, 1e-7}, {1e6, .2}}}}})
	for _, tick := range []string{">1,000<", ">10⁶<", ">10⁻⁷<", ">0.01<"} {
		require.Contains(t, svg, tick)
	}
	svg = drawn(t, display.Plot{Lines: []display.Line{{Name: "x", Points: [][2]float64{{1, .3}, {9, 2.2}}}}})
	for _, tick := range []string{">0<", ">2<", ">0.5<", ">2.5<"} {
		require.Contains(t, svg, tick)
	}
}
