package onion

import (
	"bytes"
	"crypto/ecdh"
	"crypto/hpke"
	"crypto/mlkem"
	"crypto/rand"
	"crypto/sha3"
	"errors"
	"fmt"

	"github.com/doona-dp/doona/internal/secret"
	"github.com/doona-dp/doona/wire/task"
)

// ErrErased is the error for an epoch whose private key was erased.
var ErrErased = errors.New("the key of this epoch has been erased")

// PrivateKey is a hop's decapsulation key for one epoch. Parsing it costs more than opening a ciphertext, so keep the
// parsed key until [PrivateKey.Clear]. It is safe for concurrent use.
type PrivateKey struct {
	serialized *secret.Bytes // Clear clears it first; key may only be used inside its Use
	key        hpke.PrivateKey
	exchange   *x25519Key                 // X25519 part of key; nil if the KEM has none
	lattice    *mlkem.DecapsulationKey768 // ML-KEM part of key; nil if the KEM has none
	public     *PublicKey
	enc        int
}

// Sizes of serialized private keys, in bytes. An ML-KEM key has [mlkem.SeedSize].
const (
	x25519Size = 32
	hybridSeed = 32
)

// GenerateKey returns a new random private key for a KEM.
func GenerateKey(kemName task.KEM) (*PrivateKey, error) {
	size := x25519Size
	if kemName == task.KEMMLKEM768 {
		size = mlkem.SeedSize
	}
	serialized := make([]byte, size)
	rand.Read(serialized)
	return OwnPrivateKey(kemName, serialized)
}

// OwnPrivateKey parses a serialized private key, and takes ownership of the slice. [PrivateKey.Clear] erases the slice;
// after an error, OwnPrivateKey has already erased it.
func OwnPrivateKey(kemName task.KEM, serialized []byte) (*PrivateKey, error) {
	_, enc, err := kem(kemName)
	if err != nil {
		clear(serialized)
		return nil, err
	}
	k := &PrivateKey{enc: enc}
	secret.Do(func() { err = k.load(kemName, serialized) })
	k.serialized = secret.Own(serialized)
	if err != nil {
		k.Clear()
		return nil, fmt.Errorf("couldn't parse private key: %w", err)
	}
	k.public = newPublicKey(k.key.PublicKey())
	return k, nil
}

// load parses the serialized key into the forms that opening needs.
func (k *PrivateKey) load(kemName task.KEM, serialized []byte) (err error) {
	switch kemName {
	case task.KEMX25519:
		if len(serialized) != x25519Size {
			return fmt.Errorf("a key of %d bytes: want %d", len(serialized), x25519Size)
		}
		serialized[0] &= 248 // as RFC 9180, section 7.1.2, demands
		serialized[31] = serialized[31]&127 | 64
		if k.exchange, err = newX25519Key(serialized); err != nil {
			return err
		}
		k.key, err = hpke.NewDHKEMPrivateKey(k.exchange)
	case task.KEMMLKEM768:
		if k.lattice, err = mlkem.NewDecapsulationKey768(serialized); err != nil {
			return err
		}
		k.key, err = hpke.NewMLKEMPrivateKey(k.lattice)
	default:
		err = k.loadHybrid(serialized)
	}
	return err
}

// loadHybrid expands the seed of a hybrid key to an ML-KEM and an X25519 key, as crypto/hpke does. crypto/hpke would
// keep copies that nobody can clear.
func (k *PrivateKey) loadHybrid(seed []byte) error {
	if len(seed) != hybridSeed {
		return fmt.Errorf("a seed of %d bytes: want %d", len(seed), hybridSeed)
	}
	hash := sha3.NewSHAKE256()
	defer hash.Reset()
	seeds := make([]byte, mlkem.SeedSize+x25519Size)
	hash.Write(seed)
	hash.Read(seeds)
	var err error
	if k.lattice, err = mlkem.NewDecapsulationKey768(seeds[:mlkem.SeedSize]); err != nil {
		return err
	}
	clear(seeds[:mlkem.SeedSize])
	if k.exchange, err = newX25519Key(seeds[mlkem.SeedSize:]); err != nil {
		return err
	}
	k.key, err = hpke.NewHybridPrivateKey(k.lattice, k.exchange)
	return err
}

// Bytes returns a copy of the serialized private key, or [ErrErased]. The caller must clear the copy.
func (k *PrivateKey) Bytes() (out []byte, err error) {
	if !k.serialized.Use(func(key []byte) { out = bytes.Clone(key) }) {
		return nil, ErrErased
	}
	return out, nil
}

// Public returns the public half. It works after Clear, too.
func (k *PrivateKey) Public() *PublicKey { return k.public }

// Clear erases the key from memory when uses that have begun are over. Later uses return [ErrErased].
func (k *PrivateKey) Clear() {
	k.serialized.Clear()
	if k.exchange != nil {
		k.exchange.clear()
	}
	if k.lattice != nil {
		secret.Overwrite(k.lattice)
	}
}

// x25519Key is an [ecdh.KeyExchanger] that can be cleared. Use it only inside the Use of its [PrivateKey].
type x25519Key struct {
	scalar  []byte // this key owns the slice
	public  *ecdh.PublicKey
	library *ecdh.PrivateKey // the same key for crypto/ecdh, on machines without a faster library
}

// PublicKey implements [ecdh.KeyExchanger].
func (k *x25519Key) PublicKey() *ecdh.PublicKey { return k.public }

// Curve implements [ecdh.KeyExchanger].
func (k *x25519Key) Curve() ecdh.Curve { return ecdh.X25519() }

func (k *x25519Key) clear() {
	clear(k.scalar)
	if k.library != nil {
		secret.OverwriteField(k.library, "privateKey")
	}
}
