package collect

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/doona-dp/doona/internal/durable"
	"github.com/doona-dp/doona/verifier/finding"
)

// The names of kept files: a batch by its epoch and number, the end of an epoch by its epoch.
const (
	fileName = "%06d-%06d.batch"
	endName  = "%06d.end"
)

// QuarantineFolder is where files are put aside that are not what their names say. What is in it is for
// the operator to look at; nothing is read from it.
const QuarantineFolder = "quarantine"

// FileName is what the name of a kept file says.
type FileName struct {
	Epoch uint64
	Seq   uint64 // The number of the batch; 0 of an epoch's end.
	End   bool   // It is the signed end of the epoch.
}

// String returns the name.
func (f FileName) String() string {
	if f.End {
		return fmt.Sprintf(endName, f.Epoch)
	}
	return fmt.Sprintf(fileName, f.Epoch, f.Seq)
}

// ParseFileName reads the name of a kept file; ok says whether it is one.
func ParseFileName(name string) (f FileName, ok bool) {
	if _, err := fmt.Sscanf(name, fileName, &f.Epoch, &f.Seq); err == nil {
		return f, name == f.String()
	}
	f.Seq, f.End = 0, true
	_, err := fmt.Sscanf(name, endName, &f.Epoch)
	return f, err == nil && name == f.String()
}

// quarantine moves a file into a folder's quarantine, under its own name, or with a number behind it where
// there is one of that name.
func quarantine(folder, path string) error {
	aside := filepath.Join(folder, QuarantineFolder)
	if err := durable.MakeFolder(aside, 0o700); err != nil {
		return fmt.Errorf("couldn't put a file aside: %w", err)
	}
	to := filepath.Join(aside, filepath.Base(path))
	for n := 2; ; n++ {
		if _, err := os.Lstat(to); errors.Is(err, fs.ErrNotExist) {
			break
		}
		to = filepath.Join(aside, fmt.Sprintf("%s.%d", filepath.Base(path), n))
	}
	if err := durable.Rename(path, to); err != nil {
		return fmt.Errorf("couldn't put a file aside: %w", err)
	}
	return nil
}

// quarantined returns the names of the files in a folder's quarantine.
func quarantined(folder string) (names []string, err error) {
	files, err := os.ReadDir(filepath.Join(folder, QuarantineFolder))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("couldn't read what was put aside: %w", err)
	}
	for _, file := range files {
		names = append(names, file.Name())
	}
	return names, nil
}

// noteQuarantined notes what earlier runs have put aside, until the operator takes it away.
func (p *Puller) noteQuarantined() error {
	names, err := quarantined(p.dir)
	for _, name := range names {
		p.verifier.Note(finding.Quarantined, name+": put aside earlier")
	}
	return err
}
