package main

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestRow(t *testing.T) {
	r := newRow("x", "ms", lower, 3, 1, 2).against("peer", 8, 4).within("floor", 1)
	require.Equal(t, []float64{2, 6, 3, 1, 0.5, 1, 3},
		[]float64{*r.Ours, *r.Peer, *r.PeerRatio, *r.Limit, *r.LimitRatio, *r.Min, *r.Max})
	require.Equal(t, 0.5, *newRow("x", "1/s", higher, 2).against("peer", 4).PeerRatio)
	require.Equal(t, 2.0, *newRow("x", "1/s", higher, 2).within("limit", 1).LimitRatio, "no ratio is clamped")
}

// TestAbsentIsNull checks the contract of the JSON form: what was not measured is null.
func TestAbsentIsNull(t *testing.T) {
	text, err := json.Marshal(newRow("x", "ms", lower).against("peer").within("floor", 1))
	require.NoError(t, err)
	require.JSONEq(t, `{"name": "x", "unit": "ms", "better": "lower", "ours": null, "peer": null, "peer_name": null,
		"peer_ratio": null, "limit": null, "limit_name": null, "limit_ratio": null, "runs": 0, "min": null, "max": null}`, string(text))
}

func TestMatcher(t *testing.T) {
	for _, c := range []struct {
		pattern string
		match   bool
	}{
		{"", true}, {"client/count/native/ms", true}, {"client/*/native/ms", true}, {"client/**", true},
		{"client/*", true}, {"client/count/*", true}, {"client", false}, {"download/*", false}, {"*/ms", false},
	} {
		require.Equal(t, c.match, matcher(c.pattern)("client/count/native/ms"), "%q", c.pattern)
	}
}

func TestNamesAreUnique(t *testing.T) {
	seen := map[string]bool{}
	for _, name := range names() {
		require.False(t, seen[name], name)
		seen[name] = true
	}
}
