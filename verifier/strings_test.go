package verifier_test

import (
	"bytes"
	"log/slog"
	"math"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/doona-dp/doona/internal/relaytest"
	"github.com/doona-dp/doona/planner"
	"github.com/doona-dp/doona/protocols"
	"github.com/doona-dp/doona/protocols/strings"
	"github.com/doona-dp/doona/verifier"
	"github.com/doona-dp/doona/wire/task"
)

// TestPoolOverTheRoad: clients with one text, two relays that each add a pool of dummies, a verifier that finds
// the text, shows it everywhere, and counts it and one that nobody has. Manifests say what was added, and the dummies
// are nobody's reports.
func TestPoolOverTheRoad(t *testing.T) {
	cascade := relaytest.New(t, relaytest.Options{Task: func(draft *task.Task) {
		calibrated, err := planner.Draft(planner.Query{Name: "texts", Query: task.Strings, Length: 4, Batch: 300,
			Honest: 1, Epsilon: 1, Delta: 1e-6,
			Relays: &planner.RelayNoise{Dilution: protocols.Dilution{MaxDummies: 1500}}})
		require.NoError(t, err)
		calibrated.Epochs = draft.Epochs
		*draft = *calibrated
	}})
	cascade.StartAll(t)
	sendAll(t, cascade, strings.Value("/a/b"))
	_, chain := cascade.Pull(t, 0, 0)
	pool := cascade.Open.Noise.Pool
	require.Len(t, chain, 2)
	for i, manifest := range chain {
		require.Equal(t, pool, manifest.Lanes[0].Added)
		require.Equal(t, 300+uint64(i+1)*pool, manifest.Lanes[0].Out)
	}

	v := newVerifier(t, cascade)
	puller, err := verifier.NewPuller(v, cascade.Verifier, filepath.Join(t.TempDir(), "batches"),
		slog.New(slog.DiscardHandler))
	require.NoError(t, err)
	require.NoError(t, puller.Pull(t.Context()))
	report, err := v.Report()
	require.NoError(t, err)
	require.Empty(t, report.Findings)
	require.EqualValues(t, 300, report.Reports)
	require.True(t, report.Usable)
	require.Nil(t, report.LocalEpsilon)
	require.Len(t, report.Texts.List, 1)
	found := report.Texts.List[0]
	require.Equal(t, "/a/b", found.Text)
	require.Less(t, report.Texts.Threshold, found.Clients)
	require.EqualValues(t, math.Floor(float64(pool)/report.Texts.Threshold), report.Texts.PlantedByRelay)
	var printed, csv, page bytes.Buffer
	require.NoError(t, report.Print(&printed))
	require.Regexp(t, `"/a/b" +\d+ +\d+ +\d+`, printed.String())
	require.Contains(t, printed.String(), "Clients who agree can have a text listed")
	require.NoError(t, report.WriteCSV(&csv, cascade.Open.Task))
	require.Contains(t, csv.String(), `all,,0,"""/a/b""",300,1,`)
	require.NoError(t, v.WriteHTML(&page))
	require.Contains(t, page.String(), "&#34;/a/b&#34;")

	total, err := v.Total()
	require.NoError(t, err)
	counts, err := total.(*strings.Aggregate).Ask([]string{"/a/b", "/c"}, 1-1e-8)
	require.NoError(t, err)
	require.LessOrEqual(t, counts[0].Lo, 300.0)
	require.GreaterOrEqual(t, counts[0].Hi, 300.0)
	require.LessOrEqual(t, counts[1].Lo, 0.0)
	require.Greater(t, counts[0].Clients, counts[1].Hi/2)
}
