package main

import (
	"encoding/csv"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/doona-dp/doona/internal/testing/relaytest"
	"github.com/doona-dp/doona/planner"
	"github.com/doona-dp/doona/protocols"
	"github.com/doona-dp/doona/shufflerclient"
	"github.com/doona-dp/doona/verifier/crosstab"
	"github.com/doona-dp/doona/wire/task"
)

const speedDimensions = `dimensions:
  - {name: device, categories: [phone, desktop, "=cmd;1"]}
  - {name: lcp, edges: [0, 1000, 2500, .inf], unit: ms}
`

// speedTable sets a task for a table of nine cells, with noise by relays.
func speedTable(draft *task.Task) {
	noise := planner.RelayNoise{NoiseOptions: protocols.NoiseOptions{MaxDummies: 1e4}}
	made, err := planner.Draft(planner.Query{Name: "speed", Query: task.Histogram, Labels: true, Bins: 9, Batch: 300,
		Honest: 1, Epsilon: 3, Delta: 1e-5, Relays: &noise})
	if err != nil {
		panic(err) // constants that Calibrate accepts
	}
	made.Epochs = draft.Epochs
	*draft = *made
}

// TestQuery: 300 clients report a cell each through two real relays, and query answers in text, JSON and CSV.
func TestQuery(t *testing.T) {
	c := relaytest.New(t, relaytest.Options{Task: speedTable})
	c.StartAll(t)
	client, err := shufflerclient.New(c.Open, shufflerclient.Options{MaxEpsilon: 10})
	require.NoError(t, err)
	for i := range 300 {
		cell := []float64{0, 1, 1, 3, 4, 5}[i%6]
		r, err := client.Report(0, []float64{cell})
		require.NoError(t, err)
		require.NoError(t, c.Post(t.Context(), 0, r.Body, relaytest.Network(i)))
	}
	batch, _ := c.Pull(t, 0, 0)
	raw, err := batch.Bytes()
	require.NoError(t, err)
	dir := t.TempDir()
	write := func(name, text string) string {
		path := filepath.Join(dir, name)
		require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
		return path
	}
	file, dimensions := write("0.batch", string(raw)), write("speed.yaml", speedDimensions)
	query := func(status int, more ...string) string {
		return run(t, status, append([]string{"query", "--task", filepath.Join(c.Dir, "task0.bundle"), "--keys",
			c.VerifierKeys("task0"), "--ledger", dir, "--dimensions", dimensions, file}, more...)...)
	}

	table := filepath.Join(dir, "speed.csv")
	question := []string{"--by", "device", "--share", "lcp=..2500", "--versus", "desktop", "--compare", "--quantile",
		"lcp:0.5"}
	var got queried
	require.NoError(t, json.Unmarshal([]byte(query(0, append(question, "--json", "--csv", table)...)), &got))
	require.EqualValues(t, 300, got.Reports)
	require.Len(t, got.Rows, 3)
	phone, desktop := got.Rows[0], got.Rows[1]
	for row, truth := range map[*crosstab.Row]float64{&phone: 1, &desktop: 2. / 3} {
		// With 24 dummies a cell at most, the noise cannot leave these ranges.
		require.InDelta(t, 150, row.Clients.Estimate, 100)
		require.LessOrEqual(t, row.Share.Interval[0], row.Share.Interval[1])
		require.InDelta(t, truth, row.Share.Estimate, .6)
	}
	require.Nil(t, desktop.Difference)
	require.NotNil(t, phone.Difference)

	in, err := os.Open(table)
	require.NoError(t, err)
	defer in.Close()
	lines, err := csv.NewReader(in).ReadAll()
	require.NoError(t, err)
	require.Len(t, lines, 4)
	require.Equal(t, []string{"device", "clients", "clients_low"}, lines[0][:3])
	require.Equal(t, `"=cmd\x3b1"`, lines[3][0], "no formula")

	text := query(0, question...)
	require.Contains(t, text, "300 clients; each interval holds with 95 % confidence for itself")
	require.Regexp(t, `device +clients +share +difference +p +quantile`, text)

	asked := write("question.json", `{"by": ["lcp"], "where": {"device": ["phone"]}}`)
	require.NoError(t, json.Unmarshal([]byte(query(0, "--question", asked, "--json")), &got))
	require.Equal(t, []string{"0..1000 ms"}, got.Rows[0].Group)
	query(2, "--question", asked, "--by", "device")
	query(1, "--question", write("more.json", `{"by": ["lcp"], "colour": 1}`))
	query(1, "--by", "os")
	query(2, "--share", "lcp")
	query(1, "--share", "lcp=..1000", "--by", "device", "--compare")
	query(2, "--quantile", "lcp:half")
	dimensions = write("other.yaml", strings.Replace(speedDimensions, "desktop", "desktop, tablet", 1))
	query(1, "--by", "device")
}
