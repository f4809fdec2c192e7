package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"io"
	"io/fs"
	"math"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/doona-dp/doona/shufflerclient"
	"github.com/doona-dp/doona/verifier"
)

// patience is the longest time that a test waits for the next output line, on a busy machine.
const patience = time.Minute

// running is a 'doona dev --json' that runs in the test's working folder.
type running struct {
	lines  *bufio.Scanner
	errors bytes.Buffer
	cancel context.CancelFunc
	done   chan error
	offer  offer
}

// startDev starts 'doona dev --json' and reads its first output line, the offer.
func startDev(t *testing.T, args ...string) *running {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	out, in := io.Pipe()
	r := &running{lines: bufio.NewScanner(out), cancel: cancel, done: make(chan error, 1)}
	cmd := root()
	cmd.SetOut(in)
	cmd.SetErr(&r.errors)
	cmd.SetArgs(append([]string{"dev", "--json"}, args...))
	go func() {
		err := cmd.ExecuteContext(ctx)
		in.CloseWithError(io.EOF)
		r.done <- err
	}()
	t.Cleanup(cancel)
	r.next(t, &r.offer)
	return r
}

func (r *running) next(t *testing.T, into any) {
	t.Helper()
	slow := time.AfterFunc(patience, r.cancel)
	defer slow.Stop()
	if !r.lines.Scan() {
		require.FailNow(t, "doona dev ended early", "%v %s", <-r.done, &r.errors)
	}
	require.NoError(t, json.Unmarshal(r.lines.Bytes(), into))
}

func (r *running) stop(t *testing.T) {
	t.Helper()
	r.cancel()
	require.NoError(t, <-r.done)
	require.Contains(t, r.errors.String(), "The next start continues")
}

// report sends a report, as a page does, and returns the next output line.
func (r *running) report(t *testing.T, value float64) (n struct {
	Reports  uint64
	Estimate any
}) {
	t.Helper()
	client, err := shufflerclient.Connect(t.Context(), shufflerclient.Options{Task: r.offer.Task, Owner: r.offer.Owner,
		MaxEpsilon: r.offer.Budget.Epsilon})
	require.NoError(t, err)
	epoch, ok := client.Task().Epochs.At(uint64(time.Now().Unix()))
	require.True(t, ok)
	report, err := client.Report(epoch, []float64{value})
	require.NoError(t, err)
	require.NoError(t, client.Submit(t.Context(), report))
	r.next(t, &n)
	return n
}

// refused runs 'doona dev', which must fail to start, and returns its error.
func refused(t *testing.T, args ...string) error {
	t.Helper()
	cmd := root()
	cmd.SetArgs(append([]string{"dev"}, args...))
	cmd.SetOut(io.Discard)
	cmd.SetErr(io.Discard)
	return cmd.ExecuteContext(t.Context())
}

// TestAReportIsDecoded: a report must soon appear in the estimate, and still count after a restart. A restart must
// continue the task at the same address, and refuse options that contradict the task. --new must make another task.
func TestAReportIsDecoded(t *testing.T) {
	t.Chdir(t.TempDir())
	first := startDev(t, "--port", "0", "--epoch", "3600")
	n := first.report(t, 42)
	require.EqualValues(t, 1, n.Reports)
	require.InDelta(t, 42, n.Estimate, .1)
	page, err := http.Get(first.offer.Estimate)
	require.NoError(t, err)
	body, err := io.ReadAll(page.Body)
	require.NoError(t, err)
	require.NoError(t, page.Body.Close())
	require.Contains(t, string(body), "nothing is private")
	require.ErrorContains(t, refused(t), "is in use")
	first.stop(t)

	second := startDev(t)
	require.Equal(t, first.offer, second.offer)
	n = second.report(t, 44)
	require.EqualValues(t, 2, n.Reports)
	require.InDelta(t, 43, n.Estimate, .1)
	second.stop(t)

	require.ErrorContains(t, refused(t, "--query", "sum"), "invalid query sum: want mean, as in the task in .doona")
	third := startDev(t, "--new", "--port", "0", "--query", "histogram", "--bins", "5", "--labels")
	require.NotEqual(t, first.offer.Task, third.offer.Task)
	require.Equal(t, []any{0., 0., 0., 1., 0.}, rounded(third.report(t, 3).Estimate))
	third.stop(t)
}

func rounded(estimate any) []any {
	out := estimate.([]any)
	for i, x := range out {
		out[i] = float64(int(x.(float64) + .5))
	}
	return out
}

// TestWhatIsKept: git must ignore the folder .doona, only its owner may read the key files, and task.json must hold
// the options for pages. If a start was killed before it had written all files, the next start must make a new task.
func TestWhatIsKept(t *testing.T) {
	t.Chdir(t.TempDir())
	require.NoError(t, os.MkdirAll(partiesFolder, 0o700))
	require.NoError(t, os.WriteFile(filepath.Join(partiesFolder, "owner.key"), []byte("half"), 0o600))
	r := startDev(t, "--port", "0", "--epoch", "3600")
	r.stop(t)
	ignored, err := os.ReadFile(filepath.Join(folder, ".gitignore"))
	require.NoError(t, err)
	require.Equal(t, "*\n", string(ignored))
	keys := 0
	require.NoError(t, filepath.WalkDir(folder, func(path string, d fs.DirEntry, err error) error {
		require.NoError(t, err)
		info, err := d.Info()
		require.NoError(t, err)
		if strings.HasSuffix(path, ".key") || strings.HasSuffix(path, ".keys") || strings.HasSuffix(path, ".secret") {
			require.Equal(t, fs.FileMode(0o600), info.Mode().Perm(), path)
			keys++
		}
		if d.IsDir() {
			require.Equal(t, fs.FileMode(0o700), info.Mode().Perm(), path)
		}
		return nil
	}))
	require.Equal(t, 9, keys) // One of the owner, two of each relay and of the verifier, and two relays' secrets.
	var c connectOptions
	raw, err := os.ReadFile(taskFile)
	require.NoError(t, err)
	require.NoError(t, json.Unmarshal(raw, &c))
	require.Equal(t, r.offer.connectOptions, c)
}

// TestWhatIsTold: the printed lines must say how many reports were decoded and how many messages were destroyed.
func TestWhatIsTold(t *testing.T) {
	at := time.Date(2026, 1, 2, 15, 4, 5, 0, time.UTC)
	for want, n := range map[string]progress{
		"15:04:05  1 report decoded, 3 in all: mean of a value 42.00 (95 %: 41.00 to 43.00)\n": {Reports: 3, fresh: 1,
			measure: "mean of a value", Estimate: []float64{42}, errors: []float64{.5},
			Interval: verifier.Intervals{{41, 43}}},
		"15:04:05  1 report decoded, 3 in all: mean of a value 42.00 (no interval)\n": {Reports: 3, fresh: 1,
			measure: "mean of a value", Estimate: []float64{42}, errors: []float64{.5},
			Interval: verifier.Intervals{{math.Inf(-1), math.Inf(1)}}},
		"15:04:05  2 reports decoded, 2 in all: 2 × 7\n": {Reports: 2, fresh: 2, Estimate: []float64{0, 2, .1},
			Labels: []string{"6", "7", "8"}},
		"15:04:05  2 messages destroyed: the epoch ended before a batch was full\n": {lost: 2},
	} {
		var out strings.Builder
		require.NoError(t, n.print(&out, at))
		require.Equal(t, want, out.String())
	}
	many := progress{fresh: 1, Reports: 1, Labels: make([]string, 10), Estimate: make([]float64, 10)}
	for i := range many.Estimate {
		many.Estimate[i] = 1
	}
	require.True(t, strings.HasSuffix(many.answer(), ", and 2 more"), many.answer())
}
