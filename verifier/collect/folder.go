package collect

import (
	"bufio"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/doona-dp/doona/internal/durable"
	"github.com/doona-dp/doona/verifier"
	"github.com/doona-dp/doona/verifier/finding"
	"github.com/doona-dp/doona/wire/onion"
	"github.com/doona-dp/doona/wire/taskfile"
)

// Names of stored files: a batch is named by epoch and batch number, an epoch's signed end by the epoch.
const (
	fileName = "%06d-%06d.batch"
	endName  = "%06d.end"
)

// Names of the stored results; see [checkpoints].
const (
	recordName = "%06d-%06d-%016x.record" // the last part is the start of the version
	recordExt  = ".record"
	epochName  = "%06d.epoch"
	notesName  = "findings"
)

// folder is the storage of a puller: batches, manifests, ends of epochs and checkpoints. It knows the path of each
// file, and checks that a file's content matches its name. When a call returns, everything that it wrote is synced to
// disk.
type folder struct {
	dir  string
	open *taskfile.Open
}

func (d *folder) path(epoch, seq uint64) string {
	return filepath.Join(d.dir, fmt.Sprintf(fileName, epoch, seq))
}

func (d *folder) endPath(epoch uint64) string {
	return filepath.Join(d.dir, fmt.Sprintf(endName, epoch))
}

func (d *folder) epochPath(epoch uint64) string {
	return filepath.Join(d.dir, fmt.Sprintf(epochName, epoch))
}

// readKept reads a stored batch by calling do. It returns the batch's signed manifest. The error is a [Fault] or
// [verifier.ReadError] if the file is at fault.
func (d *folder) readKept(epoch, seq uint64, do func(*verifier.Incoming) error) (*onion.SignedManifest, error) {
	file, err := os.Open(d.path(epoch, seq))
	if err != nil {
		return nil, &verifier.ReadError{Err: err}
	}
	defer file.Close()
	b, err := verifier.Receive(d.open, bufio.NewReaderSize(file, verifier.ReadAhead))
	if err != nil {
		return nil, err
	}
	if m := b.Last(); m.Epoch != epoch || m.Seq != seq {
		return nil, &verifier.Fault{Name: finding.Foreign, Err: errors.New("its content is another batch than its name says")}
	}
	return b.Signed, do(b)
}

func (d *folder) keepEnd(signed *onion.SignedEnd, epoch uint64) error {
	raw, err := signed.Bytes()
	if err != nil {
		return err
	}
	if err := durable.WriteFile(d.endPath(epoch), raw, 0o600); err != nil {
		return fmt.Errorf("couldn't keep the end of epoch %d: %w", epoch, err)
	}
	return nil
}

// eraseRecords erases the records of an epoch, also those in quarantine and those that were incomplete at a crash.
func (d *folder) eraseRecords(epoch uint64) error {
	for _, folder := range []string{d.dir, filepath.Join(d.dir, QuarantineFolder)} {
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
	return nil
}

// QuarantineFolder is for files that did not match their names. The operator may inspect it; the verifier reads no file
// in it.
const QuarantineFolder = "quarantine"

// FileName is the parsed name of a stored file.
type FileName struct {
	Epoch uint64
	Seq   uint64 // Batch number; 0 for the end of an epoch.
	End   bool   // Whether the file is the signed end of an epoch.
}

// String returns the name.
func (f FileName) String() string {
	if f.End {
		return fmt.Sprintf(endName, f.Epoch)
	}
	return fmt.Sprintf(fileName, f.Epoch, f.Seq)
}

// ParseFileName parses the name of a stored file. ok is false for other names.
func ParseFileName(name string) (f FileName, ok bool) {
	if _, err := fmt.Sscanf(name, fileName, &f.Epoch, &f.Seq); err == nil {
		return f, name == f.String()
	}
	f.Seq, f.End = 0, true
	_, err := fmt.Sscanf(name, endName, &f.Epoch)
	return f, err == nil && name == f.String()
}

// quarantine moves a file into the quarantine folder. If a file of that name is already there, it appends a number.
func (d *folder) quarantine(name string) error {
	aside := filepath.Join(d.dir, QuarantineFolder)
	if err := durable.MakeFolder(aside, 0o700); err != nil {
		return fmt.Errorf("couldn't move a file to quarantine: %w", err)
	}
	to := filepath.Join(aside, name)
	for n := 2; ; n++ {
		if _, err := os.Lstat(to); errors.Is(err, fs.ErrNotExist) {
			break
		}
		to = filepath.Join(aside, fmt.Sprintf("%s.%d", name, n))
	}
	if err := durable.Rename(filepath.Join(d.dir, name), to); err != nil {
		return fmt.Errorf("couldn't move a file to quarantine: %w", err)
	}
	return nil
}

func (d *folder) quarantined() (names []string, err error) {
	files, err := os.ReadDir(filepath.Join(d.dir, QuarantineFolder))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("couldn't read the quarantine folder: %w", err)
	}
	for _, file := range files {
		names = append(names, file.Name())
	}
	return names, nil
}
