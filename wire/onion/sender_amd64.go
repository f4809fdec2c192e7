package onion

import (
	"crypto/aes"
	"crypto/cipher"
	"crypto/rand"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/cloudflare/circl/dh/x25519"
)

// The suite ids of RFC 9180, sections 4.1 and 5.1. kemSuite is DHKEM(X25519, HKDF-SHA256); hpkeSuite is that KEM with
// HKDF-SHA256 and AES-128-GCM.
const (
	kemSuite  = "KEM\x00\x20"
	hpkeSuite = "HPKE\x00\x20\x00\x01\x00\x01"
)

var errLowOrder = errors.New("key share of low order")

// dhkemX25519 is the id of DHKEM(X25519, HKDF-SHA256) in RFC 9180.
const dhkemX25519 = 0x0020

// fastSeal does the same as crypto/hpke for one message in base mode under X25519, HKDF-SHA256 and AES-128-GCM. It uses
// circl's X25519, because a relay seals thousands of dummies for a batch and key exchanges are most of their cost. ok
// is false for other KEMs. A public key of low order is an error, as RFC 9180, section 7.1.4, demands.
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
	aead, nonce, err := schedule(share[:], shared[:], theirs[:], hashInfo(info))
	if err != nil {
		return nil, true, err
	}
	return aead.Seal(sealed, nonce[:nonceSize], plaintext, aad), true, nil
}

func hashInfo(info []byte) digest { return extract(hpkeSuite, nil, "info_hash", info) }

// schedule is the key schedule of RFC 9180, sections 4.1 and 5.1, in base mode. Its inputs are the encapsulated key
// enc, the secret dh of the exchange, the recipient's public key theirs, and the hash of the info string. It returns
// the cipher for the first message. The first nonceSize bytes of nonce are the message's nonce.
func schedule(enc, dh, theirs []byte, infoHash digest) (aead cipher.AEAD, nonce digest, err error) {
	eae := extract(kemSuite, nil, "eae_prk", dh)
	shared := expand(kemSuite, eae, "shared_secret", enc, theirs, sha256.Size)
	secret := extract(hpkeSuite, shared[:], "secret", nil)
	key := expand(hpkeSuite, secret, "key", modeBase, infoHash[:], keySize)
	nonce = expand(hpkeSuite, secret, "base_nonce", modeBase, infoHash[:], nonceSize)
	block, err := aes.NewCipher(key[:keySize])
	if err != nil {
		return nil, nonce, fmt.Errorf("couldn't make a cipher: %w", err)
	}
	if aead, err = cipher.NewGCM(block); err != nil {
		return nil, nonce, fmt.Errorf("couldn't make a cipher: %w", err)
	}
	return aead, nonce, nil
}

// Sizes of AES-128-GCM, in bytes.
const (
	keySize   = 16
	nonceSize = 12
)

// version1 begins every labelled input in RFC 9180, section 4.
const version1 = "HPKE-v1"

// modeBase begins the context in the key schedule: the mode byte 0, and the hash of the empty psk_id.
var modeBase = func() []byte {
	hash := extract(hpkeSuite, nil, "psk_id_hash", nil)
	return append([]byte{0}, hash[:]...)
}()

// inputRoom is a capacity in bytes that holds every input hashed here, so that no input is allocated on the heap.
const inputRoom = 256

type digest [sha256.Size]byte

// extract is LabeledExtract of RFC 9180, section 4.
func extract(suite string, salt []byte, label string, ikm []byte) digest {
	input := make([]byte, 0, inputRoom)
	input = append(append(append(append(input, version1...), suite...), label...), ikm...)
	return prf(salt, input)
}

// expand is LabeledExpand of RFC 9180, section 4, for size bytes, at most 32: the first block of HKDF's output. The
// info string comes in two parts, info and more.
func expand(suite string, prk digest, label string, info, more []byte, size int) digest {
	input := make([]byte, 0, inputRoom)
	input = binary.BigEndian.AppendUint16(input, uint16(size))
	input = append(append(append(append(append(input, version1...), suite...), label...), info...), more...)
	return prf(prk[:], append(input, 1))
}

// prf is HMAC-SHA256 under a key of at most 64 bytes. Each seal calls it six times. For each call crypto/hmac would
// allocate about ten times, which takes longer than the hashing itself.
func prf(key, input []byte) digest {
	inner := make([]byte, sha256.BlockSize, sha256.BlockSize+inputRoom)
	outer := make([]byte, sha256.BlockSize, sha256.BlockSize+sha256.Size)
	copy(inner, key)
	copy(outer, key)
	for i := range sha256.BlockSize {
		inner[i] ^= 0x36
		outer[i] ^= 0x5c
	}
	hash := digest(sha256.Sum256(append(inner, input...)))
	return sha256.Sum256(append(outer, hash[:]...))
}
