package codec

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
)

// Writer writes arrays and byte strings one by one in canonical form, so that a long value need not fit in memory.
// After the first error it writes nothing and keeps the error in Err.
type Writer struct {
	out io.Writer
	Err error
}

// NewWriter returns a writer to out.
func NewWriter(out io.Writer) *Writer { return &Writer{out: out} }

// The lead bytes of arrays, byte strings and text. A length below fixed is part of the lead byte. A longer length
// follows the lead byte in 1, 2 or 4 bytes. Arrays have no 1-byte form.
var (
	arrayLeads = leads{fixed: 16, base: 0x90, sized: [3]byte{0, 0xdc, 0xdd}}
	bytesLeads = leads{sized: [3]byte{0xc4, 0xc5, 0xc6}}
	textLeads  = leads{fixed: 32, base: 0xa0, sized: [3]byte{0xd9, 0xda, 0xdb}}
)

type leads struct {
	fixed uint64
	base  byte
	sized [3]byte
}

// head appends the header of a value with n elements or bytes, n below 2³².
func (l leads) head(to []byte, n uint64) []byte {
	var wide [8]byte
	binary.BigEndian.PutUint64(wide[:], n)
	switch {
	case n < l.fixed:
		return append(to, l.base|byte(n))
	case n < 1<<8 && l.sized[0] != 0:
		return append(append(to, l.sized[0]), wide[7:]...)
	case n < 1<<16:
		return append(append(to, l.sized[1]), wide[6:]...)
	}
	return append(append(to, l.sized[2]), wide[4:]...)
}

// is reports whether head is the canonical header for n.
func (l leads) is(head []byte, n uint64) bool {
	var canonical [5]byte
	return bytes.Equal(l.head(canonical[:0], n), head)
}

// AppendArray appends the header of an array of n elements. The caller appends the elements next.
func AppendArray(to []byte, n int) []byte { return arrayLeads.head(to, uint64(n)) }

// AppendLength appends the header of a byte string of n bytes. The caller appends the bytes next.
func AppendLength(to []byte, n uint64) []byte { return bytesLeads.head(to, n) }

// AppendBytes appends a byte string.
func AppendBytes(to, b []byte) []byte { return append(bytesLeads.head(to, uint64(len(b))), b...) }

// AppendSmall appends an integer below 128, which takes one byte.
func AppendSmall(to []byte, n byte) []byte { return append(to, n) }

// UintSize returns the size of an integer in bytes.
func UintSize(n uint64) int {
	switch {
	case n < 1<<7:
		return 1
	case n < 1<<8:
		return 2
	case n < 1<<16:
		return 3
	case n < 1<<32:
		return 5
	}
	return 9
}

// Array writes the header of an array of n elements. The caller writes the elements next.
func (w *Writer) Array(n int) { w.write(AppendArray(nil, n)) }

// Bytes writes a byte string.
func (w *Writer) Bytes(b []byte) {
	w.write(bytesLeads.head(nil, uint64(len(b))))
	w.write(b)
}

func (w *Writer) write(b []byte) {
	if w.Err == nil {
		_, w.Err = w.out.Write(b)
	}
}

// Reader reads arrays and byte strings one by one from an [io.Reader], and accepts only their canonical form. It wraps
// errors of the [io.Reader].
type Reader struct{ in io.Reader }

// NewReader returns a reader of in.
func NewReader(in io.Reader) *Reader { return &Reader{in} }

// Array reads the header of the next array and returns its number of elements.
func (r *Reader) Array() (uint64, error) { return r.head("an array", arrayLeads, true) }

// ArrayUpTo is [Reader.Array], but refuses more than most elements.
func (r *Reader) ArrayUpTo(most uint64) (uint64, error) {
	n, err := r.Array()
	if err == nil && n > most {
		err = fmt.Errorf("couldn't decode an array: %d elements, at most %d", n, most)
	}
	return n, err
}

// ArrayOf reads the header of an array, and refuses any number of elements except n.
func (r *Reader) ArrayOf(n uint64) error {
	got, err := r.Array()
	if err == nil && got != n {
		err = fmt.Errorf("couldn't decode an array: %d elements, want %d", got, n)
	}
	return err
}

// Length reads the header of the next byte string and returns its number of bytes. The caller reads the bytes.
func (r *Reader) Length() (uint64, error) { return r.head("bytes", bytesLeads, false) }

// Bytes reads a byte string of at most most bytes, and refuses a longer one before it reads the content. Memory grows
// with the bytes that arrive, whatever length the header claims.
func (r *Reader) Bytes(most int64) ([]byte, error) {
	n, err := r.Length()
	if err != nil {
		return nil, err
	}
	if n > uint64(max(most, 0)) {
		return nil, fmt.Errorf("couldn't decode a byte string: it has %d bytes, at most %d are allowed", n, most)
	}
	return r.next(n)
}

// Exactly reads a byte string of n bytes, and refuses another length before it reads the content. Memory grows as with
// [Reader.Bytes].
func (r *Reader) Exactly(n uint64) ([]byte, error) {
	if err := r.lengthOf(n); err != nil {
		return nil, err
	}
	return r.next(n)
}

// next reads n bytes. The sender announced them, but may never send them.
func (r *Reader) next(n uint64) ([]byte, error) {
	out := bytes.NewBuffer(make([]byte, 0, min(n, 64<<10)))
	if _, err := io.CopyN(out, r.in, int64(n)); err != nil {
		return nil, fmt.Errorf("couldn't decode bytes: %w", cut(err))
	}
	return out.Bytes(), nil
}

func (r *Reader) lengthOf(n uint64) error {
	got, err := r.Length()
	if err == nil && got != n {
		err = fmt.Errorf("couldn't decode a byte string: it has %d bytes, want %d", got, n)
	}
	return err
}

// Uint reads an integer.
func (r *Reader) Uint() (uint64, error) {
	var head [9]byte
	if _, err := io.ReadFull(r.in, head[:1]); err != nil {
		return 0, fmt.Errorf("couldn't decode an integer: %w", cut(err))
	}
	width := 0
	if lead := head[0]; lead >= 0xcc && lead <= 0xcf {
		width = 1 << (lead - 0xcc)
	}
	if _, err := io.ReadFull(r.in, head[1:1+width]); err != nil {
		return 0, fmt.Errorf("couldn't decode an integer: %w", cut(err))
	}
	n, _, err := integer(head[:1+width])
	if err != nil {
		return 0, fmt.Errorf("couldn't decode an integer: %w", err)
	}
	return n, nil
}

// End returns an error unless the input ends here.
func (r *Reader) End() error {
	var one [1]byte
	switch _, err := io.ReadFull(r.in, one[:]); {
	case err == nil:
		return errTrailing
	case !errors.Is(err, io.EOF):
		return err
	}
	return nil
}

func (r *Reader) head(what string, l leads, array bool) (uint64, error) {
	var head [5]byte
	if _, err := io.ReadFull(r.in, head[:1]); errors.Is(err, io.EOF) {
		return 0, fmt.Errorf("couldn't decode %s: %w", what, cut(err))
	} else if err != nil {
		return 0, err // the input failed, for example because a relay does not answer; the encoding is not at fault
	}
	width := 0
	for i, lead := range l.sized {
		if lead != 0 && head[0] == lead {
			width = 1 << i
		}
	}
	if _, err := io.ReadFull(r.in, head[1:1+width]); err != nil {
		return 0, fmt.Errorf("couldn't decode %s: %w", what, cut(err))
	}
	n, isArray, _, err := header(head[:1+width])
	if err != nil || isArray != array || !l.is(head[:1+width], n) {
		return 0, fmt.Errorf("couldn't decode %s: not in canonical form", what)
	}
	return n, nil
}

// cut turns io.EOF into io.ErrUnexpectedEOF, because the input ended inside a value.
func cut(err error) error {
	if errors.Is(err, io.EOF) {
		return io.ErrUnexpectedEOF
	}
	return err
}
