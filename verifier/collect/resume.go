package collect

import (
	"bufio"
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"github.com/doona-dp/doona/verifier"
	"github.com/doona-dp/doona/verifier/finding"
	"github.com/doona-dp/doona/wire/codec"
	"github.com/doona-dp/doona/wire/keyfile"
	"github.com/doona-dp/doona/wire/onion"
	"github.com/doona-dp/doona/wire/task"
)

// The names of checkpoints, beside those of batches.
const (
	recordName = "%06d-%06d-%016x.record" // The last part is the beginning of the version.
	recordExt  = ".record"
	epochName  = "%06d.epoch"
	notesName  = "findings"
)

func recordFile(r *verifier.Record, hash verifier.Version) string {
	return fmt.Sprintf(recordName, r.Epoch, r.Seq, hash[:8])
}

func (p *Puller) epochPath(epoch uint64) string {
	return filepath.Join(p.dir, fmt.Sprintf(epochName, epoch))
}

// restore takes what an earlier run has written down, so that no batch is opened again. A damaged file is put
// aside; what it was made from may still be here.
func (p *Puller) restore() error {
	if err := p.restoreNotes(); err != nil {
		return err
	}
	for epoch, c := range p.cursors {
		raw, err := readChecked(p.epochPath(epoch))
		if err == nil {
			err = p.verifier.RestoreEpoch(epoch, raw)
		}
		if err == nil {
			c.written = true
		} else if !errors.Is(err, os.ErrNotExist) {
			if err := p.putAsideDamaged(filepath.Base(p.epochPath(epoch)), err); err != nil {
				return err
			}
		}
	}
	files, err := os.ReadDir(p.dir)
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
			if err := p.putAsideDamaged(file.Name(), err); err != nil {
				return err
			}
		}
	}
	return nil
}

// putAsideDamaged puts a checkpoint aside that cannot be taken, or returns the error where that is not the file's
// fault: it cannot be opened now, or the disk has no room for what is in it.
func (p *Puller) putAsideDamaged(name string, fault error) error {
	file := new(fs.PathError)
	if errors.Is(fault, verifier.ErrScratch) || errors.As(fault, &file) && file.Op == "open" {
		return fmt.Errorf("couldn't take %s: %w", name, fault)
	}
	return p.putAside(name, fault)
}

func (p *Puller) restoreRecord(name string) error {
	r, signed, err := p.readRecord(name)
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
	c.kept[r.Seq], c.barren[r.Seq] = true, m.Destroyed()
	return c.confirmLater(r.Seq, signed.Manifest, filepath.Join(p.dir, name))
}

// readRecord reads a record that an earlier run wrote down, and says what was signed. An error leaves no slots.
func (p *Puller) readRecord(name string) (r *verifier.Record, signed *onion.SignedManifest, err error) {
	file, err := openChecked(filepath.Join(p.dir, name))
	if err != nil {
		return nil, nil, err
	}
	defer file.Close()
	if r, err = p.verifier.ReadRecord(bufio.NewReaderSize(file, readAhead)); errors.Is(err, verifier.ErrScratch) {
		return nil, nil, err
	}
	if damaged := file.check(); damaged != nil {
		err = damaged
	}
	if err == nil {
		signed, err = onion.ParseSigned(r.Signed)
	}
	if err == nil && name != recordFile(r, sha256.Sum256(signed.Manifest)) {
		err = errors.New("not the record that its name says")
	}
	if err != nil && r != nil {
		r.Free()
	}
	return r, signed, err
}

// take opens a batch that is kept, and writes down what it holds before it counts.
func (p *Puller) take(b *verifier.Incoming) error {
	epoch, seq := b.Last().Epoch, b.Last().Seq
	p.log.Info("opening", "task", p.open.ID.String()[:8], "epoch", epoch, "batch", seq)
	r, err := p.verifier.OpenIncoming(b)
	if errors.Is(err, keyfile.ErrErased) { // and what was written down before is lost
		if err := p.note(finding.Erased, verifier.BatchPlace(epoch, seq)); err != nil {
			return err
		}
		return p.witness(b.Signed, epoch, seq)
	}
	if err != nil {
		return err
	}
	return p.write(r)
}

// witness keeps what the last relay signed for a number without a batch that counts.
func (p *Puller) witness(signed *onion.SignedManifest, epoch, seq uint64) error {
	r, err := p.verifier.SignedRecord(signed, epoch, seq)
	if err != nil {
		return err
	}
	return p.write(r)
}

// write adds a record once it is on the disk.
func (p *Puller) write(r *verifier.Record) error {
	hash, err := r.Hash(p.open)
	if err == nil {
		err = streamChecked(filepath.Join(p.dir, recordFile(r, hash)), r.Write)
	}
	if err != nil {
		r.Free()
		return err
	}
	return p.verifier.AddRecord(r)
}

// finish writes down what an epoch adds up to whose signed end is here, and then erases what led to it: its
// records, which hold single messages, and its key. A step that fails is tried again at the next pull. Where a
// batch is missing that was here, nothing is erased: the folder may be the wrong one, or come back.
func (p *Puller) finish(epoch uint64, c *cursor) error {
	if err := p.verifier.Complete(epoch); err != nil {
		return err
	}
	if !c.written {
		raw, err := p.verifier.EpochBytes(epoch)
		if err != nil {
			return err
		}
		if err := writeChecked(p.epochPath(epoch), raw); err != nil {
			return err
		}
		c.written = true
	}
	if c.erased {
		return nil
	}
	for _, folder := range []string{p.dir, filepath.Join(p.dir, QuarantineFolder)} {
		// With those that a crash left unfinished.
		records, err := filepath.Glob(filepath.Join(folder, fmt.Sprintf("%06d-*.record*", epoch)))
		if err != nil {
			return err
		}
		for _, path := range records {
			if err := os.Remove(path); err != nil {
				return fmt.Errorf("couldn't erase a record: %w", err)
			}
		}
	}
	erased, err := p.verifier.EraseKey(epoch)
	if err != nil {
		return err
	}
	if erased {
		p.log.Info("erased", "task", p.open.ID.String()[:8], "epoch", epoch)
	}
	c.erased = true
	return nil
}

// note keeps a finding that has no record, durably. The same one counts once, over all runs. Of a name and an epoch
// there are two: the first, and the last with the count of all behind the first, so that no relay fills the folder.
// Batches that are missing are listed each, as they may come back: [mostMissing].
func (p *Puller) note(name finding.Name, at verifier.Place) error {
	all, before := slices.Clone(p.notes), []*noted{}
	for i := range all {
		n := &all[i]
		if n.Name == string(name) && n.Text == at.Text {
			return nil
		}
		if n.Name == string(name) && n.Epoch == at.Epoch {
			before = append(before, n)
		}
	}
	if len(before) < 2 || name == finding.Missing {
		all = append(all, noted{string(name), 1, at.Epoch, at.Seq, at.Text})
	} else if last := before[len(before)-1]; at.Seq > last.Seq {
		*last = noted{last.Name, last.Count + 1, at.Epoch, at.Seq, at.Text}
	} else {
		return nil
	}
	raw, err := codec.Marshal(&notes{notesLabel, task.Version, p.open.ID[:], all})
	if err != nil {
		return err
	}
	if err := writeChecked(filepath.Join(p.dir, notesName), raw); err != nil {
		return err
	}
	p.notes = all
	p.verifier.NoteAt(name, 1, at)
	return nil
}

func (p *Puller) restoreNotes() error {
	raw, err := readChecked(filepath.Join(p.dir, notesName))
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	var kept notes
	if err == nil {
		err = codec.Unmarshal(raw, &kept)
	}
	if err == nil && (kept.Label != notesLabel || kept.Version != task.Version ||
		string(kept.TaskID) != string(p.open.ID[:])) {
		err = errors.New("not the findings of this task")
	}
	if err != nil {
		return p.putAsideDamaged(notesName, err)
	}
	p.notes = kept.Noted
	return nil
}

// showNotes adds the first notes, those of earlier runs, to the findings. A batch that was missing and is
// here again is forgotten.
func (p *Puller) showNotes(earlier int) {
	var left []noted
	for i, n := range p.notes {
		if c := p.cursors[n.Epoch]; c != nil && n.Name == string(finding.Missing) && c.kept[n.Seq] {
			continue
		}
		left = append(left, n)
		if i < earlier {
			p.verifier.NoteAt(finding.Name(n.Name), n.Count, verifier.Place{Epoch: n.Epoch, Seq: n.Seq, Text: n.Text})
		}
	}
	p.notes = left // they are written with the next one
}

// readAhead is how many bytes of a file are read at once.
const readAhead = 256 << 10

// noted is a finding about what has no record, as it is kept. Where it has no place, Epoch and Seq are the largest
// numbers.
type noted struct {
	Name       string
	Count      uint64
	Epoch, Seq uint64
	Text       string
}
