// Package hpketest is a second, deterministic implementation of sealing by RFC 9180 (base mode,
// HKDF-SHA256, AES-128-GCM), for tests and test vectors only: the caller chooses the ephemeral key,
// so that vectors can be made again, and may cheat with it. It shares no code with crypto/hpke.
package hpketest

import (
	"crypto/aes"
	"crypto/cipher"
	"crypto/ecdh"
	"crypto/hkdf"
	"crypto/mlkem"
	"crypto/mlkem/mlkemtest"
	"crypto/sha256"
	"crypto/sha3"
	"encoding/binary"
	"fmt"
)

// The ids of KEMs.
const (
	X25519         = 0x0020
	MLKEM768       = 0x0041
	MLKEM768X25519 = 0x647a
)

// Ephemeral is what a sender would draw at random.
type Ephemeral struct {
	X25519 []byte // private key, 32 bytes
	MLKEM  []byte // randomness of ML-KEM.Encaps, 32 bytes
}

// Seal returns enc ‖ ciphertext.
func Seal(kemID uint16, public []byte, e Ephemeral, info, aad, plaintext []byte) ([]byte, error) {
	shared, enc, err := encapsulate(kemID, public, e)
	if err != nil {
		return nil, fmt.Errorf("couldn't encapsulate: %w", err)
	}
	return append(enc, sealWith(kemID, shared, info, aad, plaintext)...), nil
}

// SealZero returns what a forger sends whose X25519 key share enc is a point of low order: the
// Diffie-Hellman result is all zeros whoever the recipient is. An opener that does not check for
// that opens it.
func SealZero(public, enc, info, aad, plaintext []byte) []byte {
	shared := dhShared(make([]byte, 32), enc, public)
	return append(append([]byte{}, enc...), sealWith(X25519, shared, info, aad, plaintext)...)
}

func encapsulate(kemID uint16, public []byte, e Ephemeral) (shared, enc []byte, err error) {
	switch kemID {
	case X25519:
		dh, share, err := exchange(public, e.X25519)
		return dhShared(dh, share, public), share, err
	case MLKEM768:
		return encapsulateMLKEM(public, e.MLKEM)
	case MLKEM768X25519:
		pq, t := public[:mlkem.EncapsulationKeySize768], public[mlkem.EncapsulationKeySize768:]
		ssM, ctM, err := encapsulateMLKEM(pq, e.MLKEM)
		if err != nil {
			return nil, nil, err
		}
		ssX, ctX, err := exchange(t, e.X25519)
		if err != nil {
			return nil, nil, err
		}
		h := sha3.New256()
		for _, part := range [][]byte{ssM, ssX, ctX, t, []byte(`\.//^\`)} {
			h.Write(part)
		}
		return h.Sum(nil), append(ctM, ctX...), nil
	}
	return nil, nil, fmt.Errorf("unknown kem %#x", kemID)
}

func encapsulateMLKEM(public, random []byte) (shared, enc []byte, err error) {
	key, err := mlkem.NewEncapsulationKey768(public)
	if err != nil {
		return nil, nil, err
	}
	return mlkemtest.Encapsulate768(key, random)
}

func exchange(public, private []byte) (dh, share []byte, err error) {
	remote, err := ecdh.X25519().NewPublicKey(public)
	if err != nil {
		return nil, nil, err
	}
	own, err := ecdh.X25519().NewPrivateKey(private)
	if err != nil {
		return nil, nil, err
	}
	dh, err = own.ECDH(remote)
	return dh, own.PublicKey().Bytes(), err
}

// dhShared is ExtractAndExpand of RFC 9180 section 4.1.
func dhShared(dh, enc, public []byte) []byte {
	suite := binary.BigEndian.AppendUint16([]byte("KEM"), X25519)
	prk := labeledExtract(suite, "eae_prk", dh, nil)
	return labeledExpand(suite, prk, "shared_secret", append(append([]byte{}, enc...), public...), 32)
}

// sealWith is the key schedule of section 5.1 and the first Seal of section 5.2.
func sealWith(kemID uint16, shared, info, aad, plaintext []byte) []byte {
	suite := []byte("HPKE")
	for _, id := range []uint16{kemID, 0x0001, 0x0001} {
		suite = binary.BigEndian.AppendUint16(suite, id)
	}
	context := append([]byte{0}, labeledExtract(suite, "psk_id_hash", nil, nil)...)
	context = append(context, labeledExtract(suite, "info_hash", info, nil)...)
	secret := labeledExtract(suite, "secret", nil, shared)
	block, err := aes.NewCipher(labeledExpand(suite, secret, "key", context, 16))
	must(err)
	aead, err := cipher.NewGCM(block)
	must(err)
	return aead.Seal(nil, labeledExpand(suite, secret, "base_nonce", context, 12), plaintext, aad)
}

func labeledExtract(suite []byte, label string, ikm, salt []byte) []byte {
	labeled := append(append(append([]byte("HPKE-v1"), suite...), label...), ikm...)
	prk, err := hkdf.Extract(sha256.New, labeled, salt)
	must(err)
	return prk
}

func labeledExpand(suite, prk []byte, label string, info []byte, length int) []byte {
	labeled := binary.BigEndian.AppendUint16(nil, uint16(length))
	labeled = append(append(append(append(labeled, "HPKE-v1"...), suite...), label...), info...)
	out, err := hkdf.Expand(sha256.New, prk, string(labeled), length)
	must(err)
	return out
}

// must panics on errors that no input can cause.
func must(err error) {
	if err != nil {
		panic("hpketest: internal error: " + err.Error())
	}
}
