package taskfile

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
)

// Locate adds the line and the column to an error of encoding/json about a document.
func Locate(in []byte, err error) error {
	var syntax *json.SyntaxError
	var kind *json.UnmarshalTypeError
	offset := int64(0)
	if errors.As(err, &syntax) {
		offset = syntax.Offset
	} else if errors.As(err, &kind) {
		offset = kind.Offset
	}
	if offset < 1 || offset > int64(len(in)) {
		return err
	}
	before := in[:offset]
	return fmt.Errorf("line %d, column %d: %w", 1+bytes.Count(before, []byte("\n")),
		len(before)-1-bytes.LastIndexByte(before, '\n'), err)
}

// CheckKeys rejects what encoding/json accepts in a document: duplicate keys, keys with other capital letters, and
// bytes after the first value. known reports whether key is a known key of the object at path.
func CheckKeys(in []byte, known func(path, key string) bool) error {
	dec := json.NewDecoder(bytes.NewReader(in))
	if err := checkKeys(dec, "", known); err != nil {
		return err
	}
	if _, err := dec.Token(); !errors.Is(err, io.EOF) {
		return errors.New("trailing bytes after the document")
	}
	return nil
}

func checkKeys(dec *json.Decoder, path string, known func(path, key string) bool) error {
	token, err := dec.Token()
	if err != nil {
		return err
	}
	delim, ok := token.(json.Delim)
	if !ok {
		return nil
	}
	seen := map[string]bool{}
	for dec.More() {
		at := path
		if delim == '{' {
			key, err := dec.Token()
			if err != nil {
				return err
			}
			at = strings.TrimPrefix(path+"."+key.(string), ".")
			if seen[at] {
				return fmt.Errorf("duplicate key %q", at)
			}
			if !known(path, key.(string)) {
				return fmt.Errorf("unknown key %q", at)
			}
			seen[at] = true
		}
		if err := checkKeys(dec, at, known); err != nil {
			return err
		}
	}
	_, err = dec.Token()
	return err
}
