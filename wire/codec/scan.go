package codec

import (
	"encoding/binary"
	"errors"
	"fmt"
)

// maxDepth is how many levels of arrays may nest. A stream, [[bundle …], [statement …]], is the deepest value: each
// bundle in it contains an array of pairs of keys and path.
const maxDepth = 5

var (
	errTruncated = errors.New("a length beyond the end of the input")
	errTrailing  = errors.New("trailing bytes")
	errDepth     = errors.New("arrays nested too deep")
	errMany      = errors.New("more elements in an array than allowed")
)

// scan checks the output of Marshal: one msgpack value that consists only of unsigned integers, byte strings, text and
// arrays, each of which is complete.
func scan(in []byte) error {
	var left [maxDepth + 1]uint64 // left[d]: values still to come in the open array at depth d
	left[0] = 1
	for depth := 0; ; {
		for left[depth] == 0 { // an array is complete
			if depth == 0 {
				if len(in) > 0 {
					return errTrailing
				}
				return nil
			}
			depth--
		}
		left[depth]--
		size, isArray, rest, err := header(in)
		if err != nil {
			return err
		}
		// An element takes at least one byte, so no honest array claims more elements than there are bytes left.
		if size > uint64(len(rest)) {
			return errTruncated
		}
		if !isArray {
			in = rest[size:]
			continue
		}
		if depth++; depth > maxDepth {
			return errDepth
		}
		left[depth], in = size, rest
	}
}

// header reads the header of the next value. For an array, size is the number of elements; for any other value, it is
// the number of bytes that follow in rest.
func header(in []byte) (size uint64, isArray bool, rest []byte, err error) {
	if len(in) == 0 {
		return 0, false, nil, errTruncated
	}
	lead, width := in[0], 0
	switch {
	case lead < 0x80: // an integer below 128, all in the lead byte
		return 0, false, in[1:], nil
	case lead&0xf0 == 0x90:
		return uint64(lead & 0x0f), true, in[1:], nil
	case lead&0xe0 == 0xa0:
		return uint64(lead & 0x1f), false, in[1:], nil
	case lead >= 0xcc && lead <= 0xcf: // an integer of 1, 2, 4 or 8 bytes
		return 1 << (lead - 0xcc), false, in[1:], nil
	case lead >= 0xc4 && lead <= 0xc6: // bytes
		width = 1 << (lead - 0xc4)
	case lead >= 0xd9 && lead <= 0xdb: // text
		width = 1 << (lead - 0xd9)
	case lead == 0xdc || lead == 0xdd:
		width, isArray = 2<<(lead-0xdc), true
	default:
		return 0, false, nil, fmt.Errorf("a value of type 0x%02x: want integers, bytes, text and arrays", lead)
	}
	if len(in) < 1+width {
		return 0, false, nil, errTruncated
	}
	var wide [8]byte
	copy(wide[8-width:], in[1:])
	return binary.BigEndian.Uint64(wide[:]), isArray, in[1+width:], nil
}

// integer reads an integer, and accepts only its shortest form.
func integer(in []byte) (n uint64, rest []byte, err error) {
	if len(in) == 0 {
		return 0, nil, errTruncated
	}
	lead := in[0]
	if lead < 0x80 {
		return uint64(lead), in[1:], nil
	}
	if lead < 0xcc || lead > 0xcf {
		return 0, nil, errCanonical
	}
	width := 1 << (lead - 0xcc)
	if len(in) < 1+width {
		return 0, nil, errTruncated
	}
	var wide [8]byte
	copy(wide[8-width:], in[1:1+width])
	n = binary.BigEndian.Uint64(wide[:])
	if n < leastOf[lead-0xcc] {
		return 0, nil, errCanonical
	}
	return n, in[1+width:], nil
}

// leastOf[i] is the smallest integer that needs 2^i bytes after the lead byte.
var leastOf = [4]uint64{1 << 7, 1 << 8, 1 << 16, 1 << 32}
