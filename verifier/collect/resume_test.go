package collect_test

import (
	"bytes"
	"net/http"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/doona-dp/doona/internal/testing/relaytest"
	"github.com/doona-dp/doona/verifier/collect"
	"github.com/doona-dp/doona/verifier/finding"
	"github.com/doona-dp/doona/wire/keyfile"
	"github.com/doona-dp/doona/wire/onion"
	"github.com/doona-dp/doona/wire/problem"
	"github.com/doona-dp/doona/wire/task"
)

// past moves a task's epochs far into the past.
func past(draft *task.Task) { draft.Epochs.Start -= uint64(10 * draft.Epochs.Length) }

// glob returns the only file in the folder of batches that matches a pattern.
func (p *pulled) glob(t *testing.T, pattern string) string {
	t.Helper()
	found, err := filepath.Glob(filepath.Join(p.dir, pattern))
	require.NoError(t, err)
	require.Len(t, found, 1)
	return found[0]
}

func (p *pulled) keyOf(t *testing.T, epoch uint64) error {
	t.Helper()
	keys, err := keyfile.LoadHPKE(p.VerifierKeys("task0"))
	require.NoError(t, err)
	_, err = keys.Key(epoch)
	return err
}

func damage(t *testing.T, path string) {
	t.Helper()
	raw, err := os.ReadFile(path)
	require.NoError(t, err)
	raw[len(raw)/2] ^= 1
	require.NoError(t, os.WriteFile(path, raw, 0o600))
}

// TestWhatIsWrittenDownIsNotOpenedAgain: a restart without the key and the batches must give the same report from the
// records, and still detect repeated messages.
func TestWhatIsWrittenDownIsNotOpenedAgain(t *testing.T) {
	p := newPulled(t, past)
	fresh := slots(t, p.Cascade, batchSize)
	p.relay.Serve(t, 0, 0, p.relay.Batch(t, 0, 0, batchSize, onion.Lanes{fresh}))
	v, puller := p.start(t)
	require.NoError(t, puller.Pull(t.Context()))
	want := content(t, v)
	raw, err := os.ReadFile(p.glob(t, "*.batch"))
	require.NoError(t, err)
	analyzed := newVerifier(t, p.Cascade)
	require.NoError(t, analyzed.AddFile("kept", bytes.NewReader(raw)))
	require.Equal(t, want, content(t, analyzed), "the records hold what was counted")
	require.NoError(t, os.Remove(p.glob(t, "*.batch")))
	keys, err := keyfile.LoadHPKE(p.VerifierKeys("task0"))
	require.NoError(t, err)
	saved, err := os.ReadFile(p.VerifierKeys("task0"))
	require.NoError(t, err)
	require.NoError(t, keys.Erase(0))
	v, _ = p.start(t)
	require.Equal(t, want, content(t, v))

	require.NoError(t, os.WriteFile(p.VerifierKeys("task0"), saved, 0o600))
	repeat := append(slots(t, p.Cascade, batchSize-1), fresh[0])
	p.relay.Serve(t, 0, 1, p.relay.Batch(t, 0, 1, batchSize, onion.Lanes{repeat}))
	v, puller = p.start(t)
	require.NoError(t, puller.Pull(t.Context()))
	requireReport(t, v, 2, finding.Repeated)
}

// TestAKeyGoesWithTheSignedEnd: the verifier erases the key when the signed end comes and not before, however long ago
// the epoch ended. A restart then needs no batches.
func TestAKeyGoesWithTheSignedEnd(t *testing.T) {
	p := newPulled(t, past)
	p.relay.Serve(t, 0, 0, p.batch(t, 0))
	for seq, bad := range []int{1, 3} { // 1 slot is lost; or 3 are, so that clients are over-exposed
		lane := relaytest.Spoil(slots(t, p.Cascade, batchSize), bad)
		p.relay.Serve(t, 0, uint64(seq+1), p.relay.Batch(t, 0, uint64(seq+1), batchSize, onion.Lanes{lane}))
	}
	v, puller := p.start(t)
	require.NoError(t, puller.Pull(t.Context()))
	require.NoError(t, p.keyOf(t, 0), "an epoch that is over by the clock alone")
	record, want := p.glob(t, "000000-000000-*.record"), content(t, v)
	require.Contains(t, want, `"name":"too-few"`)
	p.relay.End(0)
	require.NoError(t, puller.Pull(t.Context()))
	require.ErrorIs(t, p.keyOf(t, 0), keyfile.ErrErased)
	require.NoError(t, p.keyOf(t, 1), "the key of the next epoch stays")
	require.NoFileExists(t, record, "it holds single messages")
	require.Equal(t, want, content(t, v))
	require.NoError(t, os.Remove(p.glob(t, "000000-000000.batch")))
	v, puller = p.start(t)
	require.Equal(t, want, content(t, v))
	require.NoError(t, puller.Pull(t.Context()))
	require.Equal(t, want, content(t, v))
	require.ErrorContains(t, v.Add(p.batch(t, 1)), "the epoch is complete")
}

// TestAKeyGoesAfterACrash: after a crash between any two steps of finishing an epoch, the next pull does the remaining
// steps.
func TestAKeyGoesAfterACrash(t *testing.T) {
	p := newPulled(t, past)
	p.relay.Serve(t, 0, 0, p.batch(t, 0))
	v, puller := p.start(t)
	require.NoError(t, puller.Pull(t.Context()))
	path := p.glob(t, "*.record")
	record, err := os.ReadFile(path)
	require.NoError(t, err)
	keys, err := os.ReadFile(p.VerifierKeys("task0"))
	require.NoError(t, err)
	p.relay.End(0)
	require.NoError(t, puller.Pull(t.Context()))
	want := content(t, v)
	for name, undo := range map[string]func(){
		"before the key":     func() {},
		"before the records": func() { require.NoError(t, os.WriteFile(path, record, 0o600)) },
		"before the epoch": func() {
			require.NoError(t, os.WriteFile(path, record, 0o600))
			require.NoError(t, os.Remove(p.glob(t, "*.epoch")))
		},
	} {
		require.NoError(t, os.WriteFile(p.VerifierKeys("task0"), keys, 0o600))
		undo()
		v, puller = p.start(t)
		require.Equal(t, want, content(t, v), name)
		require.NoError(t, puller.Pull(t.Context()))
		require.Equal(t, want, content(t, v), name)
		require.ErrorIs(t, p.keyOf(t, 0), keyfile.ErrErased, name)
		require.NoFileExists(t, path, name)
	}
}

// TestDamagedCheckpointsArePutAside: the verifier makes a damaged record again from its batch. A damaged sum of an
// epoch whose key is erased is lost, and the report says so.
func TestDamagedCheckpointsArePutAside(t *testing.T) {
	p := newPulled(t, past)
	p.relay.Serve(t, 0, 0, p.batch(t, 0))
	_, puller := p.start(t)
	require.NoError(t, puller.Pull(t.Context()))
	damage(t, p.glob(t, "*.record"))
	v, puller := p.start(t)
	requireReport(t, v, 1, finding.Quarantined)
	p.glob(t, "*.record")
	p.relay.End(0)
	require.NoError(t, puller.Pull(t.Context()))
	require.NoError(t, os.RemoveAll(filepath.Join(p.dir, collect.QuarantineFolder)))
	damage(t, p.glob(t, "*.epoch"))
	v, puller = p.start(t)
	requireReport(t, v, 0, finding.Erased, finding.Quarantined)
	require.NoError(t, puller.Pull(t.Context()))
	v, _ = p.start(t)
	requireReport(t, v, 0, finding.Erased, finding.Quarantined)
}

// TestFindingsSurviveARestart: findings survive a restart. The same finding counts only once.
func TestFindingsSurviveARestart(t *testing.T) {
	p := newPulled(t)
	good := p.batch(t, 0)
	altered := *good
	altered.Ciphertexts = onion.Lanes{good.Ciphertexts[0][1:]}
	p.relay.Serve(t, 0, 0, &altered)
	for range 3 {
		v, puller := p.start(t)
		for range 2 {
			require.NoError(t, puller.Pull(t.Context()))
			requireReport(t, v, 0, finding.Foreign)
		}
	}
	p.relay.Serve(t, 0, 0, good)
	_, puller := p.start(t)
	require.NoError(t, puller.Pull(t.Context()))
	v, _ := p.start(t)
	requireReport(t, v, 1, finding.Foreign)
}

// TestAnEmptyFolderErasesNoKey: the relay calls a batch confirmed that is missing here. The verifier must keep the
// epoch's key, to open the batch when it is restored.
func TestAnEmptyFolderErasesNoKey(t *testing.T) {
	p := newPulled(t, past)
	lost := p.batch(t, 0)
	p.relay.Serve(t, 0, 0, lost)
	p.relay.Serve(t, 0, 1, p.batch(t, 1))
	p.relay.Answer(0, 0, func(w http.ResponseWriter, _ *http.Request) { problem.New(problem.Confirmed, "").Write(w) })
	p.relay.End(0)
	v, puller := p.start(t)
	for range 2 {
		require.NoError(t, puller.Pull(t.Context()))
	}
	requireReport(t, v, 1, finding.Gap, finding.Missing)
	require.NoError(t, p.keyOf(t, 0))
	raw := bytesOf(t, lost)
	require.NoError(t, os.WriteFile(filepath.Join(p.dir, "000000-000000.batch"), raw, 0o600))
	v, puller = p.start(t)
	require.NoError(t, puller.Pull(t.Context()))
	requireReport(t, v, 2)
	require.ErrorIs(t, p.keyOf(t, 0), keyfile.ErrErased)
}
