package onion

import (
	"crypto/ed25519"
	"crypto/sha256"
	"errors"
	"fmt"

	"github.com/doona-dp/doona/internal/codec"
	"github.com/doona-dp/doona/task"
)

// keysLabel opens every key list.
const keysLabel = "doona-keys"

// KeyList is the list of a party's HPKE public keys, exactly one per epoch of a task. The task
// names it by its hash, so all clients of a task seal to the same keys: a party cannot mark one
// of them with a key of its own.
type KeyList struct {
	Label   string
	Version uint64
	KEM     string
	Keys    [][]byte // Serialized public keys; index = epoch.
}

// SignedKeyList is a key list with its party's signature: msgpack [list, signature].
type SignedKeyList struct {
	List      []byte
	Signature []byte
}

// NewSignedKeyList returns the list of the public halves of keys, signed.
func NewSignedKeyList(kemName string, keys []*PrivateKey, signKey ed25519.PrivateKey) (*SignedKeyList, error) {
	list := KeyList{Label: keysLabel, Version: task.Version, KEM: kemName, Keys: [][]byte{}}
	for _, k := range keys {
		list.Keys = append(list.Keys, k.public.key.Bytes())
	}
	body, err := codec.Marshal(&list)
	if err != nil {
		return nil, err
	}
	return &SignedKeyList{body, Sign(signKey, SignKeyList, body)}, nil
}

// Hash returns the SHA-256 of the list, by which a task names it.
func (s *SignedKeyList) Hash() [32]byte { return sha256.Sum256(s.List) }

// Bytes returns the msgpack form.
func (s *SignedKeyList) Bytes() ([]byte, error) { return codec.Marshal(s) }

// ParseKeyList reads the msgpack form without checking it against a party; see [PartyKeys].
func ParseKeyList(in []byte) (*SignedKeyList, error) {
	var s SignedKeyList
	if err := codec.Unmarshal(in, &s); err != nil {
		return nil, err
	}
	return &s, nil
}

// PartyKeys checks a key list against the party a task names, its hash and its signature, and
// returns the public keys by epoch.
func PartyKeys(t *task.Task, hop int, s *SignedKeyList) ([]*PublicKey, error) {
	party := t.Party(hop)
	if s.Hash() != party.KeyList {
		return nil, fmt.Errorf("couldn't accept the keys of hop %d: not the list the task names", hop)
	}
	if !Verify(party.SignKey[:], SignKeyList, s.List, s.Signature) {
		return nil, fmt.Errorf("couldn't accept the keys of hop %d: %w", hop, ErrSigner)
	}
	var list KeyList
	if err := codec.Unmarshal(s.List, &list); err != nil {
		return nil, err
	}
	if list.Label != keysLabel || list.Version != task.Version || list.KEM != t.KEM || uint64(len(list.Keys)) != t.Epochs.Count {
		return nil, fmt.Errorf("couldn't accept the keys of hop %d: want version %d, kem %s and %d keys", hop, task.Version, t.KEM, t.Epochs.Count)
	}
	keys := make([]*PublicKey, len(list.Keys))
	epochOf := make(map[[32]byte]int, len(keys))
	for i, serialized := range list.Keys {
		key, err := ParsePublicKey(list.KEM, serialized)
		if err != nil {
			return nil, fmt.Errorf("hop %d, epoch %d: %w", hop, i, err)
		}
		if before, seen := epochOf[key.id]; seen { // erasing the one would not close the other
			return nil, fmt.Errorf("couldn't accept the keys of hop %d: epochs %d and %d have the same", hop, before, i)
		}
		epochOf[key.id], keys[i] = i, key
	}
	return keys, nil
}

// Purpose separates what an Ed25519 key signs.
type Purpose string

// The purposes of signatures.
const (
	SignTask     Purpose = "task"
	SignKeyList  Purpose = "keys"
	SignManifest Purpose = "manifest"
	SignPull     Purpose = "pull"
	SignConfirm  Purpose = "confirm"
)

// signed = "doona-v<version> <purpose>" ‖ 0x00 ‖ body.
func signed(p Purpose, body []byte) []byte {
	return append(fmt.Appendf(nil, "doona-v%d %s\x00", task.Version, p), body...)
}

// Sign returns the Ed25519 signature of body for a purpose.
func Sign(key ed25519.PrivateKey, p Purpose, body []byte) []byte {
	return ed25519.Sign(key, signed(p, body))
}

// Verify reports whether signature is key's over body for a purpose.
func Verify(key ed25519.PublicKey, p Purpose, body, signature []byte) bool {
	return len(key) == ed25519.PublicKeySize && ed25519.Verify(key, signed(p, body), signature)
}

// ErrSigner is returned where a signature is not that of the party the task names.
var ErrSigner = errors.New("signed by a stranger")
