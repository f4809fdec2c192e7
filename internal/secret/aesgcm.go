//go:build !wasm

package secret

import (
	"crypto/aes"
	"crypto/cipher"
	"crypto/rand"
	"errors"
	"fmt"
	"runtime"
	"sync"
)

// AESGCM is a [cipher.AEAD] whose key can be cleared, with everything that Go's library derives from it. It is safe for
// concurrent use.
type AESGCM struct {
	mu   sync.RWMutex
	aead cipher.AEAD // nil once the key is cleared
}

// NewAESGCM returns the AES-GCM cipher with a key. It clears key.
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
	Overwrite(block) // aead has its own copy
	c := &AESGCM{aead: aead}
	runtime.SetFinalizer(c, (*AESGCM).Clear)
	return c, nil
}

// Clear overwrites the key. Afterwards Open fails, and Seal returns random bytes, which nobody can open.
func (c *AESGCM) Clear() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.aead != nil {
		Overwrite(c.aead)
	}
	c.aead = nil
}

// The sizes of the nonce and the authentication tag, in bytes.
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

// ErrCleared says that a key has been cleared.
var ErrCleared = errors.New("the key has been cleared")

// Open implements [cipher.AEAD]. It returns [ErrCleared] once the key has been cleared.
func (c *AESGCM) Open(to, nonce, ciphertext, additional []byte) ([]byte, error) {
	c.mu.RLock()
	defer c.mu.RUnlock()
	if c.aead == nil {
		return nil, ErrCleared
	}
	return c.aead.Open(to, nonce, ciphertext, additional)
}
