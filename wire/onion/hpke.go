package onion

import (
	"crypto/ecdh"
	"crypto/hpke"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/doona-dp/doona/wire/task"
)

// infoLabel begins every HPKE info string.
var infoLabel = fmt.Sprintf("doona-v%d onion", task.Version)

// ErrOpen is the error for a ciphertext that does not open under the given key and context. The ciphertext may be
// corrupt or truncated, sealed for another party, task, epoch, lane or kind, or have an invalid key share. The error
// does not tell which.
var ErrOpen = errors.New("ciphertext does not open")

// kind says what a ciphertext contains. It is part of the associated data, so a ciphertext does not open as another
// kind.
type kind uint8

// The kinds of ciphertext.
const (
	kindSlot     kind = 0 // One slot, for a later relay or the verifier.
	kindEnvelope kind = 1 // All slots of one client, for the first relay.
	kindSet      kind = 2 // The slots of one client for all tables of a set, for the first relay.
)

// Context says for which task, epoch and hop a ciphertext is sealed. It does not open in another context.
type Context struct {
	TaskID task.ID
	Epoch  uint64
	Hop    int
}

// info returns the HPKE info string: label ‖ task id ‖ epoch (8 bytes) ‖ hop (1 byte) ‖ key id.
func (c Context) info(key KeyID) []byte {
	info := append([]byte(infoLabel), c.TaskID[:]...)
	info = binary.BigEndian.AppendUint64(info, c.Epoch)
	info = append(info, byte(c.Hop))
	return append(info, key[:]...)
}

// aad returns the associated data: lane (2 bytes) ‖ kind (1 byte).
func aad(lane int, of kind) []byte {
	return append(binary.BigEndian.AppendUint16(nil, uint16(lane)), byte(of))
}

// kem returns the mechanism with a task's name for it, and the size of its encapsulated key in bytes.
func kem(name task.KEM) (hpke.KEM, int, error) {
	switch name {
	case task.KEMX25519:
		return hpke.DHKEM(ecdh.X25519()), 32, nil
	case task.KEMMLKEM768X25519:
		return hpke.MLKEM768X25519(), 1120, nil
	case task.KEMMLKEM768:
		return hpke.MLKEM768(), 1088, nil
	}
	return nil, 0, fmt.Errorf("invalid kem %q: want x25519, mlkem768x25519 or mlkem768", name)
}

// aeadTag is the size of an AES-128-GCM tag, in bytes.
const aeadTag = 16

// Overhead returns how many bytes one layer of encryption adds to its plaintext under the named KEM: the encapsulated
// key and the AEAD tag.
func Overhead(kemName task.KEM) (int, error) {
	_, enc, err := kem(kemName)
	return enc + aeadTag, err
}

// KeyID identifies a key in a signed key list: for HPKE keys see [PublicKey], for token keys [IssuerKeys].
type KeyID [32]byte

// PublicKey is a party's HPKE key for one epoch. Its id is the SHA-256 of the KEM id (2 bytes) and the serialized
// key.
type PublicKey struct {
	key hpke.PublicKey
	id  KeyID
}

// ParsePublicKey parses a serialized public key.
func ParsePublicKey(kemName task.KEM, serialized []byte) (*PublicKey, error) {
	k, _, err := kem(kemName)
	if err != nil {
		return nil, err
	}
	key, err := k.NewPublicKey(serialized)
	if err != nil {
		return nil, fmt.Errorf("couldn't parse public key: %w", err)
	}
	return newPublicKey(key), nil
}

func newPublicKey(key hpke.PublicKey) *PublicKey {
	id := binary.BigEndian.AppendUint16(nil, key.KEM().ID())
	return &PublicKey{key: key, id: sha256.Sum256(append(id, key.Bytes()...))}
}

func (k *PublicKey) ID() KeyID { return k.id }

// seal encrypts plaintext to key with a fresh encapsulation. It returns enc, the encapsulated key, followed by the
// ciphertext.
func seal(key *PublicKey, c Context, lane int, of kind, plaintext []byte) ([]byte, error) {
	if sealed, ok, err := fastSeal(key, c.info(key.id), aad(lane, of), plaintext); ok {
		if err != nil {
			return nil, fmt.Errorf("couldn't seal: %w", err)
		}
		return sealed, nil
	}
	enc, sender, err := hpke.NewSender(key.key, hpke.HKDFSHA256(), hpke.AES128GCM(), c.info(key.id))
	if err != nil {
		return nil, fmt.Errorf("couldn't encapsulate: %w", err)
	}
	ciphertext, err := sender.Seal(aad(lane, of), plaintext)
	if err != nil {
		return nil, fmt.Errorf("couldn't seal: %w", err)
	}
	return append(enc, ciphertext...), nil
}

// unsealer opens ciphertexts that were sealed to one key with one info string.
type unsealer interface {
	// open opens enc ‖ ciphertext with its associated data. It returns [ErrOpen] if that fails, and [ErrErased] if the
	// key was erased. It refuses a key share of low order, whose shared secret is all zeros, as RFC 9180, section
	// 7.1.4, demands.
	open(aad, sealed []byte) ([]byte, error)
}

// newUnsealer returns the fastest unsealer on this machine.
func newUnsealer(key *PrivateKey, info []byte) unsealer {
	if fast := fastUnsealer(key, info); fast != nil {
		return fast
	}
	return &plainUnsealer{key, info}
}

// plainUnsealer opens with crypto/hpke.
type plainUnsealer struct {
	key  *PrivateKey
	info []byte
}

func (u *plainUnsealer) open(aad, sealed []byte) (plaintext []byte, err error) {
	if len(sealed) < u.key.enc+aeadTag {
		return nil, ErrOpen
	}
	enc, ciphertext := sealed[:u.key.enc], sealed[u.key.enc:]
	err = ErrErased
	u.key.serialized.Use(func([]byte) {
		var recipient *hpke.Recipient
		if recipient, err = hpke.NewRecipient(enc, u.key.key, hpke.HKDFSHA256(), hpke.AES128GCM(), u.info); err == nil {
			plaintext, err = recipient.Open(aad, ciphertext)
		}
		if err != nil {
			err = ErrOpen
		}
	})
	return plaintext, err
}
