package table

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/doona-dp/doona/wire/codec"
)

// What compressed files begin with.
const (
	beginZIP  = "PK\x03\x04"
	beginGzip = "\x1f\x8b"
)

// window is how much of a file shows how it is written, in bytes.
const window = 1 << 16

// text reads lines in UTF-8, from a plain file or from gzip.
type text struct {
	*bufio.Reader
	head   []byte    // What the file begins with, up to window bytes. It is valid until the first read.
	zipped io.Reader // The uncompressed content; nil if the file is plain.
}

// newText begins to read a file. It skips a byte order mark, and refuses what is no text by name.
func newText(in io.Reader) (*text, error) {
	t := &text{Reader: bufio.NewReaderSize(in, window)}
	if begin, _ := t.Peek(2); string(begin) == beginGzip {
		var err error
		if t.zipped, err = gzip.NewReader(t.Reader); err != nil {
			return nil, whole(err)
		}
		t.Reader = bufio.NewReaderSize(t.zipped, window)
	}
	head, err := t.Peek(window)
	if err != nil && !errors.Is(err, io.EOF) {
		return nil, whole(err)
	}
	if bytes.HasPrefix(head, []byte(beginZIP)) {
		return nil, errors.New("it is a ZIP file, such as XLSX and ODS are: save the sheet as CSV")
	}
	marked := len(head)
	if head, err = codec.Document(head); err != nil {
		return nil, err
	}
	t.Discard(marked - len(head))
	if bytes.IndexByte(head, '\r') >= 0 && bytes.IndexByte(head, '\n') < 0 { // as of old Macs, and of Excel for them
		t.Reader = bufio.NewReaderSize(lineFeeds{t.Reader}, window)
		head, _ = t.Peek(len(head))
	}
	t.head = head
	return t, nil
}

// end reads a compressed file to its end. The checksum is there, and a part of a truncated file must not pass for the
// whole.
func (t *text) end() error {
	if t.zipped == nil {
		return nil
	}
	_, err := io.Copy(io.Discard, t.Reader)
	return whole(err)
}

// whole says what an unexpected end means.
func whole(err error) error {
	if errors.Is(err, io.ErrUnexpectedEOF) {
		return fmt.Errorf("it is truncated: want a whole gzip file: %w", err)
	}
	return err
}

// lineFeeds reads carriage returns as line feeds.
type lineFeeds struct{ in io.Reader }

func (l lineFeeds) Read(p []byte) (int, error) {
	n, err := l.in.Read(p)
	for i := range p[:n] {
		if p[i] == '\r' {
			p[i] = '\n'
		}
	}
	return n, err
}

// readFile opens a file and names it in errors.
func readFile[T any](path string, read func(io.Reader) (T, error)) (T, error) {
	var none T
	f, err := os.Open(path)
	if err != nil {
		return none, fmt.Errorf("couldn't read the input: %w", err)
	}
	defer f.Close()
	out, err := read(f)
	if err != nil {
		return none, fmt.Errorf("couldn't read %s: %w", path, err)
	}
	return out, nil
}
