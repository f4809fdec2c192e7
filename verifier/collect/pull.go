// Package collect takes a task's batches from its last relay and keeps them in a folder: the verifier's server and
// the demo call it. What it has pulled it hands to a [verifier.Verifier] by calls, batch by batch, once that is on the
// disk. Neither takes the other's lock.
package collect

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
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
	dir      string
	log      *slog.Logger
	release  func() error       // gives the folder back
	cursors  map[uint64]*cursor // By epoch.
	notes    []noted            // Findings that have no record, as they are on the disk.

	relayClock relayClock

	mu   sync.Mutex // guards seen
	seen seen
}

// cursor is how far an epoch has been pulled.
type cursor struct {
	next     uint64                  // Number of the next batch.
	complete bool                    // There is no further batch.
	end      *onion.End              // The last relay's, in the folder; nil before it is there.
	kept     map[uint64]bool         // Batches in the folder, by number.
	barren   map[uint64]bool         // Those of them that have no slots.
	released uint64                  // Batches below next that have slots.
	spoilt   uint64                  // Those that were destroyed or refused.
	pending  map[uint64][]byte       // Manifests of batches kept and not yet confirmed, by number.
	had      map[uint64]handover.Had // Of each number that is known here.
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
	p := &Puller{Clock: time.Now, Late: time.Hour, verifier: v, open: v.Task(), client: client, dir: dir, log: log,
		release: release, cursors: map[uint64]*cursor{},
		seen: seen{contact: verifier.ContactNone, ended: map[uint64]bool{}}}
	v.Scratch(dir)
	if err := p.reload(); err != nil {
		return nil, errors.Join(err, p.Close())
	}
	v.ShowProgress(p.Progress)
	return p, nil
}

// Close gives the folder back.
func (p *Puller) Close() error { return p.release() }

// reload adds the batches of an earlier run. There may be gaps: numbers that were refused, or that were
// put aside.
func (p *Puller) reload() error {
	for epoch := range p.open.Epochs.Count {
		p.cursors[epoch] = &cursor{kept: map[uint64]bool{}, barren: map[uint64]bool{}, pending: map[uint64][]byte{},
			had: map[uint64]handover.Had{}}
	}
	if err := p.noteQuarantined(); err != nil {
		return err
	}
	if err := p.restore(); err != nil {
		return err
	}
	earlier := len(p.notes)
	files, err := os.ReadDir(p.dir)
	if err != nil {
		return fmt.Errorf("couldn't read the kept batches: %w", err)
	}
	for _, file := range files {
		if err := p.reloadFile(file.Name()); err != nil {
			return fmt.Errorf("%s: %w", filepath.Join(p.dir, file.Name()), err)
		}
	}
	p.showNotes(earlier)
	for epoch, c := range p.cursors {
		if err := p.advance(epoch, c); err != nil {
			return err
		}
	}
	p.notePending()
	return nil
}

// reloadFile takes one kept file, or puts it aside: its fault is the disk's, or of someone who wrote to it,
// and the relay may have another.
func (p *Puller) reloadFile(name string) error {
	var fault, err error
	f, ok := ParseFileName(name)
	switch {
	case !ok:
		fault = p.reloadManifest(name)
	case f.End:
		fault = p.reloadEnd(f.Epoch)
	default:
		fault, err = p.reloadBatch(f.Epoch, f.Seq)
	}
	if fault == nil {
		return err
	}
	return p.putAside(name, fault)
}

// putAside moves a damaged file into the quarantine.
func (p *Puller) putAside(name string, fault error) error {
	if err := quarantine(p.dir, filepath.Join(p.dir, name)); err != nil {
		return err
	}
	p.log.Warn("put a damaged file aside", "task", p.open.ID.String()[:8], "file", name, "fault", fault)
	p.verifier.Note(finding.Quarantined, name+": "+fault.Error())
	return nil
}

// reloadBatch takes a kept batch, and opens it if nothing is written down of it yet. A fault is the file's; an
// error is another.
func (p *Puller) reloadBatch(epoch, seq uint64) (fault, err error) {
	c := p.cursors[epoch]
	if c == nil {
		return fmt.Errorf("the task has no epoch %d", epoch), nil
	}
	do := func(b *verifier.Incoming) error { return b.Check() }
	if !c.written && !c.kept[seq] {
		do = p.take
	}
	signed, err := p.readKept(epoch, seq, func(b *verifier.Incoming) error {
		c.barren[seq] = b.Last().Destroyed()
		return do(b)
	})
	if fault := new(verifier.Fault); errors.As(err, &fault) {
		return fault.Err, nil
	}
	if unread := new(verifier.ReadError); errors.As(err, &unread) {
		return fmt.Errorf("couldn't read it: %w", unread.Err), nil
	}
	if err != nil {
		return nil, err
	}
	c.kept[seq] = true
	return nil, c.confirmLater(seq, signed.Manifest, p.path(epoch, seq))
}

// readKept has do read a kept batch, and returns what was signed. A [Fault] or [verifier.ReadError] is the file's.
func (p *Puller) readKept(epoch, seq uint64, do func(*verifier.Incoming) error) (*onion.SignedManifest, error) {
	file, err := os.Open(p.path(epoch, seq))
	if err != nil {
		return nil, &verifier.ReadError{Err: err}
	}
	defer file.Close()
	b, err := verifier.Receive(p.open, bufio.NewReaderSize(file, readAhead))
	if err != nil {
		return nil, err
	}
	if m := b.Last(); m.Epoch != epoch || m.Seq != seq {
		return nil, &verifier.Fault{Name: finding.Foreign, Err: errors.New("not the batch that its name says")}
	}
	return b.Signed, do(b)
}

// reloadEnd reads the kept end of an epoch.
func (p *Puller) reloadEnd(epoch uint64) error {
	raw, err := os.ReadFile(p.endPath(epoch))
	if err != nil {
		return fmt.Errorf("couldn't read it: %w", errors.Unwrap(err))
	}
	end, err := onion.ParseEnd(raw)
	if err != nil {
		return err
	}
	open, c := p.open, p.cursors[epoch]
	if c == nil {
		return fmt.Errorf("the task has no epoch %d", epoch)
	}
	chain, err := end.Check(open.Task, onion.Context{TaskID: open.ID, Epoch: epoch, Hop: open.VerifierHop() - 1})
	if err != nil {
		return err
	}
	c.end = &chain[len(chain)-1]
	return p.verifier.End(epoch, c.end.Batches)
}

// confirmLater has a batch of an earlier run confirmed, as a crash may have come before that: and before its file
// was on disk, which is waited for.
func (c *cursor) confirmLater(seq uint64, manifest []byte, file string) error {
	if err := durable.Settle(file); err != nil {
		return fmt.Errorf("couldn't sync %s: %w", file, err)
	}
	c.pending[seq] = manifest
	return nil
}

func (p *Puller) endPath(epoch uint64) string {
	return filepath.Join(p.dir, fmt.Sprintf(endName, epoch))
}

func (p *Puller) path(epoch, seq uint64) string {
	return filepath.Join(p.dir, fmt.Sprintf(fileName, epoch, seq))
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
	now := p.now(ctx)
	var failed error
	disk := false
	note := func(err error) {
		disk = disk || ofDisk(err)
		if failed == nil {
			failed = err
		}
	}
	defer p.notePending()
	defer func() { p.noteDisk(disk) }()
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
			note(p.finish(epoch, c))
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

// errAgain ends a pull where the batch must be asked for again.
var errAgain = errors.New("not the relay's batch")

// fruitlessPerTurn is how many numbers of an epoch may bring nothing before the other epochs have their turn: a
// relay that refuses itself without end holds up nothing.
const fruitlessPerTurn = 16

func (p *Puller) pullEpoch(ctx context.Context, epoch uint64, c *cursor) error {
	for fruitless := 0; fruitless < fruitlessPerTurn; {
		if err := p.advance(epoch, c); c.complete || err != nil {
			return err
		}
		if over, err := p.takesNoMore(epoch, c); over || err != nil {
			if err == nil && c.end == nil {
				_, err = p.takeEnd(ctx, epoch, c)
			}
			return errors.Join(err, p.advance(epoch, c))
		}
		fruit, err := p.pullOne(ctx, epoch, c)
		switch {
		case errors.Is(err, handover.ErrNotSealed) || errors.Is(err, errAgain):
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
			return p.note(finding.Ended, placeOf(epoch, c.next, "epoch %d, from batch %d on", epoch, c.next))
		case errors.Is(err, handover.ErrConfirmed):
			if past, err := p.passOver(ctx, epoch, c); err != nil || !past {
				return err
			}
			c.next++
		case err != nil:
			return err
		default:
			c.pass(fruit)
		}
		if !fruit {
			fruitless++
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

// takesNoMore says whether no further batch of an epoch is asked for, whatever its relay has: all that a task can have
// are here, or far too many were destroyed or refused, each of which takes room in the folder. Its signed end may still
// come.
func (p *Puller) takesNoMore(epoch uint64, c *cursor) (bool, error) {
	if !onion.Spoilt(c.released, c.spoilt) {
		return !p.open.HasBatch(c.next), nil
	}
	return true, p.note(finding.Spoilt, placeOf(epoch, c.next, "epoch %d, from batch %d on: %d before it were "+
		"destroyed or refused", epoch, c.next, c.spoilt))
}

// passOver notes that a batch was confirmed before and is not here, and says whether to go on without it. Anyone
// on the way can say so, and to ask for the next number is to say that this one was here. So it goes on only where
// the signed end of the epoch tells of the number.
func (p *Puller) passOver(ctx context.Context, epoch uint64, c *cursor) (bool, error) {
	if err := p.noteMissing(epoch, c.next); err != nil {
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

// mostMissing bounds the findings of batches that are not here, in an epoch: whoever answers can name any number.
const mostMissing = 100

// noteMissing notes that a batch is not here, or that there are more than mostMissing.
func (p *Puller) noteMissing(epoch, seq uint64) error {
	before := 0
	for _, n := range p.notes {
		if n.Name == string(finding.Missing) && n.Epoch == epoch {
			before++
		}
	}
	at := verifier.BatchPlace(epoch, seq)
	at.Text += " was confirmed before, and is not here"
	switch {
	case before == mostMissing:
		at = placeOf(epoch, seq, "more than %d batches of epoch %d were confirmed before, and are not here",
			mostMissing, epoch)
	case before > mostMissing:
		return nil
	}
	return p.note(finding.Missing, at)
}

// advance passes over the batches that are kept. The epoch is complete when its signed end tells of no
// further one.
func (p *Puller) advance(epoch uint64, c *cursor) error {
	for c.kept[c.next] {
		c.pass(!c.barren[c.next])
	}
	if c.complete = c.written || c.end != nil && c.next >= c.end.Batches; !c.complete {
		return nil
	}
	p.noteEnded(epoch)
	return p.verifier.Complete(epoch)
}

// takeEnd keeps the signed end of an epoch and says whether it has: where it tells of no further batch than were
// pulled, or one is gone. One that tells of fewer, or of other totals, contradicts batches that its relay has
// signed too, and is not believed.
func (p *Puller) takeEnd(ctx context.Context, epoch uint64, c *cursor) (done bool, err error) {
	open := p.open
	if p.now(ctx) < open.Epochs.End(epoch) {
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
		return false, p.note(finding.End, placeOf(epoch, end.Batches, "epoch %d has %d batches by its "+
			"signed end, and %d were signed", epoch, end.Batches, c.next))
	}
	if end.Batches > c.next && !c.missing {
		return false, nil
	}
	if why, err := p.agrees(end); err != nil || why != "" {
		if why != "" {
			err = p.note(finding.End, verifier.Place{Epoch: epoch, Seq: end.Batches, Text: why})
		}
		return false, err
	}
	if first := end.Hop + 1 - uint64(len(chain)); first > 0 {
		at := placeOf(epoch, end.Batches, "epoch %d was given up at hop %d, which had no signed end of the "+
			"hop before", epoch, first)
		if err := p.note(finding.End, at); err != nil {
			return false, err
		}
	}
	if err := p.keepEnd(signed, epoch); err != nil {
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
	if err := p.keepEnd(signed, epoch); err != nil {
		return err
	}
	c.end = &chain[len(chain)-1]
	return nil
}

func (p *Puller) keepEnd(signed *onion.SignedEnd, epoch uint64) error {
	raw, err := signed.Bytes()
	if err != nil {
		return err
	}
	if err := durable.WriteFile(p.endPath(epoch), raw, 0o600); err != nil {
		return fmt.Errorf("couldn't keep the end of epoch %d: %w", epoch, err)
	}
	return nil
}

// pullOne keeps and adds the next batch of an epoch. One that the last relay has signed and that
// fails its checks is that relay's fault, and final: it is noted, not kept and not confirmed. Any
// other fault may be of someone on the way: errAgain. It says whether slots came.
func (p *Puller) pullOne(ctx context.Context, epoch uint64, c *cursor) (fruit bool, err error) {
	open, seq := p.open, c.next
	take := func(b *verifier.Incoming) error {
		fruit = !b.Last().Destroyed()
		return p.take(b)
	}
	// It may be here, where there was no room for what is in it.
	signed, err := p.readKept(epoch, seq, take)
	if fault, unread := new(verifier.Fault), new(verifier.ReadError); err == nil {
		p.taken(epoch, seq, c, signed)
		return fruit, nil
	} else if !errors.As(err, &fault) && !errors.As(err, &unread) {
		return false, err
	}
	last := open.VerifierHop() - 1
	file := &keptFile{path: p.path(epoch, seq)}
	defer file.abort()
	_, err = p.client.PullInto(ctx, handover.Request{Open: open, From: last, Epoch: epoch, Seq: seq,
		Before: p.before(epoch, seq, c), Witness: p.remember(epoch, seq)}, file)
	if err := file.err; err != nil {
		return false, fmt.Errorf("couldn't keep batch %d of epoch %d: %w", seq, epoch, err)
	}
	if ctx.Err() == nil { // else it is this verifier that ends
		p.noteContact(err)
	}
	if fault := handover.Foreign(err); fault != nil {
		if err := p.note(finding.Foreign, verifier.BatchPlace(epoch, seq).Because(fault)); err != nil {
			return false, err
		}
		return false, errAgain
	}
	if errors.Is(err, errTwice) {
		return false, p.twice(epoch, seq)
	}
	if refused := new(handover.Refused); errors.As(err, &refused) {
		if err := p.note(refusedName(refused), verifier.BatchPlace(epoch, seq).Because(refused)); err != nil {
			return false, err
		}
		return false, p.witness(refused.Signed, epoch, seq)
	}
	if err != nil {
		return false, err
	}
	if err := file.commit(); err != nil {
		return false, fmt.Errorf("couldn't keep batch %d of epoch %d: %w", seq, epoch, err)
	}
	if signed, err = p.readKept(epoch, seq, take); err != nil {
		return false, err
	}
	p.taken(epoch, seq, c, signed)
	return fruit, nil
}

// taken has a batch confirmed that was added.
func (p *Puller) taken(epoch, seq uint64, c *cursor, signed *onion.SignedManifest) {
	c.pending[seq] = signed.Manifest
	p.forget(epoch, seq)
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

// placeOf is a place of a batch with words of its own.
func placeOf(epoch, seq uint64, format string, args ...any) verifier.Place {
	return verifier.Place{Epoch: epoch, Seq: seq, Text: fmt.Sprintf(format, args...)}
}
