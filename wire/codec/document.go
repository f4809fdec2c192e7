package codec

import (
	"bytes"
	"errors"
)

// The byte order marks of encodings. That of UTF-16 little-endian also begins the mark of UTF-32.
const (
	markUTF8    = "\xef\xbb\xbf"
	markUTF16LE = "\xff\xfe"
	markUTF16BE = "\xfe\xff"
)

// Document returns what a person's editor saved, such as a table, JSON or YAML, without a byte order mark. It refuses
// UTF-16 by name, also without a mark: the error that would follow shows invisible characters. It needs only the
// beginning of a long file.
func Document(in []byte) ([]byte, error) {
	if bytes.HasPrefix(in, []byte(markUTF16LE)) || bytes.HasPrefix(in, []byte(markUTF16BE)) ||
		len(in) > 1 && (in[0] == 0 || in[0] < 0x80 && in[1] == 0) { // UTF-16 of an ASCII character
		return nil, errors.New("it is UTF-16: save it as UTF-8")
	}
	return bytes.TrimPrefix(in, []byte(markUTF8)), nil
}
