// Package collect pulls a task's batches from its last relay and stores them in a folder. The verifier's server and the
// demo use it. Once a batch is on disk, it passes the batch to a [verifier.Verifier] by a method call. Neither package
// uses the other's locks.
package collect

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/doona-dp/doona/internal/durable"
	"github.com/doona-dp/doona/verifier"
	"github.com/doona-dp/doona/verifier/finding"
	"github.com/doona-dp/doona/wire/handover"
	"github.com/doona-dp/doona/wire/onion"
	"github.com/doona-dp/doona/wire/problem"
	"github.com/doona-dp/doona/wire/taskfile"
)

// Puller pulls a task's batches from its last relay. It stores each batch in a folder, as a .batch file, before it
// confirms the batch, because the relay deletes confirmed batches. After a restart it first reads the folder. A batch
// number always stands for the same bytes. So if a pull was cut short, or returned anything but the relay's batch, the
// puller repeats the pull.
//
// A stored file that does not match its name was damaged or changed. The puller moves it to quarantine, notes a
// finding, and pulls it again.
type Puller struct {
	// Clock replaces time.Now in tests. Set it before the first pull.
	Clock func() time.Time

	// Late is how long after an epoch's end a missing signed end counts as late. Default 1h. Set it before the first
	// pull.
	Late time.Duration

	verifier *verifier.Verifier
	open     *taskfile.Open
	client   *handover.Requester
	log      *slog.Logger
	release  func() error       // releases the folder for other processes
	cursors  map[uint64]*cursor // by epoch

	folder      *folder
	notes       *findingStore
	checkpoints *checkpoints
	relayClock  relayClock
	status      pullStatus
}

// cursor is the state of pulling one epoch.
type cursor struct {
	next      uint64                             // Number of the next batch to pull.
	complete  bool                               // Whether no further batch exists.
	end       *onion.End                         // The last relay's signed end; nil until it is stored here.
	kept      map[uint64]bool                    // Numbers of the stored batches.
	slotless  map[uint64]bool                    // Numbers of the stored batches without slots.
	released  uint64                             // How many batches below next have slots.
	destroyed uint64                             // How many batches below next were destroyed or refused.
	pending   map[uint64][]byte                  // Manifests of stored but unconfirmed batches, by batch number.
	hashes    map[uint64]handover.ManifestHashes // Manifest hashes of batches, by batch number; a cache.
	written   bool                               // Whether the epoch's sum is stored.
	erased    bool                               // Whether the epoch's records and key are erased.
	missing   bool                               // Whether a confirmed batch is missing here; a backup may restore it.
}

// NewPuller returns a puller that stores batches in the folder dir. It creates dir if needed, and adds the batches that
// are already there. It claims the folder until [Puller.Close]: two verifiers that pull into one folder would confirm
// each other's batches.
func NewPuller(v *verifier.Verifier, client *handover.Requester, dir string, log *slog.Logger) (*Puller, error) {
	if err := durable.MakeFolder(dir, 0o700); err != nil {
		return nil, fmt.Errorf("couldn't keep batches: %w", err)
	}
	release, err := durable.Claim(dir)
	if err != nil {
		return nil, fmt.Errorf("couldn't keep batches in %s: %w", dir, err)
	}
	open := v.Task()
	files := &folder{dir, open}
	notes := &findingStore{folder: files, verifier: v}
	p := &Puller{Clock: time.Now, Late: time.Hour, verifier: v, open: open, client: client, log: log,
		release: release, cursors: map[uint64]*cursor{},
		folder: files, notes: notes, checkpoints: &checkpoints{files, v, notes, log},
		relayClock: relayClock{open: open, client: client, log: log},
		status:     pullStatus{contact: verifier.ContactNone, ended: map[uint64]bool{}}}
	v.Scratch(dir)
	if err := p.reload(); err != nil {
		return nil, errors.Join(err, p.Close())
	}
	v.ShowProgress(p.Progress)
	return p, nil
}

// Close releases the folder.
func (p *Puller) Close() error { return p.release() }

// confirmLater queues a batch of an earlier run for confirmation, in case that run crashed before it confirmed the
// batch. It first syncs the batch's file, because the crash may have come before that.
func (c *cursor) confirmLater(seq uint64, manifest []byte, file string) error {
	if err := durable.Sync(file); err != nil {
		return fmt.Errorf("couldn't sync %s: %w", file, err)
	}
	c.pending[seq] = manifest
	return nil
}

// Run pulls once per interval until ctx ends.
func (p *Puller) Run(ctx context.Context, interval time.Duration) error {
	tick := time.NewTicker(interval)
	defer tick.Stop()
	for {
		if err := p.Pull(ctx); err != nil && ctx.Err() == nil {
			p.log.Warn("couldn't pull", "error", err)
		}
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
	}
}

// Pull pulls all sealed batches of all epochs that have begun. It tries every epoch, and returns the first error.
func (p *Puller) Pull(ctx context.Context) error {
	open := p.open
	now := p.relayClock.now(ctx, p.Clock)
	var failed error
	disk := false
	note := func(err error) {
		disk = disk || isDiskError(err)
		if failed == nil {
			failed = err
		}
	}
	defer p.notePending()
	defer func() { p.status.noteDisk(disk) }()
	for epoch := range open.Epochs.Count {
		if open.Epochs.Begin(epoch) > now {
			break
		}
		c := p.cursors[epoch]
		if c.written && c.end == nil {
			note(p.fetchEnd(ctx, epoch, c))
		}
		if !c.complete {
			note(p.pullEpoch(ctx, epoch, c))
		}
		if c.complete && !c.erased && !c.missing {
			note(p.checkpoints.finish(epoch, c))
		}
		note(p.confirm(ctx, epoch, c))
	}
	return failed
}

// confirm tells the relay that the pending batches are stored here and may be deleted.
func (p *Puller) confirm(ctx context.Context, epoch uint64, c *cursor) error {
	open := p.open
	var failed error
	for seq, manifest := range c.pending {
		err := p.client.Confirm(ctx, open, open.VerifierHop()-1, epoch, seq, manifest)
		gone := errors.Is(err, handover.ErrConfirmed) || errors.Is(err, handover.ErrEpochComplete) ||
			errors.Is(err, errEnded)
		if err != nil && !gone {
			failed = err
			continue
		}
		delete(c.pending, seq)
	}
	return failed
}

// errEnded is the answer of the last relay after its operator ended the epoch because of a state rollback.
var errEnded = problem.New(problem.EpochEnded, "")

// errRetry means that the answer was not the relay's batch: pull it again.
var errRetry = errors.New("not the relay's batch")

// slotlessPerPull is how many batches without slots one pull of an epoch processes at most. So a relay whose batches
// are all refused does not delay the other epochs.
const slotlessPerPull = 16

func (p *Puller) pullEpoch(ctx context.Context, epoch uint64, c *cursor) error {
	for slotless := 0; slotless < slotlessPerPull; {
		if err := p.advance(epoch, c); c.complete || err != nil {
			return err
		}
		if over, err := p.isFull(epoch, c); over || err != nil {
			if err == nil && c.end == nil {
				_, err = p.takeEnd(ctx, epoch, c)
			}
			return errors.Join(err, p.advance(epoch, c))
		}
		hasSlots, err := p.pullOne(ctx, epoch, c)
		switch {
		case errors.Is(err, handover.ErrNotSealed) || errors.Is(err, errRetry):
			return nil
		case errors.Is(err, handover.ErrEpochComplete):
			// The answer is not authenticated, so it does not end the epoch. Only the last relay's signed end does.
			if c.end != nil { // the signed end includes this batch number
				return nil
			}
			if done, err := p.takeEnd(ctx, epoch, c); err != nil || !done {
				return err
			}
			continue
		case errors.Is(err, errEnded):
			// This answer is not authenticated either. So erase nothing, and ask again at the next pull.
			return p.notes.note(finding.Ended, positionOf(epoch, c.next, "epoch %d, from batch %d on", epoch, c.next))
		case errors.Is(err, handover.ErrConfirmed):
			if past, err := p.skipMissing(ctx, epoch, c); err != nil || !past {
				return err
			}
			c.next++
		case err != nil:
			return err
		default:
			c.pass(hasSlots)
		}
		if !hasSlots {
			slotless++
		}
	}
	return nil
}

// pass moves to the next batch number. released is false if the batch was destroyed or refused.
func (c *cursor) pass(released bool) {
	c.next++
	if released {
		c.released++
	} else {
		c.destroyed++
	}
}

// isFull reports whether the puller pulls no further batch of an epoch, whatever the relay offers. That is so after the
// maximum number of batches of the task. It is also so after far too many destroyed or refused batches, because each
// takes space in the folder. The signed end may still come.
func (p *Puller) isFull(epoch uint64, c *cursor) (bool, error) {
	if !onion.TooManyDestroyed(c.released, c.destroyed) {
		return !p.open.HasBatch(c.next), nil
	}
	return true, p.notes.note(finding.TooManyDestroyed, positionOf(epoch, c.next,
		"epoch %d, from batch %d on: %d earlier batches were destroyed or refused", epoch, c.next, c.destroyed))
}

// skipMissing notes that the relay calls a batch confirmed that is missing here, and reports whether to skip the batch.
// The relay's answer is not authenticated, and pulling the next batch would tell the relay that this one was received.
// So it skips only if the epoch's signed end includes this batch number.
func (p *Puller) skipMissing(ctx context.Context, epoch uint64, c *cursor) (bool, error) {
	if err := p.notes.noteMissing(epoch, c.next); err != nil {
		return false, err
	}
	c.missing = true
	if c.end == nil {
		if _, err := p.takeEnd(ctx, epoch, c); err != nil {
			return false, err
		}
	}
	return c.end != nil && c.next < c.end.Batches, nil
}

// advance moves past the stored batches. The epoch is complete when its signed end announces no further batch.
func (p *Puller) advance(epoch uint64, c *cursor) error {
	for c.kept[c.next] {
		c.pass(!c.slotless[c.next])
	}
	if c.complete = c.written || c.end != nil && c.next >= c.end.Batches; !c.complete {
		return nil
	}
	p.status.noteEnded(epoch)
	return p.verifier.Complete(epoch)
}

// takeEnd fetches the signed end of an epoch, and reports whether it stored the end. It stores the end only if all
// announced batches were pulled, or a confirmed one is missing. An end that announces fewer batches, or other totals,
// contradicts manifests that the same relay signed. It becomes a finding and is not stored.
func (p *Puller) takeEnd(ctx context.Context, epoch uint64, c *cursor) (done bool, err error) {
	open := p.open
	if p.relayClock.now(ctx, p.Clock) < open.Epochs.End(epoch) {
		return false, nil
	}
	signed, chain, err := p.client.End(ctx, open, open.VerifierHop()-1, epoch)
	if errors.Is(err, handover.ErrNotSealed) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	end := &chain[len(chain)-1]
	if end.Batches < c.next {
		return false, p.notes.note(finding.End, positionOf(epoch, end.Batches, "the signed end of epoch %d "+
			"announces %d batches, but %d were signed", epoch, end.Batches, c.next))
	}
	if end.Batches > c.next && !c.missing {
		return false, nil
	}
	if why, err := p.folder.contradiction(end); err != nil || why != "" {
		if why != "" {
			err = p.notes.note(finding.End, verifier.Position{Epoch: epoch, Seq: end.Batches, Text: why})
		}
		return false, err
	}
	if first := end.Hop + 1 - uint64(len(chain)); first > 0 {
		at := positionOf(epoch, end.Batches, "epoch %d was given up at hop %d, which had no signed end of the "+
			"hop before", epoch, first)
		if err := p.notes.note(finding.End, at); err != nil {
			return false, err
		}
	}
	if err := p.folder.keepEnd(signed, epoch); err != nil {
		return false, err
	}
	c.end = end
	return true, p.verifier.End(epoch, end.Batches)
}

// fetchEnd fetches the signed end of an epoch again if its file was damaged. The epoch's sum is stored already.
func (p *Puller) fetchEnd(ctx context.Context, epoch uint64, c *cursor) error {
	signed, chain, err := p.client.End(ctx, p.open, p.open.VerifierHop()-1, epoch)
	if err != nil {
		return err
	}
	if err := p.folder.keepEnd(signed, epoch); err != nil {
		return err
	}
	c.end = &chain[len(chain)-1]
	return nil
}

// pullOne pulls, stores and adds the next batch of an epoch, and reports whether it had slots. If the last relay signed
// a batch that fails its checks, that is final: the batch becomes a finding and is neither stored nor confirmed. Any
// other fault may come from someone on the network path, so pullOne returns errRetry.
func (p *Puller) pullOne(ctx context.Context, epoch uint64, c *cursor) (hasSlots bool, err error) {
	open, seq := p.open, c.next
	take := func(b *verifier.Incoming) error {
		hasSlots = !b.Last().Destroyed()
		return p.checkpoints.take(b)
	}
	// The batch's file may be here already, if the disk was full before its record was stored.
	signed, err := p.folder.readKept(epoch, seq, take)
	if fault, unread := new(verifier.Fault), new(verifier.ReadError); err == nil {
		p.confirmNext(epoch, seq, c, signed)
		return hasSlots, nil
	} else if !errors.As(err, &fault) && !errors.As(err, &unread) {
		return false, err
	}
	last := open.VerifierHop() - 1
	file := &keptFile{path: p.folder.path(epoch, seq)}
	defer file.abort()
	_, err = p.client.PullInto(ctx, handover.Request{Open: open, From: last, Epoch: epoch, Seq: seq,
		History: p.folder.historyDigest(epoch, seq, c), RecordManifest: p.folder.keepManifest(epoch, seq)}, file)
	if err := file.err; err != nil {
		return false, fmt.Errorf("couldn't keep batch %d of epoch %d: %w", seq, epoch, err)
	}
	if ctx.Err() == nil { // otherwise this verifier is stopping
		p.status.noteContact(err, p.Clock)
	}
	if fault := handover.Foreign(err); fault != nil {
		if err := p.notes.note(finding.Foreign, verifier.BatchPosition(epoch, seq).Because(fault)); err != nil {
			return false, err
		}
		return false, errRetry
	}
	if errors.Is(err, errEquivocation) {
		return false, p.checkpoints.addEquivocation(epoch, seq)
	}
	if refused := new(handover.InvalidBatchError); errors.As(err, &refused) {
		if err := p.notes.note(refusedName(refused), verifier.BatchPosition(epoch, seq).Because(refused)); err != nil {
			return false, err
		}
		return false, p.checkpoints.addManifest(refused.Signed, epoch, seq)
	}
	if err != nil {
		return false, err
	}
	if err := file.commit(); err != nil {
		return false, fmt.Errorf("couldn't keep batch %d of epoch %d: %w", seq, epoch, err)
	}
	if signed, err = p.folder.readKept(epoch, seq, take); err != nil {
		return false, err
	}
	p.confirmNext(epoch, seq, c, signed)
	return hasSlots, nil
}

// confirmNext queues a batch for confirmation after it was added.
func (p *Puller) confirmNext(epoch, seq uint64, c *cursor, signed *onion.SignedManifest) {
	c.pending[seq] = signed.Manifest
	p.folder.removeManifest(epoch, seq)
}

// refusedName names the fault of a batch that its relay signed: the name of the same fault in a file, or else
// [finding.Refused].
func refusedName(err error) finding.Name {
	if name := verifier.FaultName(err); name != finding.Foreign {
		return name
	}
	return finding.Refused
}

// keptFile is the file for a batch that is being pulled. It is created when the first byte comes, because most pulls
// find no batch.
type keptFile struct {
	path string
	file *durable.File
	err  error // the first error of the disk
}

func (k *keptFile) Write(p []byte) (n int, err error) {
	if k.file == nil && k.err == nil {
		k.file, k.err = durable.Create(k.path, 0o600)
	}
	if k.err == nil {
		n, k.err = k.file.Write(p)
	}
	return n, k.err
}

// commit stores the file permanently, after the whole batch was written.
func (k *keptFile) commit() error { return k.file.Commit() }

func (k *keptFile) abort() {
	if k.file != nil {
		k.file.Abort()
	}
}
