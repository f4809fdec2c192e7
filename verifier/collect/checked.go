package collect

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"fmt"
	"hash"
	"io"
	"os"

	"github.com/doona-dp/doona/internal/durable"
)

// digest returns the SHA-256 of a checkpoint's content.
func digest(content []byte) []byte {
	h := sha256.New()
	h.Write(content)
	return h.Sum(nil)
}

// writeChecked writes a file with the hash of its content.
func writeChecked(path string, content []byte) error {
	if err := durable.WriteFile(path, append(digest(content), content...), 0o600); err != nil {
		return fmt.Errorf("couldn't write a checkpoint: %w", err)
	}
	return nil
}

var errDamaged = errors.New("its content is not that of its hash")

// readChecked reads a file that writeChecked wrote, or errDamaged.
func readChecked(path string) ([]byte, error) {
	raw, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	if len(raw) < sha256.Size {
		return nil, errDamaged
	}
	content := raw[sha256.Size:]
	if !bytes.Equal(raw[:sha256.Size], digest(content)) {
		return nil, errDamaged
	}
	return content, nil
}

// streamChecked is writeChecked of a file that is not in memory.
func streamChecked(path string, write func(io.Writer) error) error {
	f, err := durable.Create(path, 0o600)
	if err != nil {
		return fmt.Errorf("couldn't write a checkpoint: %w", err)
	}
	h := sha256.New()
	f.Write(make([]byte, sha256.Size)) // its error comes again
	if err := write(io.MultiWriter(f, h)); err != nil {
		f.Abort()
		return err
	}
	f.WriteAt(h.Sum(nil), 0)
	if err := f.Commit(); err != nil {
		return fmt.Errorf("couldn't write a checkpoint: %w", err)
	}
	return nil
}

// checkedFile reads the content of a file that writeChecked or streamChecked wrote. What is read is believed once
// check has said that it is what was written.
type checkedFile struct {
	*os.File
	sum  []byte
	read hash.Hash // of what has been read
}

// openChecked opens a file at its content, or returns errDamaged.
func openChecked(path string) (*checkedFile, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	f := &checkedFile{file, make([]byte, sha256.Size), sha256.New()}
	if _, err := io.ReadFull(file, f.sum); err != nil {
		file.Close()
		if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
			err = errDamaged
		}
		return nil, err
	}
	return f, nil
}

// Read is that of [io.Reader].
func (f *checkedFile) Read(p []byte) (int, error) {
	n, err := f.File.Read(p)
	f.read.Write(p[:n])
	return n, err
}

// check reads what is left, and returns errDamaged where the content is another than was written.
func (f *checkedFile) check() error {
	if _, err := io.Copy(f.read, f.File); err != nil {
		return err
	}
	if !bytes.Equal(f.sum, f.read.Sum(nil)) {
		return errDamaged
	}
	return nil
}
