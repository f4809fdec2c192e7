package main

import (
	"crypto/aes"
	"crypto/cipher"
	"crypto/rand"
	"crypto/sha256"
	"encoding/binary"
	"errors"

	"github.com/cloudflare/circl/dh/x25519"

	"github.com/doona-dp/doona/wire/onion"
	"github.com/doona-dp/doona/wire/task"
)

// minimal opens HPKE slots with the least possible work, as a limit for rows: circl's X25519, five HMAC-SHA256 and
// AES-128-GCM (RFC 9180, sections 4.1 and 5.1, base mode). It computes the hash of the info in advance, and only the
// cipher is allocated on the heap. It also seals the slots of batches.
type minimal struct {
	secret, public x25519.Key
	infoHash       digest
}

// digest is an output of SHA-256.
type digest [sha256.Size]byte

const (
	minimalKEM   = "HPKE-v1KEM\x00\x20"
	minimalSuite = "HPKE-v1HPKE\x00\x20\x00\x01\x00\x01"
)

// newMinimal returns a minimal that opens what one hop of a task receives in one epoch, with that hop's key pair.
func newMinimal(key *onion.PrivateKey, public []byte, id task.ID, hop int, epoch uint64) (*minimal, error) {
	secret, err := key.Bytes()
	if err != nil {
		return nil, err
	}
	keyID := key.Public().ID()
	info := append([]byte("doona-v1 onion"), id[:]...)
	info = append(append(binary.BigEndian.AppendUint64(info, epoch), byte(hop)), keyID[:]...)
	m := &minimal{secret: x25519.Key(secret), public: x25519.Key(public)}
	m.infoHash = hmac(nil, []byte(minimalSuite+"info_hash"), info)
	return m, nil
}

// hmac returns the HMAC-SHA256 of the concatenated parts, which may have at most 256 bytes together. The key may have
// at most 64 bytes.
func hmac(key []byte, parts ...[]byte) digest {
	var inner [64 + 256]byte
	var outer [64 + sha256.Size]byte
	copy(inner[:], key)
	copy(outer[:], key)
	for i := range 64 {
		inner[i] ^= 0x36
		outer[i] ^= 0x5c
	}
	n := 64
	for _, p := range parts {
		n += copy(inner[n:], p)
	}
	sum := digest(sha256.Sum256(inner[:n]))
	copy(outer[64:], sum[:])
	return sha256.Sum256(outer[:])
}

// Constants that the key schedule of HPKE hashes together with the secrets.
var (
	labelEAE    = []byte(minimalKEM + "eae_prk")
	labelShared = []byte("\x00\x20" + minimalKEM + "shared_secret")
	labelSecret = []byte(minimalSuite + "secret")
	labelKey    = []byte("\x00\x10" + minimalSuite + "key\x00")
	labelNonce  = []byte("\x00\x0c" + minimalSuite + "base_nonce\x00")
	pskHash     = hmac(nil, []byte(minimalSuite+"psk_id_hash"))
	first       = []byte{1}
)

// derive returns the cipher and the nonce of a slot, from the slot's key share and the shared X25519 secret.
func (m *minimal) derive(share, shared *x25519.Key) (cipher.AEAD, digest, error) {
	prk := hmac(nil, labelEAE, shared[:])
	kem := hmac(prk[:], labelShared, share[:], m.public[:], first)
	secret := hmac(kem[:], labelSecret)
	key := hmac(secret[:], labelKey, pskHash[:], m.infoHash[:], first)
	nonce := hmac(secret[:], labelNonce, pskHash[:], m.infoHash[:], first)
	block, err := aes.NewCipher(key[:16])
	if err != nil {
		return nil, nonce, err
	}
	aead, err := cipher.NewGCM(block)
	return aead, nonce, err
}

// slotAAD is the associated data of slots in lane 0.
var slotAAD = []byte{0, 0, 0}

// open decrypts a slot into the buffer room.
func (m *minimal) open(room, sealed []byte) error {
	share := x25519.Key(sealed[:x25519.Size])
	var shared x25519.Key
	if !x25519.Shared(&shared, &m.secret, &share) {
		return errors.New("key share of low order")
	}
	aead, nonce, err := m.derive(&share, &shared)
	if err == nil {
		_, err = aead.Open(room[:0], nonce[:12], sealed[x25519.Size:], slotAAD)
	}
	return err
}

// press seals many slots under one key share and one nonce. That is insecure, but it saves a key exchange per slot, and
// opening such a slot costs as much as opening a real one.
type press struct {
	share x25519.Key
	aead  cipher.AEAD
	nonce digest
}

func (m *minimal) press() (*press, error) {
	p, ephemeral, shared := new(press), x25519.Key{1, 2, 3}, x25519.Key{}
	x25519.KeyGen(&p.share, &ephemeral)
	if !x25519.Shared(&shared, &ephemeral, &m.public) {
		return nil, errors.New("public key of low order")
	}
	var err error
	p.aead, p.nonce, err = m.derive(&p.share, &shared)
	return p, err
}

// seal appends a sealed slot to the buffer to.
func (p *press) seal(to, plaintext []byte) []byte {
	return p.aead.Seal(append(to, p.share[:]...), p.nonce[:12], plaintext, slotAAD)
}

// sealFresh seals a slot under a fresh key share, as clients do, and appends it to the buffer to.
func (m *minimal) sealFresh(to, plaintext []byte) ([]byte, error) {
	var ephemeral, share, shared x25519.Key
	rand.Read(ephemeral[:])
	x25519.KeyGen(&share, &ephemeral)
	if !x25519.Shared(&shared, &ephemeral, &m.public) {
		return nil, errors.New("public key of low order")
	}
	aead, nonce, err := m.derive(&share, &shared)
	if err != nil {
		return nil, err
	}
	return aead.Seal(append(to, share[:]...), nonce[:12], plaintext, slotAAD), nil
}
