package onion

import (
	"crypto/ecdh"
	"crypto/hpke"
	"errors"
	"fmt"

	"github.com/cloudflare/circl/dh/x25519"

	"github.com/doona-dp/doona/wire/task"
)

// fastOpener returns the key with circl's X25519, which on amd64 is assembly and takes two thirds of
// crypto/ecdh's time. That exchange is most of what opening a ciphertext costs. The rest of HPKE is
// crypto/hpke's; for sealing see fastSeal.
func fastOpener(kemName task.KEM, key hpke.PrivateKey) (hpke.PrivateKey, error) {
	if kemName != task.KEMX25519 {
		return key, nil
	}
	secret, err := key.Bytes()
	if err != nil {
		return nil, fmt.Errorf("couldn't read private key: %w", err)
	}
	public, err := ecdh.X25519().NewPublicKey(key.PublicKey().Bytes())
	if err != nil {
		return nil, fmt.Errorf("couldn't read public key: %w", err)
	}
	return hpke.NewDHKEMPrivateKey(&exchanger{x25519.Key(secret), public})
}

// exchanger is an X25519 private key whose exchange is circl's.
type exchanger struct {
	secret x25519.Key
	public *ecdh.PublicKey
}

// Curve returns X25519.
func (x *exchanger) Curve() ecdh.Curve { return ecdh.X25519() }

// PublicKey returns the public half.
func (x *exchanger) PublicKey() *ecdh.PublicKey { return x.public }

var errLowOrder = errors.New("key share of low order")

// ECDH returns the shared secret. A share of low order, whose secret is all zeros, is an error, as
// RFC 9180, section 7.1.4, demands.
func (x *exchanger) ECDH(remote *ecdh.PublicKey) ([]byte, error) {
	var shared x25519.Key
	share := x25519.Key(remote.Bytes())
	if !x25519.Shared(&shared, &x.secret, &share) {
		return nil, errLowOrder
	}
	return shared[:], nil
}
