//go:build !wasip1

package randomizer

import (
	"crypto/rand"

	"golang.org/x/crypto/chacha20"
)

// platformFill returns a ChaCha20 generator with fast key erasure. Every call draws its output and the next key from
// one keystream and erases the old key, so that memory does not reveal earlier draws later. The operating system
// provides the first key. crypto/rand.Read never fails: it ends the process instead.
func platformFill() func([]byte) {
	var key [chacha20.KeySize]byte
	rand.Read(key[:])
	var nonce [chacha20.NonceSize]byte // a key serves only one keystream
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
