package verifier_test

import (
	"bytes"
	"encoding/csv"
	"log/slog"
	"math"
	"net/http/httptest"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/doona-dp/doona/internal/testing/relaytest"
	"github.com/doona-dp/doona/planner"
	"github.com/doona-dp/doona/protocols"
	"github.com/doona-dp/doona/protocols/registry"
	texts "github.com/doona-dp/doona/protocols/strings"
	"github.com/doona-dp/doona/verifier"
	"github.com/doona-dp/doona/verifier/collect"
	"github.com/doona-dp/doona/verifier/finding"
	"github.com/doona-dp/doona/verifier/report"
	"github.com/doona-dp/doona/wire/task"
)

// TestPoolEndToEnd: clients have one text, and two relays each add a pool of dummies. The verifier must find the text,
// show it in every form, and count it and a text that nobody has. Manifests must state the dummies, which do not count
// as reports.
func TestPoolEndToEnd(t *testing.T) {
	cascade := relaytest.New(t, relaytest.Options{Task: func(draft *task.Task) {
		calibrated, err := planner.Draft(planner.Query{Name: "texts", Query: task.Strings, Length: 4, Batch: 300,
			Honest: 1, Epsilon: 1, Delta: 1e-6,
			Relays: &planner.RelayNoise{NoiseOptions: protocols.NoiseOptions{MaxDummies: 1500}}})
		require.NoError(t, err)
		calibrated.Epochs = draft.Epochs
		*draft = *calibrated
	}})
	cascade.StartAll(t)
	sendAll(t, cascade, texts.Value("/a/b"))
	_, chain := cascade.Pull(t, 0, 0)
	pool := cascade.Open.Noise.Pool
	require.Len(t, chain, 2)
	for i, manifest := range chain {
		require.Equal(t, pool, manifest.Lanes[0].Added)
		require.Equal(t, 300+uint64(i+1)*pool, manifest.Lanes[0].Out)
	}

	v := newVerifier(t, cascade)
	puller, err := collect.NewPuller(v, cascade.Verifier, filepath.Join(t.TempDir(), "batches"),
		slog.New(slog.DiscardHandler))
	require.NoError(t, err)
	require.NoError(t, puller.Pull(t.Context()))
	made, err := v.Report()
	require.NoError(t, err)
	require.Empty(t, made.Findings)
	require.EqualValues(t, 300, made.Reports)
	require.True(t, made.Usable)
	require.Nil(t, made.LocalEpsilon)
	require.Len(t, made.Texts.List, 1)
	found := made.Texts.List[0]
	require.Equal(t, "/a/b", found.Text)
	require.Less(t, made.Texts.Threshold, *found.Clients)
	require.EqualValues(t, math.Floor(float64(pool)/made.Texts.Threshold), made.Texts.PlantedByRelay)
	var printed, table, page bytes.Buffer
	require.NoError(t, report.Print(&printed, made))
	require.Regexp(t, `"/a/b" +\d+ +\d+ +\d+`, printed.String())
	require.Contains(t, printed.String(), "colluding clients can get a text listed")
	require.NoError(t, report.WriteCSV(&table, made))
	require.Contains(t, table.String(), `all,,0,"""/a/b""",,,300,1,`)
	require.NoError(t, report.WriteHTML(&page, made))
	require.Contains(t, page.String(), "&#34;/a/b&#34;")

	requireNeutral(t, v, made)

	total, err := v.Total()
	require.NoError(t, err)
	m, err := registry.Open(cascade.Open.Task)
	require.NoError(t, err)
	counts, rest, err := protocols.CapabilitiesOf(m).Ask(total, []string{"/a/b", "/c"}, 1-1e-8)
	require.NoError(t, err)
	require.LessOrEqual(t, counts[0].Lo, 300.0)
	require.GreaterOrEqual(t, counts[0].Hi, 300.0)
	require.LessOrEqual(t, counts[1].Lo, 0.0)
	require.Zero(t, rest.Lo)
	require.NotNil(t, made.Texts.Rest.Interval)
	require.Contains(t, printed.String(), "have texts that are not listed")
	require.Greater(t, counts[0].Clients, counts[1].Hi/2)
}

// requireNeutral requires that a text of a client or another party does no harm in any form of the report: it is no
// spreadsheet formula, does not reverse other text and sends no terminal command. Formats for machines have it
// unchanged.
func requireNeutral(t *testing.T, v *verifier.Verifier, made *verifier.Report) {
	t.Helper()
	const hostile = "=1;=2\u202e\x1b[2J\t"
	v.Note(finding.Quarantined, "file "+hostile)
	noted, err := v.Report()
	require.NoError(t, err)
	made.Texts.List[0].Text, noted.Texts.List[0].Text = hostile, hostile
	var printed, table, page bytes.Buffer
	require.NoError(t, report.Print(&printed, noted))
	require.NoError(t, report.WriteCSV(&table, made))
	require.NoError(t, report.WriteHTML(&page, noted))
	served := httptest.NewRecorder()
	report.Handler(v).ServeHTTP(served, httptest.NewRequest("GET", "/api/report", nil))
	for name, text := range map[string]string{"printed": printed.String(), "csv": table.String(), "page": page.String(),
		"json": served.Body.String()} {
		require.NotContains(t, text, "\u202e", name)
		require.NotContains(t, text, "\x1b", name)
		require.Contains(t, text, `[2J`, name)
	}
	rows, err := csv.NewReader(&table).ReadAll()
	require.NoError(t, err)
	label := rows[2][3]
	require.Equal(t, `"=1\x3b=2\u202e\x1b[2J\t"`, label)
	back, err := strconv.Unquote(label)
	require.NoError(t, err)
	require.Equal(t, hostile, back)
	for _, row := range rows[1:] {
		for _, cell := range row {
			if strings.ContainsAny(cell[:min(len(cell), 1)], "=+-@\t\r") {
				_, err := strconv.ParseFloat(cell, 64)
				require.NoError(t, err, "only numbers begin like a formula")
			}
		}
	}
}
