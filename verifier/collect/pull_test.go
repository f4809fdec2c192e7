package collect_test

import (
	"context"
	"crypto/ed25519"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/doona-dp/doona/internal/durable"
	"github.com/doona-dp/doona/internal/testing/relaytest"
	"github.com/doona-dp/doona/verifier"
	"github.com/doona-dp/doona/verifier/collect"
	"github.com/doona-dp/doona/verifier/finding"
	"github.com/doona-dp/doona/wire/codec"
	"github.com/doona-dp/doona/wire/onion"
	"github.com/doona-dp/doona/wire/problem"
	"github.com/doona-dp/doona/wire/signing"
	"github.com/doona-dp/doona/wire/task"
)

// pulled is a verifier that pulls from a fake relay, which the test controls.
type pulled struct {
	*relaytest.Cascade
	relay *relaytest.Rogue
	dir   string
	last  *collect.Puller
}

func newPulled(t *testing.T, change ...func(*task.Task)) *pulled {
	t.Helper()
	c := relaytest.New(t, relaytest.Options{Hops: 1, Task: relaytest.Mean(batchSize, change...)})
	return &pulled{c, c.StartFirst(t), filepath.Join(t.TempDir(), "batches"), nil}
}

// start starts a verifier and its puller. The puller has read the stored files.
func (p *pulled) start(t *testing.T) (*verifier.Verifier, *collect.Puller) {
	t.Helper()
	if p.last != nil {
		require.NoError(t, p.last.Close())
	}
	v := newVerifier(t, p.Cascade)
	puller, err := collect.NewPuller(v, p.Verifier, p.dir, slog.New(slog.DiscardHandler))
	require.NoError(t, err)
	p.last = puller
	return v, puller
}

func (p *pulled) batch(t *testing.T, seq uint64) *onion.Batch {
	t.Helper()
	return p.relay.Batch(t, 0, seq, batchSize, [][][]byte{slots(t, p.Cascade, batchSize)})
}

// TestAForeignBatchIsAskedForAgain: anyone on the network path can alter a batch, so the verifier must pull it again.
func TestAForeignBatchIsAskedForAgain(t *testing.T) {
	p := newPulled(t)
	v, puller := p.start(t)
	good := p.batch(t, 0)
	altered := *good
	altered.Ciphertexts = [][][]byte{good.Ciphertexts[0][1:]}
	p.relay.Serve(t, 0, 0, &altered)
	for range 3 {
		require.NoError(t, puller.Pull(t.Context()))
	}
	requireReport(t, v, 0, finding.Foreign)
	require.False(t, p.relay.Confirmed(0, 0))
	files, err := filepath.Glob(filepath.Join(p.dir, "*.batch*"))
	require.NoError(t, err)
	require.Equal(t, []string{filepath.Join(p.dir, "000000-000000.batch.manifest")}, files, "no part of it stays")
	p.relay.Serve(t, 0, 0, good)
	require.NoError(t, puller.Pull(t.Context()))
	requireReport(t, v, 1, finding.Foreign)
	require.True(t, p.relay.Confirmed(0, 0))
}

// TestAnEarlyEndIsNotBelieved: an unsigned answer that an epoch has ended must not end the epoch.
func TestAnEarlyEndIsNotBelieved(t *testing.T) {
	p := newPulled(t)
	v, puller := p.start(t)
	p.relay.End(0)
	require.NoError(t, puller.Pull(t.Context()))
	p.relay.Serve(t, 0, 0, p.batch(t, 0))
	require.NoError(t, puller.Pull(t.Context()))
	requireReport(t, v, 1)
}

// TestARestartReadsBeyondAGap: the relay deletes confirmed batches, also after a refused one. A restart must read them
// from the folder.
func TestARestartReadsBeyondAGap(t *testing.T) {
	p := newPulled(t)
	short := slots(t, p.Cascade, batchSize-1)
	impossible, err := onion.NewBatch(p.relay.Sign, onion.BatchDraft{
		Context: p.relay.Context(0), Submissions: batchSize, In: []uint64{batchSize - 1},
	}, [][][]byte{short})
	require.NoError(t, err)
	p.relay.Serve(t, 0, 0, impossible)
	p.relay.Serve(t, 0, 1, p.batch(t, 1))
	v, puller := p.start(t)
	require.NoError(t, puller.Pull(t.Context()))
	requireReport(t, v, 1, finding.Counts)
	require.False(t, p.relay.Confirmed(0, 0))
	require.True(t, p.relay.Confirmed(0, 1))

	again, puller := p.start(t)
	requireReport(t, again, 1, finding.Counts)
	require.NoError(t, puller.Pull(t.Context()))
	requireReport(t, again, 1, finding.Counts)
}

// TestACompleteEpochIsOver: a complete epoch has no replay set any more, so it must not accept a batch.
func TestACompleteEpochIsOver(t *testing.T) {
	p := newPulled(t, func(draft *task.Task) { draft.Epochs.Start -= uint64(2 * draft.Epochs.Length) })
	v, puller := p.start(t)
	p.relay.Serve(t, 0, 0, p.batch(t, 0))
	require.NoError(t, puller.Pull(t.Context()))
	require.NoError(t, v.Add(p.batch(t, 1)))
	p.relay.End(0)
	p.relay.Serve(t, 0, 1, p.batch(t, 2)) // the answer has another batch's number: foreign, and no end
	require.NoError(t, puller.Pull(t.Context()))
	require.NoError(t, v.Add(p.batch(t, 3)))
	p.relay.Answer(0, 1, nil)
	require.NoError(t, puller.Pull(t.Context()))
	require.ErrorContains(t, v.Add(p.batch(t, 4)), "the epoch is complete")
}

// TestTheEndIsKept: only the last relay's signed end ends an epoch. A restart must find it in the folder.
func TestTheEndIsKept(t *testing.T) {
	p := newPulled(t, func(draft *task.Task) { draft.Epochs.Start -= uint64(2 * draft.Epochs.Length) })
	_, puller := p.start(t)
	p.relay.Serve(t, 0, 0, p.batch(t, 0))
	p.relay.Answer(0, 1, func(w http.ResponseWriter, _ *http.Request) { problem.New(problem.Complete, "").Write(w) })
	require.NoError(t, puller.Pull(t.Context()))
	pulls := p.relay.Pulls(0, 1)
	require.NoError(t, puller.Pull(t.Context()))
	require.Greater(t, p.relay.Pulls(0, 1), pulls, "an unsigned answer")
	p.relay.End(0)
	require.NoError(t, puller.Pull(t.Context()))
	pulls = p.relay.Pulls(0, 1)
	_, puller = p.start(t)
	require.NoError(t, puller.Pull(t.Context()))
	require.Equal(t, pulls, p.relay.Pulls(0, 1), "the folder says that there is no batch 1")
}

// cutBatch answers with a batch without its last 10 bytes.
func cutBatch(t *testing.T, b *onion.Batch) http.HandlerFunc {
	t.Helper()
	raw, err := b.Bytes()
	require.NoError(t, err)
	return func(w http.ResponseWriter, _ *http.Request) { w.Write(raw[:len(raw)-10]) }
}

// TestOneManifestOfANumber: if the relay signed two manifests for one batch number, neither batch counts. The verifier
// stores both as evidence, also after a restart, and even if the first batch comes again. It pulls later batches.
func TestOneManifestOfANumber(t *testing.T) {
	for name, restart := range map[string]bool{"running": false, "restarted": true} {
		t.Run(name, func(t *testing.T) {
			p := newPulled(t)
			v, puller := p.start(t)
			one, other := p.batch(t, 0), p.batch(t, 0)
			p.relay.Answer(0, 0, cutBatch(t, one))
			require.Error(t, puller.Pull(t.Context()))
			if restart {
				v, puller = p.start(t)
			}
			p.relay.Serve(t, 0, 0, other)
			p.relay.Serve(t, 0, 1, p.batch(t, 1))
			require.NoError(t, puller.Pull(t.Context()))
			requireReport(t, v, 1, finding.Equivocation)
			require.False(t, p.relay.Confirmed(0, 0))
			require.True(t, p.relay.Confirmed(0, 1))
			for suffix, want := range map[string]*onion.Batch{"": one, ".second": other} {
				raw, err := os.ReadFile(filepath.Join(p.dir, "000000-000000.batch.manifest"+suffix))
				require.NoError(t, err)
				var s onion.SignedManifest
				require.NoError(t, codec.Unmarshal(raw, &s))
				require.Equal(t, *want.Signed(), s)
			}
			p.relay.Serve(t, 0, 0, one)
			for range 2 {
				v, puller = p.start(t)
				requireReport(t, v, 1, finding.Equivocation)
				require.NoError(t, puller.Pull(t.Context()))
				requireReport(t, v, 1, finding.Equivocation)
			}
			require.Len(t, v.Findings()[0].Evidence, 1)
			require.Len(t, v.Findings()[0].Evidence[0].Manifests, 2)
		})
	}
}

// TestEndsThatContradict: a signed end that contradicts batches signed by the same relay is a finding and does not end
// the epoch. A correct end later ends the epoch.
func TestEndsThatContradict(t *testing.T) {
	for name, lie := range map[string]func(t *testing.T, p *pulled, puller *collect.Puller){
		"of fewer than were pulled": func(t *testing.T, p *pulled, puller *collect.Puller) {
			p.relay.Answer(0, 1, nil)
		},
		"of fewer than were signed": func(t *testing.T, p *pulled, puller *collect.Puller) {
			p.relay.Answer(0, 2, cutBatch(t, p.batch(t, 2)))
			require.Error(t, puller.Pull(t.Context()))
			p.relay.Answer(0, 2, nil)
		},
		"of other totals": func(t *testing.T, p *pulled, _ *collect.Puller) {
			short := slots(t, p.Cascade, batchSize-1)
			p.relay.Serve(t, 0, 1, p.relay.Batch(t, 0, 1, batchSize, [][][]byte{short}))
		},
	} {
		t.Run(name, func(t *testing.T) {
			p := newPulled(t, func(draft *task.Task) { draft.Epochs.Start -= uint64(2 * draft.Epochs.Length) })
			v, puller := p.start(t)
			batches := []*onion.Batch{p.batch(t, 0), p.batch(t, 1)}
			for seq, b := range batches {
				p.relay.Serve(t, 0, uint64(seq), b)
			}
			require.NoError(t, puller.Pull(t.Context()))
			lie(t, p, puller)
			p.relay.End(0)
			for range 3 {
				require.NoError(t, puller.Pull(t.Context()))
			}
			requireReport(t, v, 2, finding.End)
			require.NoFileExists(t, filepath.Join(p.dir, "000000.end"))
			p.relay.Serve(t, 0, 1, batches[1])
			require.NoError(t, puller.Pull(t.Context()))
			if name == "of fewer than were signed" {
				require.NoFileExists(t, filepath.Join(p.dir, "000000.end"), "batch 2 was signed all the same")
				return
			}
			require.FileExists(t, filepath.Join(p.dir, "000000.end"))
			require.ErrorContains(t, v.Add(p.batch(t, 4)), "the epoch is complete")
		})
	}
}

// TestAnEndOfMore: a signed end that announces more batches does not end the epoch until they have come. It is no
// finding.
func TestAnEndOfMore(t *testing.T) {
	p := newPulled(t, func(draft *task.Task) { draft.Epochs.Start -= uint64(2 * draft.Epochs.Length) })
	v, puller := p.start(t)
	second := p.batch(t, 1)
	p.relay.Serve(t, 0, 0, p.batch(t, 0))
	p.relay.Serve(t, 0, 1, second) // the signed end includes it
	p.relay.Answer(0, 1, func(w http.ResponseWriter, _ *http.Request) { problem.New(problem.Complete, "").Write(w) })
	p.relay.End(0)
	require.NoError(t, puller.Pull(t.Context()))
	requireReport(t, v, 1)
	require.NoFileExists(t, filepath.Join(p.dir, "000000.end"))
	p.relay.Serve(t, 0, 1, second)
	require.NoError(t, puller.Pull(t.Context()))
	requireReport(t, v, 2)
	require.FileExists(t, filepath.Join(p.dir, "000000.end"))
}

// TestAnEndOfAStranger: an end that another key signed does not end the epoch.
func TestAnEndOfAStranger(t *testing.T) {
	p := newPulled(t, func(draft *task.Task) { draft.Epochs.Start -= uint64(2 * draft.Epochs.Length) })
	v, puller := p.start(t)
	p.relay.Serve(t, 0, 0, p.batch(t, 0))
	_, stranger, err := ed25519.GenerateKey(nil)
	require.NoError(t, err)
	require.NoError(t, puller.Pull(t.Context()))
	mine := p.relay.Sign
	p.relay.Sign = stranger
	p.relay.End(0)
	require.ErrorIs(t, puller.Pull(t.Context()), signing.ErrSigner)
	p.relay.Sign = mine
	require.NoError(t, v.Add(p.batch(t, 1)), "it goes on")
	require.NoError(t, puller.Pull(t.Context()))
	p.relay.Serve(t, 0, 0, p.batch(t, 0))
	require.NoError(t, puller.Pull(t.Context()))
	require.ErrorContains(t, v.Add(p.batch(t, 4)), "the epoch is complete")
}

// TestAnEndGivenUpIsAFinding: if the last relay gave up waiting for its upstream relay, the verifier accepts the end,
// and a finding says so.
func TestAnEndGivenUpIsAFinding(t *testing.T) {
	c := newPair(t, func(draft *task.Task) { draft.Epochs.Start -= uint64(2 * draft.Epochs.Length) })
	last := c.StartRogue(t, 1)
	last.End(0)
	v := newVerifier(t, c)
	dir := filepath.Join(t.TempDir(), "batches")
	puller, err := collect.NewPuller(v, c.Verifier, dir, slog.New(slog.DiscardHandler))
	require.NoError(t, err)
	defer puller.Close()
	require.NoError(t, puller.Pull(t.Context()))
	requireReport(t, v, 0, finding.End)
	r, err := v.Report()
	require.NoError(t, err)
	require.Contains(t, r.Findings[0].Example, "epoch 0 was given up at hop 1")
	require.FileExists(t, filepath.Join(dir, "000000.end"))
}

// TestConfirmsUntilItIsHeard: a verifier whose confirmations are lost, and that restarts, must confirm again. It must
// count the batch only once.
func TestConfirmsUntilItIsHeard(t *testing.T) {
	p := newPulled(t)
	v, puller := p.start(t)
	p.relay.Serve(t, 0, 0, p.batch(t, 0))
	p.relay.Deaf(true)
	for range 2 {
		lost := p.relay.Deaf(true)
		require.Error(t, puller.Pull(t.Context()))
		require.Greater(t, p.relay.Deaf(true), lost)
		requireReport(t, v, 1)
		v, puller = p.start(t)
	}
	p.relay.Deaf(false)
	require.NoError(t, puller.Pull(t.Context()))
	require.True(t, p.relay.Confirmed(0, 0))
	require.Equal(t, 1, p.relay.Pulls(0, 0), "it is not asked for again")
	requireReport(t, v, 1)
}

// confirmedAll makes the relay answer for the first batches of epoch 0 that they were confirmed.
func (p *pulled) confirmedAll(t *testing.T, upTo uint64) {
	t.Helper()
	for seq := range upTo {
		p.relay.Serve(t, 0, seq, p.batch(t, seq)) // the signed end includes it
		p.relay.Answer(0, seq, func(w http.ResponseWriter, _ *http.Request) {
			problem.New(problem.Confirmed, "").Write(w)
		})
	}
}

// TestConfirmedIsAnyonesWord: anyone on the network path can answer that a batch was confirmed. The verifier must not
// pull the next batch, because that would tell the last relay that it has this one, until the signed end includes this
// batch number.
func TestConfirmedIsAnyonesWord(t *testing.T) {
	p := newPulled(t, past)
	p.confirmedAll(t, 3)
	good := p.batch(t, 3)
	p.relay.Serve(t, 0, 3, good)
	v, puller := p.start(t)
	for range 3 {
		require.NoError(t, puller.Pull(t.Context()))
	}
	requireReport(t, v, 0, finding.Missing)
	require.Equal(t, 3, p.relay.Pulls(0, 0))
	require.Zero(t, p.relay.Pulls(0, 1))
	p.relay.End(0)
	require.NoError(t, puller.Pull(t.Context()))
	r, err := v.Report()
	require.NoError(t, err)
	require.EqualValues(t, 1, r.Batches)
	require.Equal(t, 1, p.relay.Pulls(0, 2))
	require.True(t, p.relay.Confirmed(0, 3))
	require.Zero(t, p.relay.Pulls(0, 4), "the end tells of four batches")
	require.NoError(t, p.keyOf(t, 0), "one may be found")
}

// TestSlotlessTurns: a last relay offers refused or destroyed batches without end. One pull must process only 16, so
// that other epochs are pulled, too.
func TestSlotlessTurns(t *testing.T) {
	for name, empty := range map[string]func(p *pulled, seq uint64) *onion.Batch{
		"refused": func(p *pulled, seq uint64) *onion.Batch {
			return p.relay.Sealed(t, onion.BatchDraft{
				Seq: seq, Submissions: batchSize, In: []uint64{batchSize - 1},
			}, nil)
		},
		"destroyed": func(p *pulled, seq uint64) *onion.Batch {
			return p.relay.Sealed(t, onion.BatchDraft{Seq: seq, Submissions: batchSize, In: []uint64{batchSize}}, nil)
		},
	} {
		t.Run(name, func(t *testing.T) {
			p := newPulled(t, past)
			for seq := range uint64(40) {
				p.relay.Serve(t, 0, seq, empty(p, seq))
			}
			lanes := [][][]byte{slotsOf(t, p.Cascade, 1, batchSize)}
			p.relay.Serve(t, 1, 0, p.relay.Batch(t, 1, 0, batchSize, lanes))
			v, puller := p.start(t)
			require.NoError(t, puller.Pull(t.Context()))
			r, err := v.Report()
			require.NoError(t, err)
			require.EqualValues(t, 1, r.Batches, "the other epoch")
			require.Equal(t, 1, p.relay.Pulls(0, 15))
			require.Zero(t, p.relay.Pulls(0, 16))
			require.NoError(t, puller.Pull(t.Context()))
			require.Equal(t, 1, p.relay.Pulls(0, 31))
			require.Zero(t, p.relay.Pulls(0, 32))
		})
	}
}

// TestNoPullAfterTooManyDestroyed: a last relay signs refused, destroyed or equivocated batches without end. The
// verifier must stop pulling the epoch at [onion.DestroyedAllowance], also after a restart, and note a finding. Its
// folder must have at most two manifests for each and few findings. The signed end must still end the epoch. The test
// counts all but the last 20 as received before.
func TestNoPullAfterTooManyDestroyed(t *testing.T) {
	const comes = 20
	for name, tt := range map[string]struct {
		serve func(p *pulled, seq uint64)
		found finding.Name
	}{
		"refused": {func(p *pulled, seq uint64) {
			p.relay.Serve(t, 0, seq, p.relay.Sealed(t, onion.BatchDraft{
				Seq: seq, Submissions: batchSize, In: []uint64{batchSize - 1},
			}, nil))
		}, finding.Counts},
		"destroyed": {func(p *pulled, seq uint64) {
			p.relay.Serve(t, 0, seq, p.relay.Sealed(t, onion.BatchDraft{
				Seq: seq, Submissions: batchSize, In: []uint64{batchSize},
			}, nil))
		}, finding.Destroyed},
		"two manifests of each": {func(p *pulled, seq uint64) {
			p.relay.Answer(0, seq, func(w http.ResponseWriter, req *http.Request) {
				cutBatch(t, p.batch(t, seq))(w, req) // another batch at each request
			})
		}, finding.Equivocation},
	} {
		t.Run(name, func(t *testing.T) {
			p := newPulled(t, past)
			for seq := range uint64(comes + 20) {
				tt.serve(p, seq)
			}
			v, puller := p.start(t)
			collect.DestroyedBefore(puller, 0, onion.DestroyedAllowance+1-comes)
			for range 2 * comes {
				_ = puller.Pull(t.Context()) // an answer that was cut off is an error
			}
			requireTooManyDestroyed(t, p, v, puller, comes, tt.found)
			v, puller = p.start(t)
			collect.DestroyedBefore(puller, 0, onion.DestroyedAllowance+1-comes)
			for range 2 * comes {
				_ = puller.Pull(t.Context())
			}
			requireTooManyDestroyed(t, p, v, puller, comes, tt.found)
			if tt.found != finding.Destroyed {
				return
			}
			for seq := uint64(comes); seq < comes+20; seq++ {
				p.relay.Answer(0, seq, nil)
			}
			p.relay.End(0)
			require.NoError(t, puller.Pull(t.Context()))
			require.FileExists(t, filepath.Join(p.dir, "000000.epoch"))
		})
	}
}

// requireTooManyDestroyed requires that every batch below number comes was received, and that no further one was
// pulled.
func requireTooManyDestroyed(t *testing.T, p *pulled, v *verifier.Verifier, puller *collect.Puller, comes uint64,
	found finding.Name) {
	t.Helper()
	counts := map[finding.Name]uint64{}
	for _, f := range v.Findings() {
		counts[f.Name] = f.Count
	}
	require.Equal(t, map[finding.Name]uint64{found: comes, finding.TooManyDestroyed: 1}, counts)
	require.NotZero(t, p.relay.Pulls(0, comes-1))
	require.Zero(t, p.relay.Pulls(0, comes))
	require.LessOrEqual(t, collect.NotesOf(puller), 3)
	files, err := filepath.Glob(filepath.Join(p.dir, "000000-*"))
	require.NoError(t, err)
	size := int64(0)
	for _, file := range files {
		info, err := os.Stat(file)
		require.NoError(t, err)
		size += info.Size()
	}
	each := size / int64(comes)
	require.LessOrEqual(t, each, 2*onion.MaxManifest(p.Open.Task, 0)+256)
	t.Logf("%d bytes in %d files for each of %d batches", each, len(files)/int(comes), comes)
}

// TestConfirmsWhatIsOnDisk: an earlier run was killed before it synced a file. The verifier must sync the file before
// it confirms the batch, because the last relay then deletes the batch.
func TestConfirmsWhatIsOnDisk(t *testing.T) {
	p := newPulled(t)
	p.relay.Serve(t, 0, 0, p.batch(t, 0))
	p.relay.Deaf(true)
	_, puller := p.start(t)
	require.Error(t, puller.Pull(t.Context()))
	p.relay.Deaf(false)
	synced := false
	durable.Watch(func(s durable.Step) (bool, error) {
		if s.Op == durable.OpSync && filepath.Ext(s.Path) == ".record" {
			require.False(t, p.relay.Confirmed(0, 0))
			synced = true
		}
		return false, nil
	})
	defer durable.Watch(func(durable.Step) (bool, error) { return false, nil })
	_, puller = p.start(t)
	require.True(t, synced)
	require.NoError(t, puller.Pull(t.Context()))
	require.True(t, p.relay.Confirmed(0, 0))
}

// TestARelayThatIsAway: the log must say that the relay did not answer, and not that a body could not be decoded.
func TestARelayThatIsAway(t *testing.T) {
	c := relaytest.New(t, relaytest.Options{Hops: 1, Task: relaytest.Mean(batchSize)})
	var log strings.Builder
	puller, err := collect.NewPuller(newVerifier(t, c), c.Verifier, t.TempDir(),
		slog.New(slog.NewTextHandler(&log, nil)))
	require.NoError(t, err)
	defer puller.Close()
	ctx, stop := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer stop()
	require.NoError(t, puller.Run(ctx, time.Hour))
	require.Contains(t, log.String(), "couldn't pull")
	require.Contains(t, log.String(), "connect")
	require.NotContains(t, log.String(), "decode")
}

// TestAnEpochThatItsRelaysOperatorEnded: the report must state once that the relay's operator ended the epoch. Received
// batches count, also after a restart. Their confirmation must not be retried forever.
func TestAnEpochThatItsRelaysOperatorEnded(t *testing.T) {
	p := newPulled(t)
	v, puller := p.start(t)
	p.relay.Serve(t, 0, 0, p.batch(t, 0))
	p.relay.Deaf(true)
	require.Error(t, puller.Pull(t.Context()), "the confirmation is lost")
	p.relay.Answer(0, 1, func(w http.ResponseWriter, _ *http.Request) { problem.New(problem.EpochEnded, "").Write(w) })
	p.relay.Deaf(false)
	for range 2 {
		require.NoError(t, puller.Pull(t.Context()))
		require.Equal(t, verifier.ContactThere, puller.Progress().Contact)
		require.Zero(t, puller.Progress().Unconfirmed)
		requireReport(t, v, 1, finding.Ended)
	}
	v, _ = p.start(t)
	requireReport(t, v, 1, finding.Ended)
}
