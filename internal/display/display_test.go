package display_test

import (
	"math"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/doona-dp/doona/internal/display"
)

func TestNumbersAreWrittenAsBrowsersDo(t *testing.T) {
	for want, x := range map[string]float64{
		"0": 0, "12.4": 12.35001, "11.3": 11.25, "−7.5": -7.5, "0.0606": 0.0606, "100": 99.96, "99.9": 99.94,
		"1,235": 1234.5, "−1,234,568": -1234567.8, "2": 1.9999, "0.000001": 1e-6,
	} {
		require.Equal(t, want, display.Number(x))
	}
}

func TestChartsAreTextAndSurviveAnyNumbers(t *testing.T) {
	require.Empty(t, display.Chart{Width: 300}.SVG())
	hostile := `"><script>alert(1)</script>`
	mark := display.Point{Label: hostile, Estimate: 1, Lo: 0, Hi: 2, Truth: math.NaN()}
	chart := display.Chart{Name: hostile, Unit: hostile, Axis: hostile, Width: 300, Points: []display.Point{mark}}
	svg := string(chart.SVG())
	require.NotContains(t, svg, "<script>")
	require.NotContains(t, svg, "NaN")
	for name, m := range map[string]display.Point{
		"one point":  {Estimate: 5, Lo: 5, Hi: 5, Truth: 5},
		"zero":       {},
		"tiny":       {Estimate: 1e-9, Lo: 0.9e-9, Hi: 1.1e-9, Truth: 1e-9},
		"huge":       {Estimate: 1e12, Lo: -1e12, Hi: 2e12, Truth: 0},
		"all below":  {Estimate: -5, Lo: -7, Hi: -3, Truth: -4},
		"long label": {Label: strings.Repeat("x", 500), Estimate: 1, Lo: 0, Hi: 2},
	} {
		for _, bars := range []bool{true, false} {
			svg := string(display.Chart{Width: 300, Bars: bars, Points: []display.Point{m}}.SVG())
			require.NotRegexp(t, "NaN|Inf", svg, name)
			require.Less(t, strings.Count(svg, "grid"), 12, name)
		}
	}
}
