package verifier_test

import (
	"bytes"
	"encoding/json"
	"log/slog"
	"math"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/doona-dp/doona/accountant/compose"
	"github.com/doona-dp/doona/internal/durable"
	"github.com/doona-dp/doona/internal/testing/relaytest"
	"github.com/doona-dp/doona/planner"
	"github.com/doona-dp/doona/protocols/registry"
	"github.com/doona-dp/doona/verifier"
	"github.com/doona-dp/doona/verifier/collect"
	"github.com/doona-dp/doona/verifier/finding"
	"github.com/doona-dp/doona/wire/handover"
	"github.com/doona-dp/doona/wire/keyfile"
	"github.com/doona-dp/doona/wire/onion"
	"github.com/doona-dp/doona/wire/signing"
	"github.com/doona-dp/doona/wire/task"
)

func TestReportsThroughTwoRelaysAreCountedAndSurviveARestart(t *testing.T) {
	c := newCascade(t)
	c.StartAll(t)
	submit(t, c, 2*batchSize+3, 0, 7)
	dir := filepath.Join(t.TempDir(), "batches")
	c.Pull(t, 0, 1) // wait until both batches are ready
	v := newVerifier(t, c)
	puller, err := collect.NewPuller(v, c.Verifier, dir, slog.New(slog.DiscardHandler))
	require.NoError(t, err)
	require.NoError(t, puller.Pull(t.Context()))
	got, err := v.Report()
	require.NoError(t, err)
	require.EqualValues(t, 2*batchSize, got.Users)
	require.EqualValues(t, 2, got.Batches)
	require.EqualValues(t, 2*batchSize, got.Verified)
	require.Equal(t, got.MessagesSent, got.CoverMessages+got.Verified+got.Rejected+got.Withheld)
	require.Empty(t, got.Findings)
	// 5.5 standard errors: fails by chance with probability below 10⁻⁶ for nearly normal sums
	require.InDelta(t, 7, got.Estimate[0], 5.5*got.StandardError[0])
	require.Equal(t, 2.0, *got.Ledger.Epsilon, "one epoch")

	_, err = c.Verifier.Pull(t.Context(), c.Open, 1, 0, 0)
	require.ErrorIs(t, err, handover.ErrConfirmed, "a confirmed batch is gone at the relay")
	again := newVerifier(t, c)
	_, err = collect.NewPuller(again, c.Verifier, dir, slog.New(slog.DiscardHandler))
	require.ErrorIs(t, err, durable.ErrClaimed, "one puller per folder")
	require.NoError(t, puller.Close())
	puller, err = collect.NewPuller(again, c.Verifier, dir, slog.New(slog.DiscardHandler))
	require.NoError(t, err)
	defer puller.Close()
	reread, err := again.Report()
	require.NoError(t, err)
	require.NotEqual(t, got.Progress, reread.Progress, "nothing was asked since")
	got.Progress, reread.Progress = nil, nil
	require.Equal(t, got, reread)
}

// TestAReportIsMadeOnce: a report must be cached until something is added.
func TestAReportIsMadeOnce(t *testing.T) {
	f := &faults{newCascade(t), nil}
	v := newVerifier(t, f.cascade)
	var added []func(*verifier.Verifier)
	one, two := f.good(t, 0), bytesOf(t, f.good(t, 2))
	for _, change := range []func(*verifier.Verifier){
		func(v *verifier.Verifier) { require.NoError(t, v.Add(one)) },
		func(v *verifier.Verifier) { v.Note(finding.Truncated, "a file") },
		func(v *verifier.Verifier) { require.NoError(t, v.AddFile("two", bytes.NewReader(two))) },
		func(v *verifier.Verifier) { require.NoError(t, v.AddFile("bad", bytes.NewReader(two[:300]))) },
		func(v *verifier.Verifier) { v.ShowUnusable() },
	} {
		change(v)
		added = append(added, change)
		r, err := v.Report()
		require.NoError(t, err)
		again, err := v.Report()
		require.NoError(t, err)
		require.Same(t, &r.ByHop[0], &again.ByHop[0])
		fresh := newVerifier(t, f.cascade)
		for _, change := range added {
			change(fresh)
		}
		require.Equal(t, reportOf(t, fresh), reportOf(t, v))
	}
}

func TestBatchesThatAreNotAsSignedAreRefused(t *testing.T) {
	c := newCascade(t)
	v := newVerifier(t, c)
	fresh := slots(t, c, batchSize)
	good := chain(t, c, 0, fresh)
	other := chain(t, c, 1, slots(t, c, batchSize))
	stranger, err := keyfile.NewSign(filepath.Join(t.TempDir(), "stranger.key"))
	require.NoError(t, err)
	copied := func() [][]byte { return append([][]byte{}, good.Ciphertexts[0]...) }
	with := func(ciphertexts [][]byte) *onion.Batch {
		return &onion.Batch{Manifest: good.Manifest, Signature: good.Signature, Ciphertexts: [][][]byte{ciphertexts}}
	}
	duplicated, swapped := copied(), copied()
	duplicated[0] = duplicated[1]
	swapped[0] = other.Ciphertexts[0][0]
	for name, bad := range map[string]*onion.Batch{
		"signed by a stranger": {Manifest: good.Manifest,
			Signature: signing.Sign(stranger, signing.Manifest, good.Manifest), Ciphertexts: good.Ciphertexts},
		"signature of another": {Manifest: good.Manifest, Signature: other.Signature,
			Ciphertexts: good.Ciphertexts},
		"message removed":    with(copied()[1:]),
		"message duplicated": with(duplicated),
		"message swapped in": with(swapped),
		"message truncated":  with(append(copied()[1:], good.Ciphertexts[0][0][1:])),
		"lane added": {Manifest: good.Manifest, Signature: good.Signature,
			Ciphertexts: [][][]byte{copied(), {}}},
		"batch of the first relay": firstHopOnly(t, c, fresh),
	} {
		t.Run(name, func(t *testing.T) {
			require.Error(t, v.Add(bad))
			r, err := v.Report()
			require.NoError(t, err)
			require.Zero(t, r.Batches)
		})
	}
	require.NoError(t, v.Add(good))
	require.ErrorContains(t, v.Add(good), "added before")
}

func firstHopOnly(t *testing.T, c *relaytest.Cascade, slots [][]byte) *onion.Batch {
	t.Helper()
	in := uint64(len(slots))
	batch, err := onion.NewBatch(c.SignKey(t, 0), onion.BatchDraft{
		Context: onion.Context{TaskID: c.Open.ID}, Submissions: in, In: []uint64{in},
	}, [][][]byte{slots})
	require.NoError(t, err)
	return batch
}

func TestSlotsThatDoNotCountBecomeFindings(t *testing.T) {
	c := newCascade(t)
	v := newVerifier(t, c)
	require.NoError(t, v.Add(chain(t, c, 0, slots(t, c, batchSize))))
	fresh := slots(t, c, batchSize)
	flip := func(next [][]byte) [][]byte { return relaytest.Spoil(next, 1) }
	repeat := func(next [][]byte) [][]byte { next[2] = next[3]; return next }
	require.NoError(t, v.Add(chain(t, c, 1, fresh, flip, repeat)))
	r, err := v.Report()
	require.NoError(t, err)
	require.EqualValues(t, 2, r.Rejected)
	require.EqualValues(t, 2*batchSize-2, r.Verified)
	require.Equal(t, []finding.Finding{
		{Name: finding.Repeated, Count: 1, Meaning: "slots that occurred before",
			Example: "epoch 0, batch 1"},
		{Name: finding.Unreadable, Count: 1, Meaning: "slots that the verifier’s key does not open",
			Example: "epoch 0, batch 1"},
	}, r.Findings)
	require.Equal(t, r.MessagesSent, r.CoverMessages+r.Verified+r.Rejected+r.Withheld)
}

func TestAReplayedBatchIsWithheldForBeingTooSmall(t *testing.T) {
	c := newCascade(t)
	v := newVerifier(t, c)
	fresh := slots(t, c, batchSize)
	require.NoError(t, v.Add(chain(t, c, 0, fresh)))
	require.NoError(t, v.Add(chain(t, c, 1, fresh)), "colluding relays can sign it")
	r, err := v.Report()
	require.NoError(t, err)
	require.EqualValues(t, 1, r.Batches)
	require.EqualValues(t, batchSize, r.Rejected)
	require.Equal(t, finding.TooFew, r.Findings[1].Name)
}

// covers returns the slots of n clients who send one cover each, as the first relay passes them on.
func covers(t *testing.T, c *relaytest.Cascade, n int) (out [][]byte) {
	t.Helper()
	sealer, err := onion.NewSealer(c.Open.Task, c.Open.ID, c.Open.KeyLists)
	require.NoError(t, err)
	opener := c.Opener(t, 0, 0)
	for range n {
		body, err := sealer.Seal(0, [][]task.Message{{{Cover: true}}})
		require.NoError(t, err)
		envelope, err := opener.OpenEnvelope(body)
		require.NoError(t, err)
		out = append(out, envelope.Lanes[0]...)
	}
	return out
}

// TestARepeatedCoverIsAFinding: a repeated cover must count as repeated like any message, within a batch and across
// batches. Otherwise colluding relays could fill a batch with covers that they know.
func TestARepeatedCoverIsAFinding(t *testing.T) {
	c := newCascade(t)
	v := newVerifier(t, c)
	first := append(slots(t, c, batchSize-1), covers(t, c, 1)...)
	require.NoError(t, v.Add(chain(t, c, 0, first)))
	second := append(slots(t, c, batchSize-1), first[batchSize-1])
	require.NoError(t, v.Add(chain(t, c, 1, second)))
	third := append(slots(t, c, batchSize-2), covers(t, c, 2)...)
	third[batchSize-2] = third[batchSize-1]
	require.NoError(t, v.Add(chain(t, c, 2, third)))
	r, err := v.Report()
	require.NoError(t, err)
	require.EqualValues(t, 3, r.Batches)
	require.EqualValues(t, 2, r.CoverMessages)
	require.EqualValues(t, 2, r.Rejected)
	require.Equal(t, []finding.Finding{{Name: finding.Repeated, Count: 2,
		Meaning: "slots that occurred before", Example: "epoch 0, batch 1"}}, r.Findings)
}

// TestCoversAreNotWithheld: in a withheld batch, only messages count as withheld. Covers count as covers, so that every
// slot counts once.
func TestCoversAreNotWithheld(t *testing.T) {
	c := newCascade(t)
	v := newVerifier(t, c)
	lost := func(next [][]byte) [][]byte { return relaytest.Spoil(next, 3) } // 2 too many are lost, because n_min is 18
	require.NoError(t, v.Add(chain(t, c, 0, append(slots(t, c, batchSize-4), covers(t, c, 4)...), lost)))
	r, err := v.Report()
	require.NoError(t, err)
	require.Zero(t, r.Batches)
	require.EqualValues(t, []uint64{batchSize, 4, 3, batchSize - 7},
		[]uint64{r.MessagesSent, r.CoverMessages, r.Rejected, r.Withheld})
	require.Equal(t, finding.TooFew, r.Findings[0].Name)
	r, err = v.Overview()
	require.NoError(t, err)
	require.EqualValues(t, []uint64{batchSize, 0, 3, 0},
		[]uint64{r.MessagesSent, r.CoverMessages, r.Rejected, r.Withheld}, "it does not tell covers from messages")

	c = newPair(t)
	v = newVerifier(t, c)
	require.NoError(t, v.Add(chain(t, c, 0, append(slots(t, c, 1), covers(t, c, 1)...))))
	r, err = v.Report()
	require.NoError(t, err)
	require.Zero(t, r.Batches)
	require.Equal(t, []uint64{2, 1, 0, 1}, []uint64{r.MessagesSent, r.CoverMessages, r.Rejected, r.Withheld})
	require.Equal(t, finding.Incomplete, r.Findings[0].Name)
}

// TestTheLedgerAddsUp: a client who reports in two epochs pays for both, no matter how many batches they have, and no
// more than the composed laws say.
func TestTheLedgerAddsUp(t *testing.T) {
	c := newCascade(t)
	v := newVerifier(t, c)
	for _, at := range [][2]uint64{{0, 0}, {0, 1}, {1, 0}} {
		require.NoError(t, v.Add(c.Chain(t, at[0], at[1], slotsOf(t, c, at[0], batchSize))))
	}
	r, err := v.Report()
	require.NoError(t, err)
	require.Equal(t, []float64{2, 1e-4}, []float64{r.Epsilon, r.Delta})
	m, err := registry.Open(c.Open.Task)
	require.NoError(t, err)
	law, err := m.Law()
	require.NoError(t, err)
	two, err := compose.Epsilon([]compose.Observation{law.Observation(2)}, 2e-4)
	require.NoError(t, err)
	require.Less(t, two, 3.7)
	require.Equal(t, []float64{two, 2e-4}, []float64{*r.Ledger.Epsilon, r.Ledger.Delta})
	require.Equal(t, "exact", r.Ledger.Composition)
	require.Len(t, r.Ledger.Epochs, 2)
	require.Equal(t, []float64{2, two}, []float64{*r.Ledger.Epochs[0].Spent, *r.Ledger.Epochs[1].Spent})
	for i, e := range r.Ledger.Epochs {
		require.Equal(t, []float64{2, 1e-4}, []float64{*e.Epsilon, e.Delta}, "what one epoch costs")
		require.EqualValues(t, 2-i, e.Batches)
	}
}

// TestOverviewSeesWhatOthersCharge: if another verifier charges the rest of the budget, the overview must say that this
// one's epoch is withheld.
func TestOverviewSeesWhatOthersCharge(t *testing.T) {
	c, folder := newCascade(t), t.TempDir()
	withEpoch := func(epoch uint64) *verifier.Verifier {
		v := newVerifier(t, c)
		require.NoError(t, v.Add(c.Chain(t, epoch, 0, slotsOf(t, c, epoch, batchSize))))
		require.NoError(t, v.Publish(verifier.Publishing{Folder: folder, Beside: filepath.Join(t.TempDir(), "keys"),
			Budget: &verifier.Budget{Epsilon: 2, Delta: 1e-4}}))
		return v
	}
	one, other := withEpoch(0), withEpoch(1)
	r, err := one.Overview()
	require.NoError(t, err)
	require.Empty(t, r.Ledger.Withheld)
	r, err = other.Report()
	require.NoError(t, err)
	require.Empty(t, r.Ledger.Withheld)
	r, err = one.Overview()
	require.NoError(t, err)
	require.Equal(t, []uint64{0}, r.Ledger.Withheld)
}

// TestReportsByStart: batches count at once, whether or not a report was made since they were added.
func TestReportsByStart(t *testing.T) {
	c := newCascade(t)
	v := newVerifier(t, c)
	for seq := range uint64(3) {
		require.NoError(t, v.Add(chain(t, c, seq, slots(t, c, batchSize))))
		got, err := v.ReportsByStart()
		require.NoError(t, err)
		require.Equal(t, map[int64]uint64{int64(c.Open.Epochs.Start): (seq + 1) * batchSize}, got)
	}
}

func TestEmptyReportIsNullAndNotZero(t *testing.T) {
	r, err := newVerifier(t, newCascade(t)).Report()
	require.NoError(t, err)
	line, err := json.Marshal(r)
	require.NoError(t, err)
	require.Contains(t, string(line), `"estimate":null`)
	require.False(t, math.IsNaN(r.Epsilon))
}

// TestMoreBinsThanAVerifierHolds: a verifier must refuse a task with more bins than it can count in memory.
func TestMoreBinsThanAVerifierHolds(t *testing.T) {
	c := relaytest.New(t, relaytest.Options{Task: func(draft *task.Task) {
		q := planner.Query{Name: "bins", Query: task.Histogram, Bins: task.Histogram.Info().MostBins, Labels: true, Batch: 20,
			Honest: 1, Epsilon: 20, Delta: 1e-4}
		calibrated, err := planner.Draft(q)
		require.NoError(t, err)
		calibrated.Epochs = draft.Epochs
		calibrated.Input.Bins++
		*draft = *calibrated
	}})
	keys, err := keyfile.LoadHPKE(c.VerifierKeys("task0"))
	require.NoError(t, err)
	_, err = verifier.New(c.Open, keys)
	require.ErrorContains(t, err, "invalid input.bins 1048577: want at most 1048576")
}

func TestKeysOfAnotherTaskAreRefused(t *testing.T) {
	keys, err := keyfile.LoadHPKE(newCascade(t).VerifierKeys("task0"))
	require.NoError(t, err)
	_, err = verifier.New(newCascade(t).Open, keys)
	require.ErrorContains(t, err, "couldn't use")
}
