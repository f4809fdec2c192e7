package store

import (
	"fmt"

	"github.com/doona-dp/doona/relay/internal/keytree"
)

// What follows breaks a store or its secrecy on purpose, for the relay's tests.

// LimitPages lets an SQLite store grow to n pages, or not at all where it has as many, like a disk that
// is full then; 0 lifts the limit.
func (s *Store) LimitPages(n int) error {
	if n == 0 {
		n = 1 << 30
	}
	_, err := s.write.Exec(fmt.Sprintf("PRAGMA max_page_count = %d", n))
	return err
}

// Unencrypted has a batch stored as it is.
func (v *Vault) Unencrypted(b BatchID) {
	v.mu.Lock()
	defer v.mu.Unlock()
	for _, kind := range []keytree.Label{kindRows, kindSealed} {
		v.ciphers[b.label(kind)] = noCipher{}
	}
}

// noCipher is a cipher.AEAD that does nothing.
type noCipher struct{}

func (noCipher) NonceSize() int { return nonceSize }
func (noCipher) Overhead() int  { return tagSize }

func (noCipher) Seal(dst, _, plain, _ []byte) []byte {
	return append(append(dst, plain...), make([]byte, tagSize)...)
}

func (noCipher) Open(dst, _, sealed, _ []byte) ([]byte, error) {
	return append(dst, sealed[:len(sealed)-tagSize]...), nil
}

// Clear implements [clearable].
func (noCipher) Clear() {}
