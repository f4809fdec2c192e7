package codec

import "errors"

// View reads integers, arrays and byte strings one by one from memory, each in its canonical form and no other: what
// [Unmarshal] reads, without reflection. What it returns is part of what it reads, not a copy. After the first error
// it returns nothing.
type View struct {
	rest []byte
	err  error
}

// NewView returns a view of in.
func NewView(in []byte) *View { return &View{rest: in} }

var errCanonical = errors.New("another value than was expected, or not in canonical form")

// Array returns the number of elements of the array that begins here: at most as many as there are bytes left.
func (v *View) Array() int { return v.head(arrayLeads, true) }

// Bytes returns the byte string that begins here.
func (v *View) Bytes() []byte {
	n := v.head(bytesLeads, false)
	out := v.rest[:n:n]
	v.rest = v.rest[n:]
	return out
}

// Small returns the integer below 128 that is here.
func (v *View) Small() byte {
	if v.err == nil && (len(v.rest) == 0 || v.rest[0] >= 1<<7) {
		v.err = errCanonical
	}
	if v.err != nil {
		return 0
	}
	n := v.rest[0]
	v.rest = v.rest[1:]
	return n
}

// End returns the first error, which what is left here is too.
func (v *View) End() error {
	if v.err == nil && len(v.rest) > 0 {
		v.err = errTrailing
	}
	return v.err
}

// head reads the head of a value that has no fewer bytes than it says, and is 0 after an error.
func (v *View) head(l leads, array bool) int {
	if v.err != nil {
		return 0
	}
	n, isArray, rest, err := header(v.rest)
	switch {
	case err != nil:
		v.err = err
	case isArray != array || !l.is(v.rest[:len(v.rest)-len(rest)], n):
		v.err = errCanonical
	case n > uint64(len(rest)):
		v.err = errTruncated
	default:
		v.rest = rest
		return int(n)
	}
	return 0
}
