package codec

import "errors"

// View reads integers, text, arrays and byte strings one by one from memory, and accepts only their canonical form. Its
// results share memory with the input. After the first error, all methods return zero values.
type View struct {
	rest []byte
	err  error
}

// NewView returns a view of in.
func NewView(in []byte) *View { return &View{rest: in} }

var errCanonical = errors.New("another value than was expected, or not in canonical form")

// Array reads the header of the next array and returns its number of elements. The result is at most the number of
// remaining bytes.
func (v *View) Array() int { return v.head(arrayLeads, true) }

// ArrayOf reads the header of an array, and refuses any number of elements except n.
func (v *View) ArrayOf(n int) {
	if got := v.Array(); got != n {
		v.fail(errCanonical)
	}
}

// ArrayUpTo is [View.Array], but more than most elements are an error; then it returns 0.
func (v *View) ArrayUpTo(most int) int {
	n := v.Array()
	if n > most {
		v.fail(errMany)
		return 0
	}
	return n
}

// Bytes returns the next byte string.
func (v *View) Bytes() []byte { return v.take(v.head(bytesLeads, false)) }

// Text returns the next text.
func (v *View) Text() []byte { return v.take(v.head(textLeads, false)) }

// Uint returns the next integer.
func (v *View) Uint() uint64 {
	if v.err != nil {
		return 0
	}
	n, rest, err := integer(v.rest)
	if err != nil {
		v.fail(err)
		return 0
	}
	v.rest = rest
	return n
}

// Small returns the next integer, which must be below 128.
func (v *View) Small() byte {
	n := v.Uint()
	if n >= 1<<7 {
		v.fail(errCanonical)
		return 0
	}
	return byte(n)
}

// End returns the first error. It also returns an error if bytes remain.
func (v *View) End() error {
	if len(v.rest) > 0 {
		v.fail(errTrailing)
	}
	return v.err
}

// Failed reports whether there was an error, so that a loop over a list can stop.
func (v *View) Failed() bool { return v.err != nil }

func (v *View) fail(err error) {
	if v.err == nil {
		v.err = err
	}
}

// take returns the next n bytes. The caller has checked that they exist.
func (v *View) take(n int) []byte {
	out := v.rest[:n:n]
	v.rest = v.rest[n:]
	return out
}

// head reads the header of a value and checks that at least n bytes follow. After an error it returns 0.
func (v *View) head(l leads, array bool) int {
	if v.err != nil {
		return 0
	}
	n, isArray, rest, err := header(v.rest)
	switch {
	case err != nil:
		v.fail(err)
	case isArray != array || !l.is(v.rest[:len(v.rest)-len(rest)], n):
		v.fail(errCanonical)
	case n > uint64(len(rest)):
		v.fail(errTruncated)
	default:
		v.rest = rest
		return int(n)
	}
	return 0
}
