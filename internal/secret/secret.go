// Package secret keeps keys in memory such that they can be erased from it. Go's collector frees memory without
// overwriting it, and a string cannot be overwritten at all: so a key stands in one [Bytes], is used in place, and is
// cleared by whoever erases it. The collector clears a [Bytes] and an [AESGCM] that nobody has cleared, but not what a
// library has made of a key: whoever has made that must clear it.
//
// Three kinds of copies need care besides. Growing slices leave copies behind: allocate them whole. Decoders copy:
// decode in place, as [Text] does. And what a function leaves on its stack stays there when it returns: derive keys
// within [Do].
package secret

import (
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"runtime"
	"sync"
)

// Bytes is a key. It is safe for concurrent use, and is not printed.
type Bytes struct {
	mu  sync.RWMutex // held shared while the key is in use
	key []byte       // nil: it is cleared
}

// Own makes a key of a slice, which the caller must not keep.
func Own(key []byte) *Bytes {
	b := &Bytes{key: key}
	runtime.SetFinalizer(b, (*Bytes).Clear)
	return b
}

// Use calls do with the key, which do must not keep, copy or change, and says whether it could: a cleared key is not
// used. A clear waits for uses.
func (b *Bytes) Use(do func(key []byte)) bool {
	b.mu.RLock()
	defer b.mu.RUnlock()
	if b.key == nil {
		return false
	}
	do(b.key)
	return true
}

// Clear overwrites the key. No use follows.
func (b *Bytes) Clear() {
	b.mu.Lock()
	defer b.mu.Unlock()
	clear(b.key)
	b.key = nil
}

// hidden stands for a key wherever one would be printed.
const hidden = "(secret)"

// Format implements [fmt.Formatter], for all verbs.
func (b *Bytes) Format(s fmt.State, _ rune) { _, _ = io.WriteString(s, hidden) }

// MarshalText implements [encoding.TextMarshaler]: a key is never encoded by accident.
func (b *Bytes) MarshalText() ([]byte, error) { return []byte(hidden), nil }

// Text decodes a key that is a JSON string of unpadded base64url. As a field of what [encoding/json.Unmarshal] fills,
// it reads the text where it stands in the document, which whoever reads the document clears.
type Text struct{ *Bytes }

// errText does not quote the text.
var errText = errors.New("not a key: want a JSON string of unpadded base64url")

// UnmarshalJSON implements [encoding/json.Unmarshaler].
func (t *Text) UnmarshalJSON(in []byte) error {
	if len(in) < 2 || in[0] != '"' {
		return errText
	}
	in = in[1 : len(in)-1]
	key := make([]byte, base64.RawURLEncoding.DecodedLen(len(in)))
	n, err := base64.RawURLEncoding.Strict().Decode(key, in)
	if err != nil || n != len(key) { // line breaks are skipped
		clear(key)
		return errText
	}
	t.Bytes = Own(key)
	return nil
}

// AppendText appends the unpadded base64url of a key to a slice that must have room for it.
func AppendText(to, key []byte) []byte { return base64.RawURLEncoding.AppendEncode(to, key) }

// TextLen returns the length of the text of a key of n bytes.
func TextLen(n int) int { return base64.RawURLEncoding.EncodedLen(n) }

// stackRoom is how many bytes of stack a function called by [Do] may use.
const stackRoom = 16 << 10

// Do calls a function that leaves parts of keys on its stack, and then overwrites that part of the stack. What the
// function calls must need no more than 16 KiB of it, and must not panic. One case is left: where the collector shrinks
// the stack amid the call, the old stack keeps what was on it until it is used again.
func Do(do func()) {
	growStack() // now: growing amid the call would leave a copy of the old stack
	do()
	overwriteStack()
}

// smallRoom is how many bytes of stack a function called by [DoSmall] may use.
const smallRoom = 4 << 10

// DoSmall is [Do] for what needs no more than 4 KiB of stack. Four times that is much, with a goroutine a connection.
func DoSmall(do func()) {
	growStackSmall()
	do()
	overwriteStackSmall()
}

//go:noinline
func growStackSmall() {
	var room [smallRoom + 512]byte
	keepByte(&room[0])
}

//go:noinline
func overwriteStackSmall() {
	var room [smallRoom]byte
	clear(room[:])
	keepByte(&room[0])
}

// growStack makes sure that the next call has room.
//
//go:noinline
func growStack() {
	var room [stackRoom + 1<<10]byte
	keepByte(&room[0])
}

//go:noinline
func overwriteStack() {
	var room [stackRoom]byte
	clear(room[:])
	keepByte(&room[0])
}

// keepByte has the compiler keep the array of its caller on the stack.
//
//go:noinline
func keepByte(*byte) {}
