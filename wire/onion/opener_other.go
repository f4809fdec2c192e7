//go:build !amd64

package onion

import (
	"crypto/ecdh"

	"github.com/doona-dp/doona/internal/secret"
)

// fastUnsealer returns nil, so that crypto/hpke opens: circl's X25519 is faster on amd64 only, and must not be linked
// into code for browsers.
func fastUnsealer(*PrivateKey, []byte) unsealer { return nil }

// newX25519Key makes a key from a scalar, and takes ownership of the scalar's slice.
func newX25519Key(scalar []byte) (*x25519Key, error) {
	library, err := ecdh.X25519().NewPrivateKey(scalar)
	if err != nil {
		return nil, err
	}
	return &x25519Key{scalar: scalar, public: library.PublicKey(), library: library}, nil
}

// ECDH returns the shared secret with a remote key. It implements [ecdh.KeyExchanger].
func (k *x25519Key) ECDH(remote *ecdh.PublicKey) (shared []byte, err error) {
	secret.Do(func() { shared, err = k.library.ECDH(remote) })
	return shared, err
}
