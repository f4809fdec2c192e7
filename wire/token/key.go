package token

import (
	"bytes"
	"crypto/rsa"
	"crypto/sha256"
	"fmt"
	"math/big"

	"github.com/doona-dp/doona/internal/invalid"
	"github.com/doona-dp/doona/wire/onion"
)

// exponent is the public exponent of all token keys.
const exponent = 65537

// PublicKey is an issuer's public key for one epoch.
type PublicKey struct {
	key  *rsa.PublicKey
	spki []byte
	id   onion.KeyID
}

// spkiPrefix comes before the modulus, and spkiSuffix, the exponent 65537, after it, in a SubjectPublicKeyInfo for
// RSASSA-PSS with SHA-384, MGF1 with SHA-384 and a salt of 48 bytes ([RFC 9578] section 6.5). The modulus has exactly
// 2048 bits. So each key has only one encoded form and one id.
var (
	spkiPrefix = []byte{
		0x30, 0x82, 0x01, 0x52, // SubjectPublicKeyInfo
		0x30, 0x3d, // AlgorithmIdentifier
		0x06, 0x09, 0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 0x01, 0x01, 0x0a, // id-RSASSA-PSS
		0x30, 0x30, // RSASSA-PSS-params
		0xa0, 0x0d, 0x30, 0x0b, 0x06, 0x09, 0x60, 0x86, 0x48, 0x01, 0x65, 0x03, 0x04, 0x02, 0x02, // SHA-384
		0xa1, 0x1a, 0x30, 0x18, 0x06, 0x09, 0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 0x01, 0x01, 0x08, // MGF1
		0x30, 0x0b, 0x06, 0x09, 0x60, 0x86, 0x48, 0x01, 0x65, 0x03, 0x04, 0x02, 0x02, // of SHA-384
		0xa2, 0x03, 0x02, 0x01, 0x30, // salt of 48 bytes
		0x03, 0x82, 0x01, 0x0f, 0x00, // BIT STRING
		0x30, 0x82, 0x01, 0x0a, // RSAPublicKey
		0x02, 0x82, 0x01, 0x01, 0x00, // modulus
	}
	spkiSuffix = []byte{0x02, 0x03, 0x01, 0x00, 0x01}
)

var spkiSize = len(spkiPrefix) + modulusSize + len(spkiSuffix)

// NewPublicKey returns the public half of a key of exactly 2048 bits with exponent 65537.
func NewPublicKey(key *rsa.PublicKey) (*PublicKey, error) {
	if key.N.BitLen() != 8*modulusSize || key.E != exponent {
		return nil, invalid.Field("token key", fmt.Sprintf("of %d bits, exponent %d", key.N.BitLen(), key.E),
			"2048 bits and exponent 65537")
	}
	spki := append(bytes.Clone(spkiPrefix), key.N.Bytes()...)
	return ParsePublicKey(append(spki, spkiSuffix...))
}

// ParsePublicKey parses a public key in its only accepted form: a SubjectPublicKeyInfo with the object identifier of
// RSASSA-PSS, as [RFC 9578] demands.
func ParsePublicKey(spki []byte) (*PublicKey, error) {
	if len(spki) != spkiSize || !bytes.HasPrefix(spki, spkiPrefix) || !bytes.HasSuffix(spki, spkiSuffix) {
		return nil, invalid.Field("token key", fmt.Sprintf("of %d bytes", len(spki)),
			"a SubjectPublicKeyInfo of RSASSA-PSS with SHA-384, a salt of 48 bytes, 2048 bits and exponent 65537")
	}
	n := spki[len(spkiPrefix):][:modulusSize]
	if n[0]&0x80 == 0 || n[modulusSize-1]&1 == 0 {
		return nil, invalid.Field("token key", "a modulus that is short or even", "an odd modulus of exactly 2048 bits")
	}
	return &PublicKey{&rsa.PublicKey{N: new(big.Int).SetBytes(n), E: exponent}, bytes.Clone(spki),
		sha256.Sum256(spki)}, nil
}

// ID returns the token key id: the SHA-256 of the encoded public key. The issuer's signed key list contains it.
func (k *PublicKey) ID() onion.KeyID { return k.id }

// Bytes returns a copy of the encoded public key.
func (k *PublicKey) Bytes() []byte { return bytes.Clone(k.spki) }
