package main

import (
	"encoding/json"
	"os"
	"path/filepath"
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

// TestAbsentIsNull: in the JSON form, values that were not measured must be null. Scripts rely on it.
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

// TestFallen: fallen must name the rows whose ratio dropped by over a tenth or vanished, and no others. It compares
// the ratio to the limit, or to the peer if a row has no limit.
func TestFallen(t *testing.T) {
	row := func(name string, ours float64) Row { return newRow(name, "ms", lower, ours).within("floor", 1) }
	before := []Row{row("kept", 1), row("fell", 1), row("lost", 1), row("gone", 1), newRow("peer", "ms", lower, 1).
		against("peer", 1)}
	now := []Row{row("kept", 1.1), row("fell", 1.12), newRow("lost", "ms", lower, 1), row("new", 9),
		newRow("peer", "ms", lower, 1.2).against("peer", 1)}
	require.Equal(t, []string{"fell", "lost", "peer"}, fallen(before, now))
	for _, name := range alarmed {
		require.Contains(t, names(), name)
	}
}

// TestDocument: benchmarks.md must show the rows, what share of each party's time is cryptography, and what 10⁹ reports
// a day cost.
func TestDocument(t *testing.T) {
	var rows []Row
	for i, player := range players {
		rows = append(rows, newRow("e2e/1e5/"+player+"/cpu", "us/client", lower, 86.4*float64(i+1)).
			within("limit", 43.2*float64(i+1)))
	}
	rows = append(rows, newRow("e2e/1e5/time", "s", lower, 20).within("limit", 10),
		newRow("e2e/1e5/cpu", "us/client", lower, 400).within("limit", 200),
		newRow("relay/ingest/sqlite", "reports/cpu-s", higher, 8000).within("limit", 10_000))
	rows[0].Measured = "2026-11-20 at abc, load 9"
	result := &Result{map[string]any{"date": "2026-11-21", "commit": "def", "load": "1.5 2 3", "cpu": "6502"}, rows}
	result.stamp()
	text, err := result.document()
	require.NoError(t, err)
	require.Contains(t, text, "| e2e/1e5/first/cpu | 86.4 us/client | - | - | 43.2 (limit) | 0.5 | 1: 86.4 to 86.4 "+
		"| 2026-11-20 at abc, load 9 |")
	require.Contains(t, text, "| 1: 20 to 20 | 2026-11-21 at def, load 1.5, 6502 |")
	require.Contains(t, text, ", growth/users, e2e/1e5/first/memory, ", "the document lists rows not measured yet")
	require.Contains(t, text, "| e2e/1e5/time | 20 s")
	require.Contains(t, text, "| later relay | 172.8 | 86.4 | 50 % |")
	require.Regexp(t, `takes 100 microseconds there\.\s[^.]*would take 2\.03 times`, text)
	require.Contains(t, text, "| first relay | 1 |", "10⁹ reports of 86.4 µs in a day of 86,400 s need one core")
}

// TestMerged: a new row must replace the old row of its name, rows must be in the order of the groups, and rows whose
// name no longer exists must be dropped.
func TestMerged(t *testing.T) {
	row := func(name string, ours float64) Row { return newRow(name, "ms", lower, ours) }
	before := []Row{row("relay/mix", 1), row("no such row", 1), row("edge/cpu", 1)}
	now := []Row{row("edge/cpu", 2), row("client/count/rmse", 2), row("client/count/node/ms", 2)}
	require.Equal(t, []Row{now[2], before[0], now[0], now[1]}, merged(before, now))
}

// TestWatch: a ratio that fell in all of three runs must raise an alarm. A ratio that recovers in the last run must
// not.
func TestWatch(t *testing.T) {
	committed := &Result{Rows: []Row{newRow("relay/mix", "us", lower, 10).within("floor", 9),
		newRow("verifier/analyze", "1/s", higher, 9).within("floor", 10)}}
	text, err := json.Marshal(committed)
	require.NoError(t, err)
	path := filepath.Join(t.TempDir(), "benchmarks.json")
	require.NoError(t, os.WriteFile(path, text, 0o600))
	for last, alarm := range map[float64]string{10.5: "", 12: "the ratio fell by over 10 % in 3 runs: relay/mix"} {
		asked := map[string]int{}
		err := watch(t.Context(), options{alarm: path, json: true}, func(name string) ([]Row, error) {
			asked[name]++
			spent := 12.
			if asked[name] == alarmRuns {
				spent = last
			}
			if name == "relay/mix" {
				return []Row{newRow(name, "us", lower, spent).within("floor", 9)}, nil
			}
			return []Row{newRow(name, "1/s", higher, 9).within("floor", 10)}, nil
		})
		require.Equal(t, alarmRuns, asked["relay/mix"])
		require.Equal(t, 1, asked["verifier/analyze"], "watch must not measure a row again whose ratio did not fall")
		if alarm == "" {
			require.NoError(t, err)
		} else {
			require.EqualError(t, err, alarm)
		}
	}
}
