package look_test

import (
	"encoding/xml"
	"io"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/doona-dp/doona/internal/look"
)

func TestChartIsWellFormedAndNamesItsLines(t *testing.T) {
	var svg strings.Builder
	look.LogLogChart{
		Title: "a < b & c", XLabel: "users", YLabel: "ε",
		Lines: []look.LogLogLine{{Name: "exact", Points: [][2]float64{{10, .5}, {1000, .02}}}, {Name: "empty"}},
	}.SVG(&svg)
	decoder := xml.NewDecoder(strings.NewReader(svg.String()))
	for {
		_, err := decoder.Token()
		if err == io.EOF {
			break
		}
		require.NoError(t, err)
	}
	require.Contains(t, svg.String(), "exact")
	require.NotContains(t, svg.String(), "empty")
	require.NotContains(t, svg.String(), "NaN")
}

func TestChartWithoutPoints(t *testing.T) {
	var svg strings.Builder
	look.LogLogChart{Title: "nothing"}.SVG(&svg)
	require.Contains(t, svg.String(), "</svg>")
}
