package store

import (
	"fmt"

	"github.com/doona-dp/doona/relay/internal/keytree"
)

// The relay's tests use these functions to break a store or its secrecy on purpose.

// LimitPages limits an SQLite store to n pages, as a full disk would. A store that already has n pages or more stops
// growing. 0 removes the limit.
func (s *Store) LimitPages(n int) error {
	if n == 0 {
		n = 1 << 30
	}
	_, err := s.write.Exec(fmt.Sprintf("PRAGMA max_page_count = %d", n))
	return err
}

// Unencrypted makes the vault store a batch without encryption, so that a test can look for its slots on the disk.
func (v *Vault) Unencrypted(b BatchID) {
	v.mu.Lock()
	defer v.mu.Unlock()
	for _, kind := range []keytree.Label{kindRows, kindSealed} {
		v.ciphers[b.label(kind)] = noCipher{}
	}
}

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
