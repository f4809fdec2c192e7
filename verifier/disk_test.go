package verifier_test

import (
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/doona-dp/doona/internal/testing/relaytest"
	"github.com/doona-dp/doona/verifier"
	"github.com/doona-dp/doona/verifier/collect"
	"github.com/doona-dp/doona/wire/task"
)

// kept is a relay with one batch, and the folder where a verifier stores it.
type kept struct {
	*relaytest.Cascade
	relay *relaytest.Rogue
	dir   string
}

func newKept(t *testing.T) *kept {
	t.Helper()
	c := relaytest.New(t, relaytest.Options{Hops: 1, Task: relaytest.Mean(batchSize,
		func(draft *task.Task) { draft.Epochs.Start -= uint64(10 * draft.Epochs.Length) })})
	k := &kept{c, c.StartFirst(t), filepath.Join(t.TempDir(), "batches")}
	k.relay.Serve(t, 0, 0, k.relay.Batch(t, 0, 0, batchSize, [][][]byte{slots(t, c, batchSize)}))
	return k
}

func (k *kept) start(t *testing.T) (*verifier.Verifier, *collect.Puller) {
	t.Helper()
	v := newVerifier(t, k.Cascade)
	puller, err := collect.NewPuller(v, k.Verifier, k.dir, slog.New(slog.DiscardHandler))
	require.NoError(t, err)
	return v, puller
}

// withoutRoom calls do while no file of this process can grow, as on a full disk.
func withoutRoom(t *testing.T, do func()) {
	t.Helper()
	var was syscall.Rlimit
	require.NoError(t, syscall.Getrlimit(syscall.RLIMIT_FSIZE, &was))
	require.NoError(t, syscall.Setrlimit(syscall.RLIMIT_FSIZE, &syscall.Rlimit{Max: was.Max}))
	defer func() { require.NoError(t, syscall.Setrlimit(syscall.RLIMIT_FSIZE, &was)) }()
	do()
}

// inChild runs the current test alone in a child process. It returns false in the child. Without the child, the test's
// limit on file sizes would also apply to the test log of this process.
func inChild(t *testing.T) bool {
	t.Helper()
	const child = "DOONA_TEST_CHILD"
	if os.Getenv(child) != "" {
		return false
	}
	c := exec.Command(os.Args[0], "-test.run=^"+t.Name()+"$", "-test.v")
	c.Env = append(os.Environ(), child+"=1")
	out, err := c.CombinedOutput()
	require.NoError(t, err, string(out))
	require.Contains(t, string(out), "--- PASS: "+t.Name())
	return true
}

// TestAFullDiskPutsNoRecordAside: a verifier that starts without disk space for its scratch file must end with that
// error. It must not move its records to quarantine. They count once there is space.
func TestAFullDiskPutsNoRecordAside(t *testing.T) {
	if inChild(t) {
		return
	}
	defer verifier.SetScratchMemory(0)()
	p := newKept(t)
	_, puller := p.start(t)
	require.NoError(t, puller.Pull(t.Context()))
	require.NoError(t, puller.Close())
	withoutRoom(t, func() {
		_, err := collect.NewPuller(newVerifier(t, p.Cascade), p.Verifier, p.dir, slog.New(slog.DiscardHandler))
		require.ErrorContains(t, err, "couldn't keep the slots of a record")
	})
	require.NoDirExists(t, filepath.Join(p.dir, collect.QuarantineFolder))
	v, puller := p.start(t)
	defer puller.Close()
	requireReport(t, v, 1)
}

// TestABatchThatIsHereIsPulledOnce: if there was no space for a stored batch's record, the next pull must open the
// stored file.
func TestABatchThatIsHereIsPulledOnce(t *testing.T) {
	defer verifier.SetScratchMemory(0)()
	p := newKept(t)
	v, puller := p.start(t)
	defer puller.Close()
	v.Scratch(filepath.Join(t.TempDir(), "none"))
	require.ErrorContains(t, puller.Pull(t.Context()), "couldn't keep the slots of a record")
	v.Scratch(t.TempDir())
	require.Equal(t, 1, p.relay.Pulls(0, 0))
	require.NoError(t, puller.Pull(t.Context()))
	requireReport(t, v, 1)
	require.Equal(t, 1, p.relay.Pulls(0, 0), "it is here")
}
