package onion

import (
	"crypto/ecdh"

	"github.com/cloudflare/circl/dh/x25519"

	"github.com/doona-dp/doona/internal/secret"
)

// x25519Unsealer is what crypto/hpke does for the first message in base mode under X25519, HKDF-SHA256 and
// AES-128-GCM, with circl's X25519, which on amd64 is assembly and takes two thirds of crypto/ecdh's time: that
// exchange is most of what opening costs. The rest takes 5 allocations, where crypto/hpke has about a hundred: it
// parses both keys and hashes the info anew for every message.
type x25519Unsealer struct {
	key      *PrivateKey
	public   x25519.Key
	infoHash digest
}

// fastUnsealer returns nil for other KEMs.
func fastUnsealer(key *PrivateKey, info []byte) unsealer {
	if key.public.key.KEM().ID() != dhkemX25519 {
		return nil
	}
	return &x25519Unsealer{key, x25519.Key(key.public.key.Bytes()), hashInfo(info)}
}

// newX25519Key makes a key of a scalar, which becomes its own.
func newX25519Key(scalar []byte) (*x25519Key, error) {
	var public x25519.Key
	x25519.KeyGen(&public, (*x25519.Key)(scalar))
	key, err := ecdh.X25519().NewPublicKey(public[:])
	return &x25519Key{scalar: scalar, public: key}, err
}

// ECDH implements [ecdh.KeyExchanger].
func (k *x25519Key) ECDH(remote *ecdh.PublicKey) ([]byte, error) {
	theirs := x25519.Key(remote.Bytes())
	shared := new(x25519.Key)
	if !agree(shared, k.scalar, &theirs) {
		return nil, errLowOrder
	}
	return shared[:], nil
}

// agree is [x25519.Shared], and leaves no copy of the scalar on the stack.
func agree(shared *x25519.Key, scalar []byte, share *x25519.Key) (ok bool) {
	secret.DoSmall(func() { ok = x25519.Shared(shared, (*x25519.Key)(scalar), share) })
	return ok
}

// open implements [unsealer]. Which of its steps fails shows in the time it takes, and tells nothing that the sender
// does not know: whether its share is of low order. The tag is compared in constant time.
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
