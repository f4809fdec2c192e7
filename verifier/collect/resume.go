package collect

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/doona-dp/doona/verifier"
	"github.com/doona-dp/doona/verifier/finding"
	"github.com/doona-dp/doona/wire/codec"
	"github.com/doona-dp/doona/wire/handover"
	"github.com/doona-dp/doona/wire/onion"
)

// reload adds the batches that an earlier run stored. Batch numbers may be missing, because batches were refused or
// moved to quarantine.
func (p *Puller) reload() error {
	for epoch := range p.open.Epochs.Count {
		p.cursors[epoch] = &cursor{kept: map[uint64]bool{}, slotless: map[uint64]bool{}, pending: map[uint64][]byte{},
			hashes: map[uint64]handover.ManifestHashes{}}
	}
	if err := p.noteQuarantined(); err != nil {
		return err
	}
	if err := p.restore(); err != nil {
		return err
	}
	earlier := len(p.notes.kept)
	files, err := os.ReadDir(p.folder.dir)
	if err != nil {
		return fmt.Errorf("couldn't read the kept batches: %w", err)
	}
	for _, file := range files {
		if err := p.reloadFile(file.Name()); err != nil {
			return fmt.Errorf("%s: %w", filepath.Join(p.folder.dir, file.Name()), err)
		}
	}
	p.notes.show(earlier, p.cursors)
	for epoch, c := range p.cursors {
		if err := p.advance(epoch, c); err != nil {
			return err
		}
	}
	p.notePending()
	return nil
}

// restore reads the checkpoints of an earlier run, so that no batch is opened twice. It moves damaged checkpoints to
// quarantine. The folder may still have the batches from which they were made.
func (p *Puller) restore() error {
	if err := p.notes.read(); err != nil {
		if err := p.quarantineDamaged(notesName, err); err != nil {
			return err
		}
	}
	for epoch, c := range p.cursors {
		raw, err := readChecked(p.folder.epochPath(epoch))
		if err == nil {
			err = p.verifier.RestoreEpoch(epoch, raw)
		}
		if err == nil {
			c.written = true
		} else if !errors.Is(err, os.ErrNotExist) {
			if err := p.quarantineDamaged(filepath.Base(p.folder.epochPath(epoch)), err); err != nil {
				return err
			}
		}
	}
	files, err := os.ReadDir(p.folder.dir)
	if err != nil {
		return fmt.Errorf("couldn't read the checkpoints: %w", err)
	}
	for _, file := range files {
		var epoch uint64
		if _, err := fmt.Sscanf(file.Name(), "%06d-", &epoch); err != nil || filepath.Ext(file.Name()) != recordExt ||
			p.verifier.IsClosed(epoch) {
			continue
		}
		if err := p.restoreRecord(file.Name()); err != nil {
			if err := p.quarantineDamaged(file.Name(), err); err != nil {
				return err
			}
		}
	}
	return nil
}

func (p *Puller) restoreRecord(name string) error {
	r, signed, err := p.checkpoints.readRecord(name)
	if err != nil {
		return err
	}
	if err := p.verifier.AddRecord(r); err != nil || r.Copies == 0 {
		return err
	}
	var m onion.Manifest
	if err := codec.Unmarshal(signed.Manifest, &m); err != nil {
		return err
	}
	c := p.cursors[r.Epoch]
	c.kept[r.Seq], c.slotless[r.Seq] = true, m.Destroyed()
	return c.confirmLater(r.Seq, signed.Manifest, filepath.Join(p.folder.dir, name))
}

// reloadFile reads one stored file, or moves it to quarantine if it is damaged. The disk or someone who wrote to it is
// at fault, and the relay may still have the batch.
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
	return p.quarantineFile(name, fault)
}

// reloadBatch adds a stored batch. It opens the batch if no record of it is stored. fault is a fault of the file; err
// is any other error.
func (p *Puller) reloadBatch(epoch, seq uint64) (fault, err error) {
	c := p.cursors[epoch]
	if c == nil {
		return fmt.Errorf("the task has no epoch %d", epoch), nil
	}
	do := func(b *verifier.Incoming) error { return b.Check() }
	if !c.written && !c.kept[seq] {
		do = p.checkpoints.take
	}
	signed, err := p.folder.readKept(epoch, seq, func(b *verifier.Incoming) error {
		c.slotless[seq] = b.Last().Destroyed()
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
	return nil, c.confirmLater(seq, signed.Manifest, p.folder.path(epoch, seq))
}

// reloadEnd reads the stored signed end of an epoch.
func (p *Puller) reloadEnd(epoch uint64) error {
	raw, err := os.ReadFile(p.folder.endPath(epoch))
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

// reloadManifest reads a manifest file. If it is the second one of its batch number, it adds both. It ignores other
// files.
func (p *Puller) reloadManifest(name string) error {
	first, second := strings.CutSuffix(name, secondSuffix)
	batch, ok := strings.CutSuffix(first, manifestSuffix)
	if f, known := ParseFileName(batch); ok && known && !f.End && !p.verifier.IsClosed(f.Epoch) {
		if second {
			return p.checkpoints.addEquivocation(f.Epoch, f.Seq)
		}
		_, err := readSigned(filepath.Join(p.folder.dir, name))
		return err
	}
	return nil
}

// noteQuarantined adds a finding for each file in quarantine, until the operator removes the file.
func (p *Puller) noteQuarantined() error {
	names, err := p.folder.quarantined()
	for _, name := range names {
		p.verifier.Note(finding.Quarantined, name+": moved to quarantine earlier")
	}
	return err
}

// quarantineFile moves a damaged file to quarantine.
func (p *Puller) quarantineFile(name string, fault error) error {
	if err := p.folder.quarantine(name); err != nil {
		return err
	}
	p.log.Warn("moved a damaged file to quarantine", "task", p.open.ID.String()[:8], "file", name, "fault", fault)
	p.verifier.Note(finding.Quarantined, name+": "+fault.Error())
	return nil
}

// quarantineDamaged moves a damaged checkpoint to quarantine. If the file is not at fault, it returns the error: the
// file cannot be opened now, or the disk has no space for its slots.
func (p *Puller) quarantineDamaged(name string, fault error) error {
	file := new(fs.PathError)
	if errors.Is(fault, verifier.ErrScratch) || errors.As(fault, &file) && file.Op == "open" {
		return fmt.Errorf("couldn't use %s: %w", name, fault)
	}
	return p.quarantineFile(name, fault)
}
