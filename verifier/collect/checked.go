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

func digest(content []byte) []byte {
	h := sha256.New()
	h.Write(content)
	return h.Sum(nil)
}

// writeChecked writes a file that begins with the SHA-256 of its content.
func writeChecked(path string, content []byte) error {
	if err := durable.WriteFile(path, append(digest(content), content...), 0o600); err != nil {
		return fmt.Errorf("couldn't write a checkpoint: %w", err)
	}
	return nil
}

var errDamaged = errors.New("its content does not match its hash")

// readChecked reads the content that writeChecked wrote. It returns errDamaged if the hash does not match.
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

// streamChecked does what writeChecked does, for content that is not in memory.
func streamChecked(path string, write func(io.Writer) error) error {
	f, err := durable.Create(path, 0o600)
	if err != nil {
		return fmt.Errorf("couldn't write a checkpoint: %w", err)
	}
	h := sha256.New()
	f.Write(make([]byte, sha256.Size)) // space for the hash; Commit reports an error
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

// checkedFile reads the content of a file that writeChecked or streamChecked wrote. Do not trust the content before
// check returns nil.
type checkedFile struct {
	*os.File
	sum  []byte
	read hash.Hash // hash of the content read so far
}

// openChecked opens a file at its content. It returns errDamaged if the file is too short for a hash.
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

// Read implements [io.Reader].
func (f *checkedFile) Read(p []byte) (int, error) {
	n, err := f.File.Read(p)
	f.read.Write(p[:n])
	return n, err
}

// check reads the rest of the file. It returns errDamaged if the content does not match the hash.
func (f *checkedFile) check() error {
	if _, err := io.Copy(f.read, f.File); err != nil {
		return err
	}
	if !bytes.Equal(f.sum, f.read.Sum(nil)) {
		return errDamaged
	}
	return nil
}
