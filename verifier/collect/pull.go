// Package collect takes a task's batches from its last relay and keeps them in a folder: the verifier's server and
// the demo call it. What it has pulled it hands to a [verifier.Verifier] by calls, batch by batch, once that is on the
// disk. Neither takes the other's lock.
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

// Puller takes a task's batches from its last relay. Every batch is kept in a folder as a .batch
// file before it is confirmed, because confirming deletes it at the relay; after a restart the
// folder is read first. A batch number stands for the same bytes for ever, so a pull that was cut
// short, or came to something that is not the relay's batch, is simply repeated.
//
// A kept file that is not what its name says, damaged on the disk or changed, is put aside, named in the
// findings, and asked for again.
type Puller struct {
	// Clock replaces time.Now in tests. It may be set before the first pull.
	Clock func() time.Time

	// Late is how long after its end an epoch may lack its signed end before it counts as late. Default 1h.
	// It may be set before the first pull.
	Late time.Duration

	verifier *verifier.Verifier
	open     *taskfile.Open
	client   *handover.Client
	log      *slog.Logger
	release  func() error       // gives the folder back
	cursors  map[uint64]*cursor // By epoch.

	folder      *folder
	notes       *findingStore
	checkpoints *checkpoints
	relayClock  relayClock
	status      pullStatus
}

// cursor is how far an epoch has been pulled.
type cursor struct {
	next     uint64                  // Number of the next batch.
	complete bool                    // There is no further batch.
	end      *onion.End              // The last relay's, in the folder; nil before it is there.
	kept     map[uint64]bool         // Batches in the folder, by number.
	slotless map[uint64]bool         // Those of them that have no slots.
	released uint64                  // Batches below next that have slots.
	spoilt   uint64                  // Those that were destroyed or refused.
	pending  map[uint64][]byte       // Manifests of batches kept and not yet confirmed, by number.
	hashes   map[uint64]handover.Had // Of each number that is known here.
	written  bool                    // What the epoch adds up to is in the folder.
	erased   bool                    // Its records are not, and its key is gone.
	missing  bool                    // A batch was here once and is not: it may come back from a backup.
}

// NewPuller returns a puller that keeps batches in dir, which it creates, and adds those that are
// there already. The folder is its own until [Puller.Close]: two verifiers that pulled into one would
// confirm each other's batches.
func NewPuller(v *verifier.Verifier, client *handover.Client, dir string, log *slog.Logger) (*Puller, error) {
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

// Close gives the folder back.
func (p *Puller) Close() error { return p.release() }

// confirmLater has a batch of an earlier run confirmed, as a crash may have come before that: and before its file
// was on disk, which is waited for.
func (c *cursor) confirmLater(seq uint64, manifest []byte, file string) error {
	if err := durable.Settle(file); err != nil {
		return fmt.Errorf("couldn't sync %s: %w", file, err)
	}
	c.pending[seq] = manifest
	return nil
}

// Run pulls every interval until ctx ends.
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

// Pull takes all batches that are ready, of all epochs that have begun. Its error is that of the
// first epoch that failed; the others have been tried.
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
		if open.Epochs.Start+epoch*open.Epochs.Length > now {
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

// confirm lets the relay delete the batches that are kept.
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

// errEnded is the last relay's answer where its operator has ended the epoch after a set-back.
var errEnded = problem.New(problem.EpochEnded, "")

// errRetry ends a pull where the batch must be asked for again.
var errRetry = errors.New("not the relay's batch")

// slotlessPerTurn is how many numbers of an epoch may bring nothing before the other epochs have their turn: a
// relay that refuses itself without end holds up nothing.
const slotlessPerTurn = 16

func (p *Puller) pullEpoch(ctx context.Context, epoch uint64, c *cursor) error {
	for slotless := 0; slotless < slotlessPerTurn; {
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
			// Anyone on the way can say so; what ends the epoch is the last relay's signed word.
			if c.end != nil { // which is here, and tells of this number
				return nil
			}
			if done, err := p.takeEnd(ctx, epoch, c); err != nil || !done {
				return err
			}
			continue
		case errors.Is(err, errEnded):
			// Anyone on the way can say so, too: nothing is erased for it, and it is asked again.
			return p.notes.note(finding.Ended, placeOf(epoch, c.next, "epoch %d, from batch %d on", epoch, c.next))
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

// pass goes on behind a number whose batch had slots, or was destroyed or refused.
func (c *cursor) pass(released bool) {
	c.next++
	if released {
		c.released++
	} else {
		c.spoilt++
	}
}

// isFull says whether no further batch of an epoch is asked for, whatever its relay has: all that a task can have
// are here, or far too many were destroyed or refused, each of which takes room in the folder. Its signed end may still
// come.
func (p *Puller) isFull(epoch uint64, c *cursor) (bool, error) {
	if !onion.Spoilt(c.released, c.spoilt) {
		return !p.open.HasBatch(c.next), nil
	}
	return true, p.notes.note(finding.Spoilt, placeOf(epoch, c.next, "epoch %d, from batch %d on: %d before it were "+
		"destroyed or refused", epoch, c.next, c.spoilt))
}

// skipMissing notes that a batch was confirmed before and is not here, and says whether to go on without it. Anyone
// on the way can say so, and to ask for the next number is to say that this one was here. So it goes on only where
// the signed end of the epoch tells of the number.
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

// advance passes over the batches that are kept. The epoch is complete when its signed end tells of no
// further one.
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

// takeEnd keeps the signed end of an epoch and says whether it has: where it tells of no further batch than were
// pulled, or one is gone. One that tells of fewer, or of other totals, contradicts batches that its relay has
// signed too, and is not believed.
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
		return false, p.notes.note(finding.End, placeOf(epoch, end.Batches, "epoch %d has %d batches by its "+
			"signed end, and %d were signed", epoch, end.Batches, c.next))
	}
	if end.Batches > c.next && !c.missing {
		return false, nil
	}
	if why, err := p.folder.contradiction(end); err != nil || why != "" {
		if why != "" {
			err = p.notes.note(finding.End, verifier.Place{Epoch: epoch, Seq: end.Batches, Text: why})
		}
		return false, err
	}
	if first := end.Hop + 1 - uint64(len(chain)); first > 0 {
		at := placeOf(epoch, end.Batches, "epoch %d was given up at hop %d, which had no signed end of the "+
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

// fetchEnd fetches the signed end of an epoch whose sum is written down, where its file was damaged.
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

// pullOne keeps and adds the next batch of an epoch. One that the last relay has signed and that
// fails its checks is that relay's fault, and final: it is noted, not kept and not confirmed. Any
// other fault may be of someone on the way: errRetry. It says whether slots came.
func (p *Puller) pullOne(ctx context.Context, epoch uint64, c *cursor) (hasSlots bool, err error) {
	open, seq := p.open, c.next
	take := func(b *verifier.Incoming) error {
		hasSlots = !b.Last().Destroyed()
		return p.checkpoints.take(b)
	}
	// It may be here, where there was no room for what is in it.
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
		Before: p.folder.historyDigest(epoch, seq, c), Witness: p.folder.keepManifest(epoch, seq)}, file)
	if err := file.err; err != nil {
		return false, fmt.Errorf("couldn't keep batch %d of epoch %d: %w", seq, epoch, err)
	}
	if ctx.Err() == nil { // else it is this verifier that ends
		p.status.noteContact(err, p.Clock)
	}
	if fault := handover.Foreign(err); fault != nil {
		if err := p.notes.note(finding.Foreign, verifier.BatchPlace(epoch, seq).Because(fault)); err != nil {
			return false, err
		}
		return false, errRetry
	}
	if errors.Is(err, errEquivocation) {
		return false, p.checkpoints.addEquivocation(epoch, seq)
	}
	if refused := new(handover.Refused); errors.As(err, &refused) {
		if err := p.notes.note(refusedName(refused), verifier.BatchPlace(epoch, seq).Because(refused)); err != nil {
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

// confirmNext has a batch confirmed that was added.
func (p *Puller) confirmNext(epoch, seq uint64, c *cursor, signed *onion.SignedManifest) {
	c.pending[seq] = signed.Manifest
	p.folder.removeManifest(epoch, seq)
}

// refusedName names what is wrong with a batch that its relay signed: as of a file, where there is such a name.
func refusedName(err error) finding.Name {
	if name := verifier.FaultName(err); name != finding.Foreign {
		return name
	}
	return finding.Refused
}

// keptFile is the file of a batch that is being pulled. It is begun with the first byte: mostly there is no batch yet.
type keptFile struct {
	path string
	file *durable.File
	err  error // of the disk
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

// commit keeps the file, in which a whole batch is.
func (k *keptFile) commit() error { return k.file.Commit() }

func (k *keptFile) abort() {
	if k.file != nil {
		k.file.Abort()
	}
}
