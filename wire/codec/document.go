package codec

import (
	"bytes"
	"errors"
)

// Byte order marks of encodings. The UTF-16 little-endian mark also begins the mark of UTF-32.
const (
	markUTF8    = "\xef\xbb\xbf"
	markUTF16LE = "\xff\xfe"
	markUTF16BE = "\xfe\xff"
)

// Document removes the byte order mark from a file that a person's editor saved, such as a table, JSON or YAML. It
// refuses UTF-16, with or without a mark, by its name: the parser's error would only show invisible characters. For a
// long file, it is enough to pass the beginning.
func Document(in []byte) ([]byte, error) {
	if bytes.HasPrefix(in, []byte(markUTF16LE)) || bytes.HasPrefix(in, []byte(markUTF16BE)) ||
		len(in) > 1 && (in[0] == 0 || in[0] < 0x80 && in[1] == 0) { // an ASCII character in UTF-16
		return nil, errors.New("it is UTF-16: save it as UTF-8")
	}
	return bytes.TrimPrefix(in, []byte(markUTF8)), nil
}
