package token

import (
	"bytes"
	"crypto/rsa"
	"crypto/sha256"
	"errors"
	"math/big"
	"sync"

	"github.com/doona-dp/doona/wire/onion"
)

// PrivateKey is an issuer's private key for one epoch, in memory that can be cleared. It holds only the modulus and the
// private exponent, which a blind signature needs. It holds neither the primes nor the values that crypto/rsa computes
// from them. It is safe for concurrent use.
type PrivateKey struct {
	public *PublicKey

	mu       sync.RWMutex   // held for reading while the key is in use
	exponent *big.Int       // nil after Clear
	key      rsa.PrivateKey // its D is exponent, not a copy
}

// privateSize is the size of a serialized private key, in bytes: modulus ‖ exponent ‖ SHA-256 of both.
const privateSize = 2*modulusSize + sha256.Size

var errPrivate = errors.New("not a private key of 2048 bits: modulus, exponent and their checksum")

// MarshalPrivate serializes a private key. The caller clears the result.
func MarshalPrivate(key *rsa.PrivateKey) []byte {
	raw := make([]byte, privateSize)
	key.N.FillBytes(raw[:modulusSize])
	key.D.FillBytes(raw[modulusSize : 2*modulusSize])
	copy(raw[2*modulusSize:], checksum(raw))
	return raw
}

func checksum(raw []byte) []byte {
	sum := sha256.Sum256(raw[:2*modulusSize])
	return sum[:]
}

// OwnPrivateKey parses a serialized private key, and always clears raw.
func OwnPrivateKey(raw []byte) (*PrivateKey, error) {
	defer clear(raw)
	if len(raw) != privateSize {
		return nil, errPrivate
	}
	if !bytes.Equal(checksum(raw), raw[2*modulusSize:]) {
		return nil, errPrivate
	}
	modulus := rsa.PublicKey{N: new(big.Int).SetBytes(raw[:modulusSize]), E: exponent}
	public, err := NewPublicKey(&modulus)
	if err != nil {
		return nil, err
	}
	d := new(big.Int).SetBytes(raw[modulusSize : 2*modulusSize])
	if !inverts(d, &modulus) {
		clear(d.Bits())
		return nil, errors.New("not a private key: its exponent does not match its modulus")
	}
	// crypto/rsa wants two primes in a key, but blind signing does not use them.
	return &PrivateKey{public: public, exponent: d,
		key: rsa.PrivateKey{PublicKey: modulus, D: d, Primes: make([]*big.Int, 2)}}, nil
}

// inverts reports whether the private exponent d inverts the public exponent, modulo the modulus: it tries this on the
// number 2.
func inverts(d *big.Int, modulus *rsa.PublicKey) bool {
	two := big.NewInt(2)
	power := new(big.Int).Exp(two, big.NewInt(exponent), modulus.N)
	return power.Exp(power, d, modulus.N).Cmp(two) == 0
}

// Public returns the public half. It works after Clear, too.
func (k *PrivateKey) Public() *PublicKey { return k.public }

func (k *PrivateKey) Modulus() *big.Int { return k.public.key.N }

// Sign is [Sign] with this key. After Clear it returns [onion.ErrErased].
func (k *PrivateKey) Sign(request []byte) ([]byte, error) {
	k.mu.RLock()
	defer k.mu.RUnlock()
	if k.exponent == nil {
		return nil, onion.ErrErased
	}
	return Sign(&k.key, k.public, request)
}

// Use calls do with the private exponent's bytes. do must not keep or copy them. Use returns true if it called do, and
// false after Clear.
func (k *PrivateKey) Use(do func(exponent []byte)) bool {
	k.mu.RLock()
	defer k.mu.RUnlock()
	if k.exponent == nil {
		return false
	}
	raw := make([]byte, modulusSize)
	defer clear(raw)
	do(k.exponent.FillBytes(raw))
	return true
}

// Clear erases the key from memory when uses that have begun are over.
func (k *PrivateKey) Clear() {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.exponent == nil {
		return
	}
	clear(k.exponent.Bits())
	k.exponent, k.key.D = nil, nil
}
