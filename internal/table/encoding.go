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

// The first bytes of compressed files.
const (
	beginZIP  = "PK\x03\x04"
	beginGzip = "\x1f\x8b"
)

// window is how many bytes at the start of a file show how the file is written.
const window = 1 << 16

// text reads UTF-8 text from a plain file or from a gzip file.
type text struct {
	*bufio.Reader
	head   []byte    // The first bytes of the text, up to window. Valid until the first read.
	zipped io.Reader // The gzip reader; nil if the file is plain.
}

// newText prepares to read a file. It skips a byte order mark. If the file is not text, the error says what it is.
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
	if bytes.IndexByte(head, '\r') >= 0 && bytes.IndexByte(head, '\n') < 0 { // as Excel for old Macs writes them
		t.Reader = bufio.NewReaderSize(lineFeeds{t.Reader}, window)
		head, _ = t.Peek(len(head))
	}
	t.head = head
	return t, nil
}

// end reads a gzip file to its end, where the checksum is. Otherwise a truncated file could pass for a whole one.
func (t *text) end() error {
	if t.zipped == nil {
		return nil
	}
	_, err := io.Copy(io.Discard, t.Reader)
	return whole(err)
}

// whole explains an unexpected end: the gzip file is truncated.
func whole(err error) error {
	if errors.Is(err, io.ErrUnexpectedEOF) {
		return fmt.Errorf("it is truncated: want a whole gzip file: %w", err)
	}
	return err
}

// lineFeeds replaces each carriage return by a line feed.
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
