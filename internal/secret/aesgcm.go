package secret

import (
	"crypto/aes"
	"crypto/cipher"
	"crypto/rand"
	"errors"
	"fmt"
	"reflect"
	"runtime"
	"sync"
	"unsafe"
)

// AESGCM is a [cipher.AEAD] whose key can be cleared, with what the library derives of it. It is safe for concurrent
// use.
type AESGCM struct {
	mu   sync.RWMutex
	aead cipher.AEAD // nil: it is cleared
}

// NewAESGCM makes the cipher of a key, and clears the key.
func NewAESGCM(key []byte) (*AESGCM, error) {
	defer clear(key)
	block, err := aes.NewCipher(key)
	if err != nil {
		return nil, fmt.Errorf("couldn't make a cipher: %w", err)
	}
	aead, err := cipher.NewGCM(block)
	if err != nil {
		return nil, fmt.Errorf("couldn't make a cipher: %w", err)
	}
	Overwrite(block) // aead has a copy
	c := &AESGCM{aead: aead}
	runtime.SetFinalizer(c, (*AESGCM).Clear)
	return c, nil
}

// Clear overwrites the key. Nothing opens any more then, and what is sealed nobody can open.
func (c *AESGCM) Clear() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.aead != nil {
		Overwrite(c.aead)
	}
	c.aead = nil
}

// The sizes of GCM.
const (
	nonceSize = 12
	tagSize   = 16
)

// NonceSize implements [cipher.AEAD].
func (c *AESGCM) NonceSize() int { return nonceSize }

// Overhead implements [cipher.AEAD].
func (c *AESGCM) Overhead() int { return tagSize }

// Seal implements [cipher.AEAD].
func (c *AESGCM) Seal(to, nonce, plaintext, additional []byte) []byte {
	c.mu.RLock()
	defer c.mu.RUnlock()
	if c.aead != nil {
		return c.aead.Seal(to, nonce, plaintext, additional)
	}
	at := len(to)
	to = append(to, make([]byte, len(plaintext)+tagSize)...)
	rand.Read(to[at:])
	return to
}

// ErrCleared is returned for a key that has been cleared.
var ErrCleared = errors.New("the key has been cleared")

// Open implements [cipher.AEAD]. Under a key that has been cleared it is [ErrCleared].
func (c *AESGCM) Open(to, nonce, ciphertext, additional []byte) ([]byte, error) {
	c.mu.RLock()
	defer c.mu.RUnlock()
	if c.aead == nil {
		return nil, ErrCleared
	}
	return c.aead.Open(to, nonce, ciphertext, additional)
}

// Overwrite overwrites a library's key object, and says whether it could: what the pointer leads to, directly or by
// one more pointer, must hold no further pointers. The object must not be used any more.
func Overwrite(object any) bool {
	v := reflect.ValueOf(object).Elem()
	if v.Kind() == reflect.Struct && v.NumField() == 1 && v.Field(0).Kind() == reflect.Pointer {
		v = v.Field(0).Elem() // of a package that only stands before another, as crypto/mlkem
	}
	if !v.IsValid() || !flat(v.Type()) {
		return false
	}
	clear(unsafe.Slice((*byte)(v.Addr().UnsafePointer()), v.Type().Size()))
	return true
}

// OverwriteField overwrites the bytes that a library's key object keeps in a field, and says whether it could. The
// object must not be used any more.
func OverwriteField(object any, name string) bool {
	v := reflect.ValueOf(object).Elem().FieldByName(name)
	if !v.IsValid() || v.Kind() != reflect.Slice || v.Type().Elem().Kind() != reflect.Uint8 {
		return false
	}
	clear(v.Bytes())
	return true
}

// flat says whether a type holds no pointers.
func flat(t reflect.Type) bool {
	switch t.Kind() {
	case reflect.Array:
		return flat(t.Elem())
	case reflect.Struct:
		for i := range t.NumField() {
			if !flat(t.Field(i).Type) {
				return false
			}
		}
		return true
	default:
		return t.Kind() >= reflect.Bool && t.Kind() <= reflect.Complex128 && t.Kind() != reflect.Uintptr
	}
}
