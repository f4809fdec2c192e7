package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/apache/beam/sdks/v2/go/pkg/beam"
	"github.com/stretchr/testify/require"

	"github.com/doona-dp/doona/internal/testing/relaytest"
	"github.com/doona-dp/doona/verifier"
	"github.com/doona-dp/doona/wire/keyfile"
)

// TestMain runs the command instead of the tests if a test started it so.
func TestMain(m *testing.M) {
	if os.Getenv("BEAM_COMMAND") != "" {
		main()
		return
	}
	flag.Parse()
	beam.Init()
	os.Exit(m.Run())
}

// laid is a folder with batch files, and the report of one verifier that reads all of them.
type laid struct {
	bundle, keys, out, glob string
	want                    string
	cascade                 *relaytest.Cascade
}

// lay writes batch files, among them files with faults of every kind.
func lay(t *testing.T) *laid {
	t.Helper()
	c := relaytest.New(t, relaytest.Options{Task: relaytest.Mean(20)})
	folder := t.TempDir()
	l := &laid{bundle: filepath.Join(c.Dir, "task0.bundle"), keys: c.VerifierKeys("task0"),
		out: filepath.Join(folder, "all.state"), glob: filepath.Join(folder, "batches", "*"), cascade: c}
	require.NoError(t, os.Mkdir(filepath.Dir(l.glob), 0o700))
	keys, err := keyfile.LoadHPKE(l.keys)
	require.NoError(t, err)
	whole, err := verifier.New(c.Open, keys)
	require.NoError(t, err)
	for i, raw := range c.Faulty(t) {
		path := filepath.Join(filepath.Dir(l.glob), relaytest.FileName(i))
		require.NoError(t, os.WriteFile(path, raw, 0o600))
		file, err := os.Open(path)
		require.NoError(t, err)
		require.NoError(t, whole.AddFile(path, file))
		require.NoError(t, file.Close())
	}
	l.want = report(t, whole)
	require.Contains(t, l.want, `"name":"repeated"`)
	return l
}

func report(t *testing.T, v *verifier.Verifier) string {
	t.Helper()
	r, err := v.Report()
	require.NoError(t, err)
	line, err := json.Marshal(r)
	require.NoError(t, err)
	return string(line)
}

// merged returns the report that verifier merge makes of a run's state.
func (l *laid) merged(t *testing.T) string {
	t.Helper()
	info, err := os.Stat(l.out)
	require.NoError(t, err)
	require.EqualValues(t, 0o600, info.Mode().Perm(), "it has messages in it")
	file, err := os.Open(l.out)
	require.NoError(t, err)
	defer file.Close()
	v, err := verifier.New(l.cascade.Open, nil)
	require.NoError(t, err)
	require.NoError(t, v.ReadState(bufio.NewReader(file)))
	return report(t, v)
}

// TestAPipelineGivesTheBytesOfOneRun: with faults of every kind, and messages that several files have, the pipeline
// must give the bytes that one run of the verifier gives.
func TestAPipelineGivesTheBytesOfOneRun(t *testing.T) {
	l := lay(t)
	require.NoError(t, os.Chmod(l.keys, 0o660), "as Kubernetes' fsGroup does")
	require.NoError(t, run(t.Context(), l.bundle, l.keys, l.out, []string{l.glob}))
	info, err := os.Stat(l.keys)
	require.NoError(t, err)
	require.EqualValues(t, 0o600, info.Mode().Perm())
	require.Equal(t, l.want, l.merged(t))
	state, err := os.ReadFile(l.out)
	require.NoError(t, err)
	require.NoError(t, run(t.Context(), l.bundle, l.keys, l.out, []string{l.glob, l.glob}))
	require.Equal(t, l.want, l.merged(t), "each file once")
	v, err := verifier.New(l.cascade.Open, nil)
	require.NoError(t, err)
	again, err := os.ReadFile(l.out)
	require.NoError(t, err)
	require.NoError(t, v.ReadState(bytes.NewReader(state)))
	require.ErrorContains(t, v.ReadState(bytes.NewReader(again)), "deduplicated in another run", "two runs are no one run")
}

// TestAKilledRunLeavesNothing: a process that is killed at any moment must leave no state or a whole one. The next
// process must give the bytes of one run.
func TestAKilledRunLeavesNothing(t *testing.T) {
	l := lay(t)
	command := func() *exec.Cmd {
		c := exec.Command(os.Args[0], "--task", l.bundle, "--keys", l.keys, "--out", l.out, l.glob)
		c.Env = append(os.Environ(), "BEAM_COMMAND=1")
		return c
	}
	begun := time.Now()
	out, err := command().CombinedOutput()
	require.NoError(t, err, string(out))
	whole := time.Since(begun)
	require.Equal(t, l.want, l.merged(t))
	const kills = 12
	early := 0
	for i := range kills {
		require.NoError(t, os.Remove(l.out))
		c := command()
		require.NoError(t, c.Start())
		time.Sleep(whole * time.Duration(i+1) / kills)
		_ = c.Process.Kill()
		_ = c.Wait()
		if _, err := os.Stat(l.out); err == nil {
			require.Equal(t, l.want, l.merged(t))
		} else {
			early++
			out, err := command().CombinedOutput()
			require.NoError(t, err, string(out))
			require.Equal(t, l.want, l.merged(t))
		}
	}
	require.Positive(t, early, "no run was killed before its end")
}

// TestARunSaysWhatItLacks: the error must name the flag, file or key that is missing.
func TestARunSaysWhatItLacks(t *testing.T) {
	l := lay(t)
	for want, flags := range map[string][3]string{
		"missing --task": {"", l.keys, l.out}, "missing --keys": {l.bundle, "", l.out},
		"missing --out": {l.bundle, l.keys, ""}, "no such file": {l.bundle + ".not", l.keys, l.out},
		"none.keys": {l.bundle, "none.keys", l.out},
	} {
		err := run(t.Context(), flags[0], flags[1], flags[2], []string{l.glob})
		require.ErrorContains(t, err, want)
		require.NoFileExists(t, l.out)
	}
	err := run(t.Context(), l.bundle, l.keys, l.out, []string{l.glob + ".not"})
	require.ErrorContains(t, err, fmt.Sprintf("no file matches %q", []string{l.glob + ".not"}))
}

// cpu returns the CPU time that this process has used.
func cpu(t *testing.T) time.Duration {
	t.Helper()
	var u syscall.Rusage
	require.NoError(t, syscall.Getrusage(syscall.RUSAGE_SELF, &u))
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// TestAFileThatCannotBeReadFailsTheRun: a file that cannot be read must fail the run, so that the runner tries again.
// verifier analyze instead records a finding and counts the other files.
func TestAFileThatCannotBeReadFailsTheRun(t *testing.T) {
	l := lay(t)
	require.NoError(t, os.Mkdir(filepath.Join(filepath.Dir(l.glob), "folder.batch"), 0o700))
	require.ErrorContains(t, run(t.Context(), l.bundle, l.keys, l.out, []string{l.glob}), "folder.batch")
	require.NoFileExists(t, l.out)
}
