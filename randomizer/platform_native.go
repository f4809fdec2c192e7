//go:build !wasip1

package randomizer

import (
	"crypto/rand"

	"golang.org/x/crypto/chacha20"
)

// platformFill returns a ChaCha20 generator with fast key erasure: every call draws its output
// and the next key from one keystream and forgets the old key, so that a later look at memory
// does not reveal earlier draws. It is keyed by the operating system; crypto/rand.Read never
// fails (it ends the process instead).
func platformFill() func([]byte) {
	var key [chacha20.KeySize]byte
	rand.Read(key[:])
	var nonce [chacha20.NonceSize]byte // a key is used for one keystream only
	return func(p []byte) {
		stream, err := chacha20.NewUnauthenticatedCipher(key[:], nonce[:])
		if err != nil {
			panic("randomizer: internal error: " + err.Error())
		}
		clear(key[:])
		stream.XORKeyStream(key[:], key[:])
		clear(p)
		stream.XORKeyStream(p, p)
		*stream = chacha20.Cipher{} // it holds the old key too
	}
}
