package main

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/doona-dp/doona/internal/testing/stattest"
)

// TestScale runs `verifier analyze` on ten batches. Each batch repeats messages of the previous batch and of itself.
// The verifier must find all repeated messages and report nothing else. In the long form a batch has 10⁶ messages, and
// the test checks the costs of the process: memory below 300 MB for ten batches and below 150 MB for one, and CPU time
// that grows linearly from 10⁵ to 10⁷ messages.
func TestScale(t *testing.T) {
	batchSize, full := 2_000, stattest.Long
	if full {
		batchSize = memoryMessages
	}
	dir := t.TempDir()
	program := filepath.Join(dir, "verifier")
	built, err := exec.Command("go", "build", "-o", program, "../cmd/verifier").CombinedOutput()
	require.NoError(t, err, "%s", built)
	w, err := newWarehouse(filepath.Join(dir, "batches"), batchSize)
	require.NoError(t, err)
	const batches = 10
	earlier, own := batchSize/200, batchSize/400
	var files []string
	var again [][]byte
	for seq := range batches {
		name := fmt.Sprint(seq, ".batch")
		plant := planted{earlier: again, own: make([][]byte, own)}
		again, err = w.batch(name, uint64(seq), batchSize, plant, earlier)
		require.NoError(t, err)
		files = append(files, name)
	}
	all, err := w.analyze(t.Context(), program, files...)
	require.NoError(t, err)
	require.Len(t, all.Findings, 1)
	require.Equal(t, "repeated", all.Findings[0].Name)
	repeated := uint64((batches-1)*earlier + batches*own)
	require.Equal(t, repeated, all.Findings[0].Count)
	require.Equal(t, uint64(batches*batchSize)-repeated, all.Verified)
	t.Logf("%d messages: %d MB, %v of CPU time, %d repeated", all.Verified, all.peak/1e6, all.cpu, repeated)
	if full {
		few, err := newWarehouse(filepath.Join(dir, "few"), analyzedMessages)
		require.NoError(t, err)
		requireScale(t, few, w, program, all)
	}
}

func requireScale(t *testing.T, few, many *warehouse, program string, all *analysis) {
	t.Helper()
	_, err := few.batch("small.batch", 0, analyzedMessages, planted{}, 0)
	require.NoError(t, err)
	var small, one *analysis
	for range 3 { // keep the least of three runs, because other programs may slow down the machine
		a, err := few.analyze(t.Context(), program, "small.batch")
		require.NoError(t, err)
		if small == nil || a.cpu < small.cpu {
			small = a
		}
		if a, err = many.analyze(t.Context(), program, "0.batch"); one == nil || a.cpu < one.cpu {
			one = a
		}
		require.NoError(t, err)
	}
	figures := map[string]float64{
		"batch of 1e6, MB":     float64(one.peak) / 1e6,
		"ten of 1e6, MB":       float64(all.peak) / 1e6,
		"slope, 1e5 to 1e7":    slope(small, all),
		"slope, 1e6 to 1e7":    slope(one, all),
		"microseconds, of 1e7": float64(all.cpu.Microseconds()) / float64(all.Verified),
	}
	text, err := json.Marshal(figures)
	require.NoError(t, err)
	t.Logf("%s", text)
	if path := os.Getenv("DOONA_FIGURES"); path != "" {
		require.NoError(t, os.WriteFile(path, text, 0o644))
	}
	require.Less(t, figures["batch of 1e6, MB"], 150.)
	require.Less(t, figures["ten of 1e6, MB"], 300.)
	require.LessOrEqual(t, figures["slope, 1e5 to 1e7"], 1.02)
}
