package onion

import (
	"crypto/ed25519"
	"crypto/sha256"
	"errors"
	"fmt"

	"github.com/doona-dp/doona/wire/codec"
	"github.com/doona-dp/doona/wire/task"
)

// keysLabel opens every key list.
const keysLabel = "doona-keys"

// KeyList is the list of a party's HPKE public keys, exactly one per epoch of a task. The task
// names it by its hash, so all clients of a task seal to the same keys: a party cannot mark one
// of them with a key of its own.
type KeyList struct {
	Label   string
	Version uint64
	KEM     task.KEM
	Keys    [][]byte // Serialized public keys, an issuer's 32-byte key ids; index = epoch.
}

// SignedKeyList is a key list with its party's signature: msgpack [list, signature].
type SignedKeyList struct {
	List      []byte
	Signature []byte
}

// NewSignedKeyList returns the list of the public halves of keys, signed.
func NewSignedKeyList(kemName task.KEM, keys []*PrivateKey, signKey ed25519.PrivateKey) (*SignedKeyList, error) {
	public := make([][]byte, len(keys))
	for i, k := range keys {
		public[i] = k.public.key.Bytes()
	}
	return newList(kemName, public, signKey)
}

func newList(kem task.KEM, keys [][]byte, signKey ed25519.PrivateKey) (*SignedKeyList, error) {
	list := KeyList{Label: keysLabel, Version: task.Version, KEM: kem, Keys: keys}
	body, err := codec.Marshal(&list)
	if err != nil {
		return nil, err
	}
	return &SignedKeyList{body, Sign(signKey, SignKeyList, body)}, nil
}

// Hash returns the SHA-256 of the list, by which a task names it.
func (s *SignedKeyList) Hash() task.KeyListHash { return sha256.Sum256(s.List) }

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
	listed, err := s.open(fmt.Sprintf("the keys of hop %d", hop), t.Party(hop), t.KEM, t.Epochs.Count)
	if err != nil {
		return nil, err
	}
	keys := make([]*PublicKey, len(listed))
	epochOf := make(map[KeyID]int, len(keys))
	for i, serialized := range listed {
		key, err := ParsePublicKey(t.KEM, serialized)
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

// TokenKEM stands in the place of the KEM in an issuer's list, whose entries are the ids of its
// 2048-bit keys for blind RSA signatures ([RFC 9578], section 6.5: SHA-256 of the public key).
//
// [RFC 9578]: https://www.rfc-editor.org/rfc/rfc9578
const TokenKEM = "rsabssa-2048"

// IssuerKeys checks the key list of a task's issuer of tokens, and returns the key ids by epoch.
func IssuerKeys(t *task.Task, s *SignedKeyList) ([]KeyID, error) {
	listed, err := s.open("the keys of the issuer", t.Clients.Issuer, TokenKEM, t.Epochs.Count)
	if err != nil {
		return nil, err
	}
	ids := make([]KeyID, len(listed))
	epochOf := make(map[KeyID]int, len(ids))
	for i, id := range listed {
		if len(id) != 32 {
			return nil, fmt.Errorf("couldn't accept the keys of the issuer: epoch %d has a key id of %d "+
				"bytes, want 32", i, len(id))
		}
		ids[i] = KeyID(id)
		if before, seen := epochOf[ids[i]]; seen { // a token of the one would be worth something in the other
			return nil, fmt.Errorf("couldn't accept the keys of the issuer: epochs %d and %d have the same", before, i)
		}
		epochOf[ids[i]] = i
	}
	return ids, nil
}

// NewIssuerKeyList returns an issuer's list of token key ids, signed.
func NewIssuerKeyList(ids []KeyID, signKey ed25519.PrivateKey) (*SignedKeyList, error) {
	keys := make([][]byte, len(ids))
	for i := range ids {
		keys[i] = ids[i][:]
	}
	return newList(TokenKEM, keys, signKey)
}

// open checks a list's hash, signature and form, and returns its entries; what names it in errors.
func (s *SignedKeyList) open(what string, party task.Party, kem task.KEM, count uint64) ([][]byte, error) {
	if s.Hash() != party.KeyList {
		return nil, fmt.Errorf("couldn't accept %s: not the list the task names", what)
	}
	if !Verify(party.SignKey[:], SignKeyList, s.List, s.Signature) {
		return nil, fmt.Errorf("couldn't accept %s: %w", what, ErrSigner)
	}
	var list KeyList
	if err := codec.Unmarshal(s.List, &list); err != nil {
		return nil, err
	}
	if list.Label != keysLabel || list.Version != task.Version || list.KEM != kem || uint64(len(list.Keys)) != count {
		return nil, fmt.Errorf("couldn't accept %s: %d keys of kem %.20q, version %d; want %d keys of kem %s, "+
			"version %d",
			what, len(list.Keys), list.KEM, list.Version, count, kem, task.Version)
	}
	return list.Keys, nil
}

// Purpose separates what an Ed25519 key signs.
type Purpose string

// The purposes of signatures.
const (
	SignTask      Purpose = "task"
	SignKeyList   Purpose = "keys"
	SignManifest  Purpose = "manifest"
	SignPull      Purpose = "pull"
	SignConfirm   Purpose = "confirm"
	SignAskEnd    Purpose = "ask-end" // a request for the signed end of an epoch
	SignEnd       Purpose = "end"
	SignNews      Purpose = "news" // a request for what there is of all tasks of two relays
	SignTime      Purpose = "time"
	SignSucceed   Purpose = "successor" // an owner's request about the next task of a stream
	SignOwner     Purpose = "owner"     // an owner's request about the tasks for which a relay has approved it
	SignStatement Purpose = "statement" // who signs the tasks of a stream from now on
	SignRoll      Purpose = "roll"      // which key signs for a party of a stream from now on
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
