// Package secret keeps keys in memory in a form that can be erased. Go's garbage collector frees memory without
// overwriting it, and a string cannot be overwritten. So a key lives in one [Bytes], is used in place, and is cleared
// by the code that erases it. The collector clears a [Bytes] or an [AESGCM] that nobody has cleared. It does not clear
// what a library has derived from a key: the code that derived it must.
//
// Three kinds of copies need further care. Growing slices leave copies behind: allocate them in full. Decoders copy:
// decode in place, as [Text] does. A function's data stays on the stack after it returns: derive keys within [Do].
package secret

import (
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"runtime"
	"sync"
)

// Bytes is a key. It is safe for concurrent use, and formats as "(secret)".
type Bytes struct {
	mu  sync.RWMutex // read-locked while the key is in use
	key []byte       // nil once cleared
}

// Own makes a key of a slice. The caller must not use the slice afterwards.
func Own(key []byte) *Bytes {
	b := &Bytes{key: key}
	runtime.SetFinalizer(b, (*Bytes).Clear)
	return b
}

// Use calls do with the key and returns true, or returns false if the key was cleared. do must not keep, copy or change
// the key. Clear waits until do returns.
func (b *Bytes) Use(do func(key []byte)) bool {
	b.mu.RLock()
	defer b.mu.RUnlock()
	if b.key == nil {
		return false
	}
	do(b.key)
	return true
}

// Clear overwrites the key. Later calls of Use return false.
func (b *Bytes) Clear() {
	b.mu.Lock()
	defer b.mu.Unlock()
	clear(b.key)
	b.key = nil
}

// hidden is what a key formats as.
const hidden = "(secret)"

// Format implements [fmt.Formatter], for all verbs.
func (b *Bytes) Format(s fmt.State, _ rune) { _, _ = io.WriteString(s, hidden) }

// MarshalText implements [encoding.TextMarshaler]. It prevents that a key is encoded by accident.
func (b *Bytes) MarshalText() ([]byte, error) { return []byte(hidden), nil }

// Text decodes a key from a JSON string of unpadded base64url. As a field of a value that [encoding/json.Unmarshal]
// fills, it decodes from the document in place. The caller of Unmarshal clears the document.
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

// AppendText appends the unpadded base64url of a key to a slice. The slice must have enough capacity.
func AppendText(to, key []byte) []byte { return base64.RawURLEncoding.AppendEncode(to, key) }

// TextLen returns the length of the text of a key of n bytes.
func TextLen(n int) int { return base64.RawURLEncoding.EncodedLen(n) }

// stackSize is how many bytes of stack a function called by [Do] may use.
const stackSize = 16 << 10

// Do calls a function that leaves parts of keys on its stack, then overwrites that part of the stack. The function and
// its callees must need at most 16 KiB of stack, and must not panic. One gap remains: if the collector shrinks the
// stack during the call, the old stack keeps its content until the memory is used again.
func Do(do func()) {
	growStack() // now: growing during the call would leave a copy of the old stack
	do()
	overwriteStack()
}

// smallStackSize is how many bytes of stack a function called by [DoSmall] may use.
const smallStackSize = 4 << 10

// DoSmall is [Do] for functions that need at most 4 KiB of stack. With one goroutine per connection, 16 KiB for each
// would be much.
func DoSmall(do func()) {
	growStackSmall()
	do()
	overwriteStackSmall()
}

//go:noinline
func growStackSmall() {
	var frame [smallStackSize + 512]byte
	keepByte(&frame[0])
}

//go:noinline
func overwriteStackSmall() {
	var frame [smallStackSize]byte
	clear(frame[:])
	keepByte(&frame[0])
}

// growStack makes sure that the next call does not grow the stack.
//
//go:noinline
func growStack() {
	var frame [stackSize + 1<<10]byte
	keepByte(&frame[0])
}

//go:noinline
func overwriteStack() {
	var frame [stackSize]byte
	clear(frame[:])
	keepByte(&frame[0])
}

// keepByte makes the compiler keep its caller's array on the stack.
//
//go:noinline
func keepByte(*byte) {}
