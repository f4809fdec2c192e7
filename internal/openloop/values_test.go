package openloop

import (
	"math"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/doona-dp/doona/internal/table"
	"github.com/doona-dp/doona/planner"
	"github.com/doona-dp/doona/protocols/registry"
	"github.com/doona-dp/doona/randomizer"
	"github.com/doona-dp/doona/wire/task"
)

func draft(t *testing.T, q planner.Query) *task.Task {
	q.Name, q.Batch, q.Honest, q.Epsilon, q.Delta = "drawn", 1000, .9, 2, 1e-4
	planned, err := planner.Draft(q)
	require.NoError(t, err)
	return planned
}

func answer(t *testing.T, of *task.Task, n int, values Values) []float64 {
	truth, err := NewTruth(of)
	require.NoError(t, err)
	for i := range n {
		truth.Add(values(i))
	}
	got, clients, err := truth.Answer()
	require.NoError(t, err)
	require.EqualValues(t, n, clients)
	return got
}

// queries returns one query of each kind for which values can be drawn at random.
func queries() map[string]planner.Query {
	return map[string]planner.Query{
		"count":      {Query: task.Count},
		"mean":       {Query: task.Mean, Lo: 10, Hi: 30},
		"labels":     {Query: task.Histogram, Bins: 4, Labels: true},
		"bins":       {Query: task.Histogram, Bins: 4, Hi: 8},
		"vector":     {Query: task.Vector, Dim: 3, Hi: 1},
		"vectormean": {Query: task.VectorMean, Dim: 3},
	}
}

// TestDistributions: the values follow the named distribution. Their mean over 20,000 clients is within 5 standard
// errors.
func TestDistributions(t *testing.T) {
	const n = 20_000
	zipfMean := 0.0 // mean of (k-1)/99 with probability proportional to 1/k, in units of the range
	harmonic := 0.0
	for k := range levels {
		harmonic += 1 / float64(k+1)
		zipfMean += float64(k) / (levels - 1) / float64(k+1)
	}
	zipfMean /= harmonic
	four := []float64{12. / 25, 6. / 25, 4. / 25, 3. / 25}
	ball := (2*zipfMean - 1) / math.Sqrt(3)
	tests := map[string]struct {
		uniform, zipf []float64 // expected answer, divided by the number of clients
		deviation     float64
	}{
		"count":      {[]float64{.5}, []float64{1. / 3}, .5},
		"mean":       {[]float64{20}, []float64{10 + 20*zipfMean}, 10},
		"labels":     {[]float64{.25, .25, .25, .25}, four, .5},
		"bins":       {[]float64{.25, .25, .25, .25}, four, .5},
		"vector":     {[]float64{.5, .5, .5}, []float64{zipfMean, zipfMean, zipfMean}, .5},
		"vectormean": {[]float64{0, 0, 0}, []float64{ball, ball, ball}, 1},
	}
	for name, q := range queries() {
		t.Run(name, func(t *testing.T) {
			drawn := draft(t, q)
			for law, want := range map[string][]float64{Uniform: tests[name].uniform, Zipf: tests[name].zipf} {
				values, err := NewValues(drawn, law, table.Format{})
				require.NoError(t, err)
				got := answer(t, drawn, n, values)
				scale := 1.0
				if !drawn.Query.Info().Mean {
					scale = n
				}
				require.Len(t, got, len(want))
				for j := range want {
					require.InDelta(t, want[j], got[j]/scale, 5*tests[name].deviation/math.Sqrt(n), "%s %d", law, j)
				}
				require.Equal(t, values(7), values(7), "the same whenever it is asked")
			}
		})
	}
}

// TestDomain: the task's randomizer accepts all drawn values, also if only one coordinate may differ from 0.
func TestDomain(t *testing.T) {
	all := queries()
	all["sparse"] = planner.Query{Query: task.Vector, Dim: 8, Hi: 1, Protocol: "correlated"}
	for name, q := range all {
		drawn := draft(t, q)
		m, err := registry.Open(drawn)
		require.NoError(t, err, name)
		for _, law := range []string{Worst, Uniform, Zipf} {
			values, err := NewValues(drawn, law, table.Format{})
			require.NoError(t, err, name)
			for i := range 50 {
				_, err := m.Randomize(randomizer.NewSource(), values(i))
				require.NoError(t, err, "%s %s %v", name, law, values(i))
			}
		}
	}
}

// TestFiles: clients use the rows of a file in turn. A file without rows is an error.
func TestFiles(t *testing.T) {
	write := func(text string) string {
		path := filepath.Join(t.TempDir(), "values")
		require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
		return path
	}
	mean, vector := draft(t, queries()["mean"]), draft(t, queries()["vector"])
	searched := draft(t, planner.Query{Query: task.Strings, Length: 8})
	for _, tt := range []struct {
		task *task.Task
		text string
		want [][]float64
	}{
		{mean, "delay\n11\n12\n", [][]float64{{11}, {12}, {11}}},
		{vector, "0,.5,1\n1,0,0\n", [][]float64{{0, .5, 1}, {1, 0, 0}, {0, .5, 1}}},
		{searched, "ab\r\nc", [][]float64{{'a', 'b'}, {'c'}, {'a', 'b'}}},
	} {
		values, err := NewValues(tt.task, write(tt.text), table.Format{})
		require.NoError(t, err)
		require.Equal(t, tt.want, [][]float64{values(0), values(1), values(2)})
		_, err = NewValues(tt.task, write(""), table.Format{})
		require.Error(t, err)
	}
	_, err := NewValues(mean, write("delay\n"), table.Format{})
	require.ErrorContains(t, err, "no row")
	_, err = NewValues(searched, write(""), table.Format{})
	require.ErrorContains(t, err, "no row")
	_, err = NewValues(vector, write("a,b,c\n"), table.Format{})
	require.ErrorContains(t, err, "no row")
	_, err = NewValues(mean, "absent.csv", table.Format{})
	require.Error(t, err)
	_, err = NewValues(searched, Zipf, table.Format{})
	require.ErrorContains(t, err, "want a file with one text per line")
}
