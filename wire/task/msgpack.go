package task

import (
	"errors"
	"strconv"

	"github.com/doona-dp/doona/randomizer"
)

// writer appends msgpack values in their shortest encodings.
type writer struct{ out []byte }

//go:noinline
func (w *writer) big(lead byte, v uint64, bytes int) {
	w.out = append(w.out, lead)
	for i := bytes - 1; i >= 0; i-- {
		w.out = append(w.out, byte(v>>(8*i)))
	}
}

//go:noinline
func (w *writer) uint(v uint64) {
	switch {
	case v < 1<<7:
		w.out = append(w.out, byte(v))
	case v < 1<<8:
		w.big(0xcc, v, 1)
	case v < 1<<16:
		w.big(0xcd, v, 2)
	case v < 1<<32:
		w.big(0xce, v, 4)
	default:
		w.big(0xcf, v, 8)
	}
}

func (w *writer) uints(vs ...uint64) {
	for _, v := range vs {
		w.uint(v)
	}
}

func (w *writer) numbers(vs []uint64) {
	w.array(len(vs))
	w.uints(vs...)
}

//go:noinline
func (w *writer) array(n int) {
	if n < 16 {
		w.out = append(w.out, 0x90|byte(n))
		return
	}
	w.big(0xdc, uint64(n), 2)
}

//go:noinline
func (w *writer) str(s string) {
	switch {
	case len(s) < 32:
		w.out = append(w.out, 0xa0|byte(len(s)))
	case len(s) < 1<<8:
		w.big(0xd9, uint64(len(s)), 1)
	default:
		w.big(0xda, uint64(len(s)), 2)
	}
	w.out = append(w.out, s...)
}

func (w *writer) strs(ss ...string) {
	for _, s := range ss {
		w.str(s)
	}
}

func (w *writer) party(p Party) {
	w.array(3)
	w.str(p.URL)
	w.bytes32(p.SignKey[:])
	w.bytes32(p.KeyList[:])
}

//go:noinline
func (w *writer) bytes32(b []byte) {
	w.big(0xc4, 32, 1)
	w.out = append(w.out, b...)
}

// reader parses msgpack. It keeps the first error, after which every read returns a zero value.
type reader struct {
	in  []byte
	err error
}

//go:noinline
func (r *reader) fail(message string) {
	if r.err == nil {
		r.err = errors.New("couldn't parse the task: " + message)
	}
}

//go:noinline
func (r *reader) take(n int) []byte {
	if r.err != nil || n > len(r.in) {
		r.fail("truncated")
		return make([]byte, min(n, 8))
	}
	head := r.in[:n]
	r.in = r.in[n:]
	return head
}

//go:noinline
func (r *reader) big(bytes int) (v uint64) {
	for _, b := range r.take(bytes) {
		v = v<<8 | uint64(b)
	}
	return v
}

// shortest fails unless v needed its encoding: v is at least least.
//
//go:noinline
func (r *reader) shortest(v, least uint64) uint64 {
	if v < least {
		r.fail("not the shortest encoding")
	}
	return v
}

func (r *reader) uint() uint64 {
	switch lead := r.take(1)[0]; {
	case lead < 0x80:
		return uint64(lead)
	case lead == 0xcc:
		return r.shortest(r.big(1), 1<<7)
	case lead == 0xcd:
		return r.shortest(r.big(2), 1<<8)
	case lead == 0xce:
		return r.shortest(r.big(4), 1<<16)
	case lead == 0xcf:
		return r.shortest(r.big(8), 1<<32)
	}
	r.fail("want an unsigned integer")
	return 0
}

func (r *reader) flag() bool {
	v := r.uint()
	if v > 1 {
		r.fail("want 0 or 1")
	}
	return v == 1
}

//go:noinline
func (r *reader) arrayUpTo(most int) int {
	n := uint64(0)
	switch lead := r.take(1)[0]; {
	case lead&0xf0 == 0x90:
		n = uint64(lead & 0xf)
	case lead == 0xdc:
		n = r.shortest(r.big(2), 16)
	default:
		r.fail("want an array")
	}
	if n > uint64(most) || r.err != nil {
		r.fail("array too long")
		return 0
	}
	return int(n)
}

func (r *reader) array(n int) {
	if r.arrayUpTo(n) != n {
		r.fail("want an array of " + strconv.Itoa(n))
	}
}

// optional reads the header of an optional part: an empty array if the part is absent, otherwise an array of n
// elements. It reports whether the part is present.
func (r *reader) optional(n int) bool {
	got := r.arrayUpTo(n)
	if got != 0 && got != n {
		r.fail("want an array of 0 or " + strconv.Itoa(n))
	}
	return got != 0 && r.err == nil
}

// numbers reads a list of at most most integers. Memory grows as they arrive, whatever length the header claims.
func (r *reader) numbers(most int) (vs []uint64) {
	for n := r.arrayUpTo(most); n > 0 && r.err == nil; n-- {
		vs = append(vs, r.uint())
	}
	return vs
}

func (r *reader) str() string {
	n := uint64(0)
	switch lead := r.take(1)[0]; {
	case lead&0xe0 == 0xa0:
		n = uint64(lead & 0x1f)
	case lead == 0xd9:
		n = r.shortest(r.big(1), 32)
	case lead == 0xda:
		n = r.shortest(r.big(2), 1<<8)
	default:
		r.fail("want a string")
	}
	if r.err != nil {
		return ""
	}
	return string(r.take(int(n)))
}

func (r *reader) strs(into ...*string) {
	for _, s := range into {
		*s = r.str()
	}
}

// list reads a list of at most most texts.
func (r *reader) list(most int) (texts []string) {
	for n := r.arrayUpTo(most); n > 0 && r.err == nil; n-- {
		texts = append(texts, r.str())
	}
	return texts
}

func (r *reader) rational(field string) randomizer.Rational {
	s := r.str()
	if r.err != nil {
		return randomizer.Rational{}
	}
	v, err := randomizer.ParseRational(field, s)
	if err != nil {
		r.err = err
	}
	return v
}

func (r *reader) party() (p Party) {
	r.array(3)
	p.URL = r.str()
	r.bytes32(p.SignKey[:])
	r.bytes32(p.KeyList[:])
	return p
}

//go:noinline
func (r *reader) bytes32(into []byte) {
	if head := r.take(2); r.err == nil && (head[0] != 0xc4 || head[1] != 32) {
		r.fail("want 32 bytes")
	}
	copy(into, r.take(32))
}
