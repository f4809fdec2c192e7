package main

import (
	"encoding/json"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/doona-dp/doona/internal/testing/relaytest"
	"github.com/doona-dp/doona/internal/testing/stattest"
	"github.com/doona-dp/doona/wire/onion"
	"github.com/doona-dp/doona/wire/task"
)

// The number of epochs, and of batches in each. The last batch of an epoch repeats a message of the first.
const (
	crashEpochs  = 3
	crashBatches = 4
)

// killed is a verifier in its own process, which the test kills at random moments.
type killed struct {
	*files
	data      string // path of the data folder
	keys      string // path of the verifier's key file
	address   string
	kills     int
	opened    map[string]int // how often each batch was opened
	again     int            // how many batches were opened again
	processes int
}

// TestKilledServe kills `verifier serve` at random moments. Its final report must be the same bytes as without kills.
// It must never open a batch again whose record is stored, and at most one other batch per kill. Erased keys must stay
// erased. The long form kills it 50 times instead of 5.
func TestKilledServe(t *testing.T) {
	wanted := 5
	if stattest.Long {
		wanted = 50
	}
	f := newFiles(t, func(draft *task.Task) {
		draft.Epochs.Count = crashEpochs
		draft.Epochs.Start -= uint64(10 * draft.Epochs.Length)
	})
	rogue := f.StartFirst(t)
	for epoch := range uint64(crashEpochs) {
		first := f.slots(t, epoch, testBatch)
		for seq := range uint64(crashBatches) {
			lane := first
			if seq > 0 {
				lane = f.slots(t, epoch, testBatch)
			}
			if seq == crashBatches-1 {
				lane[0] = first[0]
			}
			rogue.Serve(t, epoch, seq, rogue.Batch(t, epoch, seq, testBatch, onion.Lanes{lane}))
		}
		if epoch < crashEpochs-1 { // the last epoch does not end
			rogue.End(epoch)
		}
	}
	keys, err := os.ReadFile(f.VerifierKeys("task0"))
	require.NoError(t, err)
	begin := time.Now()
	want, _ := f.round(t, keys, 0, 0)
	took := time.Since(begin)
	kills, again, rounds := 0, 0, 0
	for kills < wanted {
		got, k := f.round(t, keys, wanted-kills, took)
		require.Equal(t, want, got)
		kills, again, rounds = kills+k.kills, again+k.again, rounds+1
	}
	t.Logf("%d kills in %d rounds, %d batches opened again; a round without takes %v", kills, rounds, again, took)
}

// round runs a verifier from an empty folder until it has all batches, and returns its report. It kills the verifier at
// most kills times, while there is work left.
func (f *files) round(t *testing.T, keys []byte, kills int, within time.Duration) (string, *killed) {
	t.Helper()
	dir := t.TempDir()
	k := &killed{files: f, data: filepath.Join(dir, "data"), keys: filepath.Join(dir, "task.keys"),
		address: relaytest.FreeAddress(t), opened: map[string]int{}}
	require.NoError(t, os.WriteFile(k.keys, keys, 0o600))
	report := ""
	for report == "" {
		limit := time.Duration(0)
		if k.kills < kills && !k.done(t) {
			limit = time.Duration(rand.Int64N(int64(within))) + time.Millisecond
		}
		report = k.run(t, limit)
	}
	for _, n := range k.opened {
		k.again += n - 1
	}
	require.Len(t, k.opened, crashEpochs*crashBatches)
	require.LessOrEqual(t, k.again, k.kills, "one batch may be opened twice per kill")
	return report, k
}

// run runs the verifier until it has all batches, and returns its report. If limit is not 0, it kills the verifier
// after that time and returns "".
func (k *killed) run(t *testing.T, limit time.Duration) (report string) {
	t.Helper()
	before, erased := k.written(t), k.erased(t)
	k.processes++
	log, err := os.Create(filepath.Join(filepath.Dir(k.data), fmt.Sprintf("log%d", k.processes)))
	require.NoError(t, err)
	defer log.Close()
	cmd := exec.Command("verifier", "serve", "--task", k.bundle, "--keys", k.keys, "--sign-key", k.VerifierSign(),
		"--data", k.data, "--listen", k.address, "--interval", "10ms")
	cmd.Stderr = log
	require.NoError(t, cmd.Start())
	if limit > 0 {
		time.Sleep(limit)
		k.kills++
	} else {
		report = k.wait(t)
	}
	require.NoError(t, cmd.Process.Kill())
	cmd.Wait()
	for at := range k.openings(t, log.Name()) {
		require.NotContains(t, before, at, "it was written down before the process began")
	}
	require.Subset(t, k.erased(t), erased)
	for _, epoch := range k.erased(t) {
		require.Contains(t, k.written(t), fmt.Sprintf("%06d.epoch", epoch), "its key is gone")
	}
	return report
}

// wait returns the report once it has all batches and the keys of the ended epochs are erased.
func (k *killed) wait(t *testing.T) (report string) {
	t.Helper()
	require.Eventually(t, func() bool {
		resp, err := http.Get("http://" + k.address + "/tasks/" + k.Open.ID.String() + "/api/report")
		if err != nil {
			return false
		}
		defer resp.Body.Close()
		var r map[string]any
		if json.NewDecoder(resp.Body).Decode(&r) != nil || r["batches"] != float64(crashEpochs*crashBatches) ||
			len(k.erased(t)) < crashEpochs-1 {
			return false
		}
		delete(r, "progress") // it has the time of the relay's last answer
		line, err := json.Marshal(r)
		require.NoError(t, err)
		report = string(line)
		return true
	}, time.Minute, 10*time.Millisecond)
	require.Contains(t, report, `"name":"repeated"`)
	return report
}

// done reports whether no work is left that a kill could interrupt.
func (k *killed) done(t *testing.T) bool {
	t.Helper()
	return len(k.written(t)) == crashEpochs*crashBatches+crashEpochs-1 && len(k.erased(t)) == crashEpochs-1
}

// written returns the names of stored results: batches with records, as EEEEEE-NNNNNN, files of closed epochs, and the
// batches of these epochs.
func (k *killed) written(t *testing.T) map[string]bool {
	t.Helper()
	out := map[string]bool{}
	err := filepath.WalkDir(k.data, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return nil // the folder is not created yet
		}
		switch name := d.Name(); filepath.Ext(name) {
		case ".record":
			out[name[:len("EEEEEE-NNNNNN")]] = true
		case ".epoch":
			out[name] = true
			for seq := range crashBatches {
				out[fmt.Sprintf("%s-%06d", strings.TrimSuffix(name, ".epoch"), seq)] = true
			}
		}
		return nil
	})
	require.NoError(t, err)
	return out
}

func (k *killed) erased(t *testing.T) (epochs []uint64) {
	t.Helper()
	raw, err := os.ReadFile(k.keys)
	require.NoError(t, err)
	var file struct{ Keys []struct{ Epoch uint64 } }
	require.NoError(t, json.Unmarshal(raw, &file))
	left := map[uint64]bool{}
	for _, key := range file.Keys {
		left[key.Epoch] = true
	}
	for epoch := range uint64(crashEpochs) {
		if !left[epoch] {
			epochs = append(epochs, epoch)
		}
	}
	return epochs
}

var openingLine = regexp.MustCompile(`msg=opening .*epoch=(\d+) batch=(\d+)`)

// openings returns how often a process opened each batch, from its log.
func (k *killed) openings(t *testing.T, log string) map[string]int {
	t.Helper()
	text, err := os.ReadFile(log)
	require.NoError(t, err)
	out := map[string]int{}
	for _, m := range openingLine.FindAllStringSubmatch(string(text), -1) {
		epoch, err := strconv.Atoi(m[1])
		require.NoError(t, err)
		seq, err := strconv.Atoi(m[2])
		require.NoError(t, err)
		out[fmt.Sprintf("%06d-%06d", epoch, seq)]++
	}
	for at, n := range out {
		require.Equal(t, 1, n, at)
		k.opened[at] += n
	}
	return out
}
