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

// A verifier that pulls stores its results, so that it opens no batch twice and can erase keys:
//
//	EEEEEE-NNNNNN-VERSION.record   the [Record] of batch N of epoch E, after it was opened
//	EEEEEE.epoch                   the sum of epoch E. It is stored after the signed end came.
//	                               Then the epoch's records and its key are erased.
//	findings                       findings that belong to no record
//
// Each file is the SHA-256 of its content, followed by the content in msgpack.

// checkpoints opens stored batches, and stores their records before they count. When an epoch is complete, it stores
// the epoch's sum. Only then it erases the records and the key.
type checkpoints struct {
	folder   *folder
	verifier *verifier.Verifier
	notes    *findingStore
	log      *slog.Logger
}

func recordFile(r *verifier.Record, hash verifier.Version) string {
	return fmt.Sprintf(recordName, r.Epoch, r.Seq, hash[:8])
}

// take opens a stored batch. It stores the batch's record before the record counts.
func (cp *checkpoints) take(b *verifier.Incoming) error {
	epoch, seq := b.Last().Epoch, b.Last().Seq
	cp.log.Info("opening", "task", cp.folder.open.ID.String()[:8], "epoch", epoch, "batch", seq)
	r, err := cp.verifier.OpenIncoming(b)
	if errors.Is(err, keyfile.ErrErased) { // the record that was stored before the key was erased is lost
		if err := cp.notes.note(finding.Erased, verifier.BatchPosition(epoch, seq)); err != nil {
			return err
		}
		return cp.addManifest(b.Signed, epoch, seq)
	}
	if err != nil {
		return err
	}
	return cp.write(r)
}

// addManifest stores and adds a manifest that the last relay signed, without a batch that counts.
func (cp *checkpoints) addManifest(signed *onion.SignedManifest, epoch, seq uint64) error {
	r, err := cp.verifier.SignedRecord(signed, epoch, seq)
	if err != nil {
		return err
	}
	return cp.write(r)
}

// addEquivocation adds both manifests that the relay signed for one batch number. Neither batch counts.
func (cp *checkpoints) addEquivocation(epoch, seq uint64) error {
	path := cp.folder.manifestPath(epoch, seq)
	for _, path := range []string{path, path + secondSuffix} {
		s, err := readSigned(path)
		if err != nil {
			return err
		}
		if s == nil {
			return fmt.Errorf("couldn't read %s: the file is missing", path)
		}
		if err := cp.verifier.RecordManifest(s, epoch, seq, 0); err != nil {
			return err
		}
	}
	return nil
}

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

// readRecord reads a record of an earlier run and its signed manifest. After an error, the record's slots are freed.
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
		err = errors.New("its content is another record than its name says")
	}
	if err != nil && r != nil {
		r.Free()
	}
	return r, signed, err
}

// finish stores the sum of an epoch whose signed end was received. Then it erases the epoch's key, and its records,
// which hold single messages. The next pull retries a failed step. The caller does not call finish while a batch is
// missing: the folder may be the wrong one, or be restored.
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
