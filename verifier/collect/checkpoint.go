package collect

import (
	"bufio"
	"crypto/sha256"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"

	"github.com/doona-dp/doona/verifier"
	"github.com/doona-dp/doona/verifier/finding"
	"github.com/doona-dp/doona/wire/keyfile"
	"github.com/doona-dp/doona/wire/onion"
)

// A verifier that pulls writes down what it has learnt, so that no batch is opened twice and keys can go:
//
//	EEEEEE-NNNNNN-VERSION.record   the [Record] of a batch, once it has been opened
//	EEEEEE.epoch                   what an epoch adds up to, once its signed end is here; then its
//	                               records go, and its key
//	findings                       what was found that has no record
//
// Each file is the SHA-256 of what follows, and a msgpack form.

// checkpoints opens the batches that are kept and writes down what they hold, each before it counts; and when an epoch
// is complete what it adds up to, before it erases the records and the key.
type checkpoints struct {
	folder   *folder
	verifier *verifier.Verifier
	notes    *findingStore
	log      *slog.Logger
}

func recordFile(r *verifier.Record, hash verifier.Version) string {
	return fmt.Sprintf(recordName, r.Epoch, r.Seq, hash[:8])
}

// take opens a batch that is kept, and writes down what it holds before it counts.
func (cp *checkpoints) take(b *verifier.Incoming) error {
	epoch, seq := b.Last().Epoch, b.Last().Seq
	cp.log.Info("opening", "task", cp.folder.open.ID.String()[:8], "epoch", epoch, "batch", seq)
	r, err := cp.verifier.OpenIncoming(b)
	if errors.Is(err, keyfile.ErrErased) { // and what was written down before is lost
		if err := cp.notes.note(finding.Erased, verifier.BatchPlace(epoch, seq)); err != nil {
			return err
		}
		return cp.addManifest(b.Signed, epoch, seq)
	}
	if err != nil {
		return err
	}
	return cp.write(r)
}

// addManifest keeps what the last relay signed for a number without a batch that counts.
func (cp *checkpoints) addManifest(signed *onion.SignedManifest, epoch, seq uint64) error {
	r, err := cp.verifier.SignedRecord(signed, epoch, seq)
	if err != nil {
		return err
	}
	return cp.write(r)
}

// addEquivocation has the verifier know both manifests of a number: neither batch counts.
func (cp *checkpoints) addEquivocation(epoch, seq uint64) error {
	path := cp.folder.manifestPath(epoch, seq)
	for _, path := range []string{path, path + secondSuffix} {
		s, err := readSigned(path)
		if err != nil {
			return err
		}
		if s == nil {
			return fmt.Errorf("couldn't read %s: it is gone", path)
		}
		if err := cp.verifier.RecordManifest(s, epoch, seq, 0); err != nil {
			return err
		}
	}
	return nil
}

// write adds a record once it is on the disk.
func (cp *checkpoints) write(r *verifier.Record) error {
	hash, err := r.Hash(cp.folder.open)
	if err == nil {
		err = streamChecked(filepath.Join(cp.folder.dir, recordFile(r, hash)), r.Write)
	}
	if err != nil {
		r.Free()
		return err
	}
	return cp.verifier.AddRecord(r)
}

// readRecord reads a record that an earlier run wrote down, and says what was signed. An error leaves no slots.
func (cp *checkpoints) readRecord(name string) (r *verifier.Record, signed *onion.SignedManifest, err error) {
	file, err := openChecked(filepath.Join(cp.folder.dir, name))
	if err != nil {
		return nil, nil, err
	}
	defer file.Close()
	r, err = cp.verifier.ReadRecord(bufio.NewReaderSize(file, verifier.ReadAhead))
	if errors.Is(err, verifier.ErrScratch) {
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

// finish writes down what an epoch adds up to whose signed end is here, and then erases what led to it: its
// records, which hold single messages, and its key. A step that fails is tried again at the next pull. Where a
// batch is missing that was here, nothing is erased: the folder may be the wrong one, or come back.
func (cp *checkpoints) finish(epoch uint64, c *cursor) error {
	if err := cp.verifier.Complete(epoch); err != nil {
		return err
	}
	if !c.written {
		raw, err := cp.verifier.EpochBytes(epoch)
		if err != nil {
			return err
		}
		if err := writeChecked(cp.folder.epochPath(epoch), raw); err != nil {
			return err
		}
		c.written = true
	}
	if c.erased {
		return nil
	}
	if err := cp.folder.eraseRecords(epoch); err != nil {
		return err
	}
	erased, err := cp.verifier.EraseKey(epoch)
	if err != nil {
		return err
	}
	if erased {
		cp.log.Info("erased", "task", cp.folder.open.ID.String()[:8], "epoch", epoch)
	}
	c.erased = true
	return nil
}
