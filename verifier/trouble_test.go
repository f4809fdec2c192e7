package verifier_test

import (
	"bytes"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"testing/iotest"

	"github.com/stretchr/testify/require"

	"github.com/doona-dp/doona/internal/testing/relaytest"
	"github.com/doona-dp/doona/verifier"
	"github.com/doona-dp/doona/wire/codec"
	"github.com/doona-dp/doona/wire/onion"
	"github.com/doona-dp/doona/wire/problem"
	"github.com/doona-dp/doona/wire/task"
)

// TestAnEndOfAnyNumberOfBatches: a relay signs that an epoch has had as many batches as there can be, and says of each
// number that it was confirmed. That takes no memory, and no more findings than somebody can read.
func TestAnEndOfAnyNumberOfBatches(t *testing.T) {
	c := relaytest.New(t, relaytest.Options{Hops: 1, Task: relaytest.Mean(batchSize, past)})
	sign, mux := c.SignKey(t, 0), http.NewServeMux()
	mux.HandleFunc("/", func(w http.ResponseWriter, req *http.Request) {
		switch {
		case !strings.Contains(req.URL.Path, "/epochs/0/"):
			problem.New(problem.NotSealed, "").Write(w)
			return
		case filepath.Base(req.URL.Path) != "end":
			problem.New(problem.Confirmed, "").Write(w)
			return
		}
		body, err := codec.Marshal(&onion.End{Label: "doona-end", Version: task.Version, TaskID: c.Open.ID[:],
			Batches: task.MaxBatches, Lanes: make([]onion.LaneCount, c.Open.Slots.Lanes), Source: []byte{}})
		require.NoError(t, err)
		raw, err := (&onion.SignedEnd{End: body, Signature: onion.Sign(sign, onion.SignEnd, body)}).Bytes()
		require.NoError(t, err)
		w.Write(raw)
	})
	c.Listen(t, 0, mux)
	v := newVerifier(t, c)
	p, err := verifier.NewPuller(v, c.Verifier, t.TempDir(), slog.New(slog.DiscardHandler))
	require.NoError(t, err)
	defer p.Close()
	for range 10 {
		require.NoError(t, p.Pull(t.Context()))
	}
	for _, f := range v.Findings() {
		if f.Name == verifier.FindingMissing {
			require.EqualValues(t, 101, f.Count, "100 batches, and that there are more")
			return
		}
	}
	require.Fail(t, "no batch is missing")
}

// TestASourceThatFailsAccusesNobody: an error of whatever a batch is read from is no word about its relay.
func TestASourceThatFailsAccusesNobody(t *testing.T) {
	f := &faults{newCascade(t), nil}
	raw := bytesOf(t, f.good(t, 0))
	for _, at := range []int{0, 100, len(raw) / 2, len(raw)} {
		v := newVerifier(t, f.cascade)
		in := io.MultiReader(bytes.NewReader(raw[:at]), iotest.ErrReader(errors.New("the store answered 503")))
		require.NoError(t, v.AddFile("gs://batches/0", in))
		findings := v.Findings()
		require.Len(t, findings, 1, "after %d bytes", at)
		require.Equal(t, verifier.FindingUnread, findings[0].Name, "after %d bytes", at)
	}
}

// withoutRoom runs do while no file of this process can grow, as on a disk that is full.
func withoutRoom(t *testing.T, do func()) {
	t.Helper()
	var was syscall.Rlimit
	require.NoError(t, syscall.Getrlimit(syscall.RLIMIT_FSIZE, &was))
	require.NoError(t, syscall.Setrlimit(syscall.RLIMIT_FSIZE, &syscall.Rlimit{Max: was.Max}))
	defer func() { require.NoError(t, syscall.Setrlimit(syscall.RLIMIT_FSIZE, &was)) }()
	do()
}

// inChild runs this test alone in a process of its own, and says whether this is not that process. The limits of this
// one are those of whatever else it writes, the test's own log among it.
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

// TestAFullDiskPutsNoRecordAside: a verifier that starts while there is no room for its scratch file says so and ends.
// Its records are good, and count when there is room.
func TestAFullDiskPutsNoRecordAside(t *testing.T) {
	if inChild(t) {
		return
	}
	defer verifier.SetScratchMemory(0)()
	p := newPulled(t, past)
	p.relay.Serve(t, 0, 0, p.batch(t, 0))
	_, puller := p.start(t)
	require.NoError(t, puller.Pull(t.Context()))
	require.NoError(t, puller.Close())
	p.last = nil
	withoutRoom(t, func() {
		_, err := verifier.NewPuller(newVerifier(t, p.Cascade), p.Verifier, p.dir, slog.New(slog.DiscardHandler))
		require.ErrorContains(t, err, "couldn't keep the slots of a record")
	})
	require.NoDirExists(t, filepath.Join(p.dir, verifier.QuarantineFolder))
	v, _ := p.start(t)
	requireReport(t, v, 1)
}

// TestABatchThatIsHereIsPulledOnce: where there was no room for what is in it, the next pull opens the file.
func TestABatchThatIsHereIsPulledOnce(t *testing.T) {
	defer verifier.SetScratchMemory(0)()
	p := newPulled(t)
	p.relay.Serve(t, 0, 0, p.batch(t, 0))
	v, puller := p.start(t)
	v.Scratch(filepath.Join(t.TempDir(), "none"))
	require.ErrorContains(t, puller.Pull(t.Context()), "couldn't keep the slots of a record")
	v.Scratch(t.TempDir())
	require.Equal(t, 1, p.relay.Pulls(0, 0))
	require.NoError(t, puller.Pull(t.Context()))
	requireReport(t, v, 1)
	require.Equal(t, 1, p.relay.Pulls(0, 0), "it is here")
}

// TestADamagedRecordGoesWithItsEpoch: what is put aside holds single messages, too.
func TestADamagedRecordGoesWithItsEpoch(t *testing.T) {
	p := newPulled(t, past)
	p.relay.Serve(t, 0, 0, p.batch(t, 0))
	_, puller := p.start(t)
	require.NoError(t, puller.Pull(t.Context()))
	damage(t, p.glob(t, "*.record"))
	_, puller = p.start(t)
	aside := filepath.Join(p.dir, verifier.QuarantineFolder, "*.record")
	before, err := filepath.Glob(aside)
	require.NoError(t, err)
	require.Len(t, before, 1)
	p.relay.End(0)
	require.NoError(t, puller.Pull(t.Context()))
	require.Error(t, p.keyOf(t, 0), "the key is gone")
	after, err := filepath.Glob(aside)
	require.NoError(t, err)
	require.Empty(t, after)
}
