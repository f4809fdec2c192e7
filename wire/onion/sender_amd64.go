package onion

import (
	"crypto/aes"
	"crypto/cipher"
	"crypto/hkdf"
	"crypto/rand"
	"crypto/sha256"
	"encoding/binary"
	"fmt"

	"github.com/cloudflare/circl/dh/x25519"
)

// The suite ids of RFC 9180, sections 4.1 and 5.1: DHKEM(X25519, HKDF-SHA256), and with it HKDF-SHA256 and AES-128-GCM.
const (
	kemSuite  = "KEM\x00\x20"
	hpkeSuite = "HPKE\x00\x20\x00\x01\x00\x01"
)

// dhkemX25519 is the id of the KEM in these.
const dhkemX25519 = 0x0020

// fastSeal is what crypto/hpke does for one message in base mode under X25519, HKDF-SHA256 and AES-128-GCM, with
// circl's X25519: a relay seals thousands of dummies for a batch, and its keys are most of what one costs. ok is
// false for other KEMs. A public key of low order is an error, as RFC 9180, section 7.1.4, demands.
func fastSeal(key *PublicKey, info, aad, plaintext []byte) (sealed []byte, ok bool, err error) {
	if key.key.KEM().ID() != dhkemX25519 {
		return nil, false, nil
	}
	var secret, share, shared x25519.Key
	rand.Read(secret[:])
	x25519.KeyGen(&share, &secret)
	theirs := x25519.Key(key.key.Bytes())
	if !x25519.Shared(&shared, &secret, &theirs) {
		return nil, true, errLowOrder
	}
	sealed = make([]byte, 0, len(share)+len(plaintext)+aeadTag)
	sealed = append(sealed, share[:]...)
	sealed, err = sealShared(sealed, shared[:], theirs[:], info, aad, plaintext)
	return sealed, true, err
}

// sealShared appends the ciphertext to enc: the key schedule of RFC 9180, sections 4.1 and 5.1, and a first message.
func sealShared(enc, dh, theirs, info, aad, plaintext []byte) ([]byte, error) {
	eae, err := extract(kemSuite, nil, "eae_prk", dh)
	if err != nil {
		return nil, err
	}
	shared, err := expand(kemSuite, eae, "shared_secret", string(enc)+string(theirs), sha256.Size)
	if err != nil {
		return nil, err
	}
	pskID, err := extract(hpkeSuite, nil, "psk_id_hash", nil)
	if err != nil {
		return nil, err
	}
	infoHash, err := extract(hpkeSuite, nil, "info_hash", info)
	if err != nil {
		return nil, err
	}
	secret, err := extract(hpkeSuite, shared, "secret", nil)
	if err != nil {
		return nil, err
	}
	schedule := "\x00" + string(pskID) + string(infoHash) // 0: mode base
	key, err := expand(hpkeSuite, secret, "key", schedule, 16)
	if err != nil {
		return nil, err
	}
	nonce, err := expand(hpkeSuite, secret, "base_nonce", schedule, 12)
	if err != nil {
		return nil, err
	}
	block, err := aes.NewCipher(key)
	if err != nil {
		return nil, fmt.Errorf("couldn't make a cipher: %w", err)
	}
	aead, err := cipher.NewGCM(block)
	if err != nil {
		return nil, fmt.Errorf("couldn't make a cipher: %w", err)
	}
	return aead.Seal(enc, nonce, plaintext, aad), nil
}

// version1 opens every labelled input of RFC 9180, section 4.
const version1 = "HPKE-v1"

// extract is LabeledExtract.
func extract(suite string, salt []byte, label string, ikm []byte) ([]byte, error) {
	out, err := hkdf.Extract(sha256.New, append([]byte(version1+suite+label), ikm...), salt)
	if err != nil {
		return nil, fmt.Errorf("couldn't extract: %w", err)
	}
	return out, nil
}

// expand is LabeledExpand.
func expand(suite string, prk []byte, label, info string, size int) ([]byte, error) {
	length := binary.BigEndian.AppendUint16(nil, uint16(size))
	out, err := hkdf.Expand(sha256.New, prk, string(length)+version1+suite+label+info, size)
	if err != nil {
		return nil, fmt.Errorf("couldn't expand: %w", err)
	}
	return out, nil
}
