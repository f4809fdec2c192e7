// Package secret keeps keys in memory in a form that can be erased. Go's garbage collector frees memory without
// overwriting it, and a string cannot be overwritten. So a key lives in one [Bytes], is used in place, and is cleared
// by the code that erases it. If no code clears a [Bytes] or an [AESGCM], its finalizer clears it when the collector
// frees it. The finalizer does not clear what a library has derived from a key: the code that derived it must.
//
// Four kinds of copies need further care. A slice that grows leaves a copy behind, so allocate it with its full size.
// Decoders copy their input, so decode in place, as [Text] does. A function's data stays on the stack after it returns,
// so derive keys within [Do]. A signal leaves registers in memory, so call [ClearRegisters] after erasing a key.
package secret

import (
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"runtime"
	"sync"
)

// Bytes is a key. It is safe for concurrent use. Package fmt prints it as "(secret)".
type Bytes struct {
	mu  sync.RWMutex // read-locked while the key is in use
	key []byte       // nil once the key is cleared
}

// Own makes a key from a slice, without copying it. The caller must not use the slice afterwards.
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

const hidden = "(secret)"

// Format implements [fmt.Formatter], with the same output for all verbs.
func (b *Bytes) Format(s fmt.State, _ rune) { _, _ = io.WriteString(s, hidden) }

// MarshalText implements [encoding.TextMarshaler]. It returns "(secret)", so that no key is encoded by accident.
func (b *Bytes) MarshalText() ([]byte, error) { return []byte(hidden), nil }

// Text is a key that is decoded from a JSON string of unpadded base64url. In a value that [encoding/json.Unmarshal]
// fills, it decodes from the document without a copy of the text. The caller of Unmarshal must clear the document.
type Text struct{ *Bytes }

// errText does not quote the text, which may be a key.
var errText = errors.New("not a key: want a JSON string of unpadded base64url")

// UnmarshalJSON implements [encoding/json.Unmarshaler].
func (t *Text) UnmarshalJSON(in []byte) error {
	if len(in) < 2 || in[0] != '"' {
		return errText
	}
	in = in[1 : len(in)-1]
	key := make([]byte, base64.RawURLEncoding.DecodedLen(len(in)))
	n, err := base64.RawURLEncoding.Strict().Decode(key, in)
	if err != nil || n != len(key) { // fewer bytes: the decoder skipped line breaks
		clear(key)
		return errText
	}
	t.Bytes = Own(key)
	return nil
}

// AppendText appends the unpadded base64url of a key to a slice. The slice must have enough capacity, because growing
// it would leave a copy.
func AppendText(to, key []byte) []byte { return base64.RawURLEncoding.AppendEncode(to, key) }

// TextLen returns the length of the unpadded base64url of n bytes.
func TextLen(n int) int { return base64.RawURLEncoding.EncodedLen(n) }

// stackSize is how many bytes of stack a function called by [Do] may use.
const stackSize = 16 << 10

// Do calls a function that leaves parts of keys on its stack, then overwrites that part of the stack. The function and
// its callees must need at most 16 KiB of stack, and must not panic. One gap remains: if the collector shrinks the
// stack during the call, the old stack keeps its content until the memory is used again.
func Do(do func()) {
	growStack() // before the call, because growing during it would leave a copy of the old stack
	do()
	overwriteStack()
}

// smallStackSize is how many bytes of stack a function called by [DoSmall] may use.
const smallStackSize = 4 << 10

// DoSmall does what [Do] does, for functions that need at most 4 KiB of stack. 16 KiB would be much for each of the
// goroutines of a server.
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

// growStack grows the stack now, so that the next call does not grow it.
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
