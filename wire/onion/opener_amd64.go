package onion

import (
	"crypto/ecdh"

	"github.com/cloudflare/circl/dh/x25519"

	"github.com/doona-dp/doona/internal/secret"
)

// x25519Unsealer does the same as crypto/hpke for the first message in base mode under X25519, HKDF-SHA256 and
// AES-128-GCM. It uses circl's X25519, which is assembly on amd64 and takes two thirds of crypto/ecdh's time. The key
// exchange is most of the cost of opening. The rest takes 5 allocations; crypto/hpke takes about a hundred, because it
// parses both keys and hashes the info string for every message.
type x25519Unsealer struct {
	key      *PrivateKey
	public   x25519.Key
	infoHash digest
}

// fastUnsealer returns an x25519Unsealer, or nil for other KEMs.
func fastUnsealer(key *PrivateKey, info []byte) unsealer {
	if key.public.key.KEM().ID() != dhkemX25519 {
		return nil
	}
	return &x25519Unsealer{key, x25519.Key(key.public.key.Bytes()), hashInfo(info)}
}

// newX25519Key makes a key from a scalar, and takes ownership of the scalar's slice.
func newX25519Key(scalar []byte) (*x25519Key, error) {
	var public x25519.Key
	x25519.KeyGen(&public, (*x25519.Key)(scalar))
	key, err := ecdh.X25519().NewPublicKey(public[:])
	return &x25519Key{scalar: scalar, public: key}, err
}

// ECDH returns the shared secret with a remote key. It implements [ecdh.KeyExchanger].
func (k *x25519Key) ECDH(remote *ecdh.PublicKey) ([]byte, error) {
	theirs := x25519.Key(remote.Bytes())
	shared := new(x25519.Key)
	if !agree(shared, k.scalar, &theirs) {
		return nil, errLowOrder
	}
	return shared[:], nil
}

// agree is [x25519.Shared], but leaves no copy of the scalar on the stack.
func agree(shared *x25519.Key, scalar []byte, share *x25519.Key) (ok bool) {
	secret.DoSmall(func() { ok = x25519.Shared(shared, (*x25519.Key)(scalar), share) })
	return ok
}

// open implements [unsealer]. Its running time reveals which step failed, but only whether the share is of low order,
// which the sender knows. It compares the tag in constant time.
func (u *x25519Unsealer) open(aad, sealed []byte) ([]byte, error) {
	var share, shared x25519.Key
	if len(sealed) < len(share)+aeadTag {
		return nil, ErrOpen
	}
	copy(share[:], sealed)
	ok := false
	if !u.key.serialized.Use(func(scalar []byte) { ok = agree(&shared, scalar, &share) }) {
		return nil, ErrErased
	}
	if !ok {
		return nil, ErrOpen
	}
	aead, nonce, err := schedule(share[:], shared[:], u.public[:], u.infoHash)
	if err != nil {
		return nil, ErrOpen
	}
	plaintext, err := aead.Open(nil, nonce[:nonceSize], sealed[len(share):], aad)
	if err != nil {
		return nil, ErrOpen
	}
	return plaintext, nil
}
