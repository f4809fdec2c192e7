// Package codec reads and writes the msgpack forms of the wire: structs as arrays, in one
// canonical encoding each.
package codec

import (
	"bytes"
	"fmt"

	"github.com/vmihailenco/msgpack/v5"
)

// Marshal writes v, a pointer to a struct, in its canonical form: fields in order without
// names, shortest integers. It is an error if a slice in v is nil: a list without elements is
// an empty array, and nothing on the wire is nil.
func Marshal(v any) ([]byte, error) {
	var out bytes.Buffer
	enc := msgpack.NewEncoder(&out)
	enc.UseCompactInts(true)
	enc.UseArrayEncodedStructs(true)
	if err := enc.Encode(v); err != nil {
		return nil, fmt.Errorf("couldn't encode %T: %w", v, err)
	}
	if err := scan(out.Bytes()); err != nil {
		return nil, fmt.Errorf("couldn't encode %T: %w", v, err)
	}
	return out.Bytes(), nil
}

// Unmarshal reads the canonical form of v and nothing else: what does not re-encode to the same
// bytes (trailing bytes, longer integers, maps for arrays) is an error. It asks for memory in
// proportion to len(in), whatever lengths in claims.
func Unmarshal(in []byte, v any) error {
	if err := scan(in); err != nil {
		return fmt.Errorf("couldn't decode %T: %w", v, err)
	}
	if err := msgpack.Unmarshal(in, v); err != nil {
		return fmt.Errorf("couldn't decode %T: %w", v, err)
	}
	again, err := Marshal(v)
	if err != nil {
		return err
	}
	if !bytes.Equal(in, again) {
		return fmt.Errorf("couldn't decode %T: not in canonical form", v)
	}
	return nil
}
