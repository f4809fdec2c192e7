package main

import (
	"bytes"
	"encoding/json"
	"math"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/doona-dp/doona/protocols"
)

// TestAskedWithoutInterval: where the batches say too little about a text, ask prints no interval, and null in JSON.
func TestAskedWithoutInterval(t *testing.T) {
	rest := 700.
	a := asked{Reports: 1000, Confidence: .95, Rest: askedRest{&rest, &[2]float64{650, 750}}}
	for _, c := range []protocols.TextCount{{Text: "/a", Clients: 300, Lo: 250, Hi: 350},
		{Text: "/b", Hi: math.Inf(1)}} {
		a.Texts = append(a.Texts, askedText{c.Text, c.Estimate(), c.Interval()})
	}
	var printed bytes.Buffer
	require.NoError(t, a.print(&printed))
	require.Equal(t, `1000 clients; all intervals of texts hold together with 95 % confidence

text  clients  interval
"/a"  300      250 to 350
"/b"  –        no interval

About 700 clients (650 to 750) have a text that a search does not find.
`, printed.String())
	text, err := json.Marshal(a)
	require.NoError(t, err)
	require.Contains(t, string(text), `{"text":"/b","clients":null,"interval":null}`)
	require.Contains(t, string(text), `"rest":{"clients":700,"interval":[650,750]}`)

	printed.Reset()
	a.Rest = askedRest{}
	require.NoError(t, a.print(&printed))
	require.NotContains(t, printed.String(), "About", "no estimate without an interval")
}
