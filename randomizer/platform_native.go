//go:build !wasip1

package randomizer

import (
	"crypto/rand"

	"golang.org/x/crypto/chacha20"
)

// platformFill returns a ChaCha20 generator with fast key erasure: each call takes its output and the next key from one
// keystream, and erases the old key. So memory never reveals earlier draws. The operating system provides the first
// key; crypto/rand.Read ends the process if it cannot.
func platformFill() func([]byte) {
	var key [chacha20.KeySize]byte
	rand.Read(key[:])
	var nonce [chacha20.NonceSize]byte // always zero: each key makes only one keystream
	return func(p []byte) {
		stream, err := chacha20.NewUnauthenticatedCipher(key[:], nonce[:])
		if err != nil {
			panic("randomizer: internal error: " + err.Error())
		}
		clear(key[:])
		stream.XORKeyStream(key[:], key[:])
		clear(p)
		stream.XORKeyStream(p, p)
		*stream = chacha20.Cipher{} // it also holds the old key
	}
}
