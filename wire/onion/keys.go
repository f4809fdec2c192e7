package onion

import (
	"crypto/ed25519"
	"crypto/sha256"
	"fmt"

	"github.com/doona-dp/doona/wire/codec"
	"github.com/doona-dp/doona/wire/signing"
	"github.com/doona-dp/doona/wire/task"
)

// keysLabel is the first field of every key list.
const keysLabel = "doona-keys"

// KeyList is a party's list of HPKE public keys, exactly one per epoch of a task. The task contains the list's hash, so
// all clients of a task seal to the same keys. A party cannot give one client a different key to recognize it.
type KeyList struct {
	Label   string
	Version uint64
	KEM     task.KEM
	Keys    [][]byte // Index = epoch. Serialized public keys; for an issuer, 32-byte key ids.
}

// SignedKeyList is a key list with its party's signature: msgpack [list, signature].
type SignedKeyList struct {
	List      []byte
	Signature []byte
}

// NewSignedKeyList signs the list of the public halves of keys.
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
	return &SignedKeyList{body, signing.Sign(signKey, signing.KeyList, body)}, nil
}

// Hash returns the SHA-256 of the list. A task contains this hash.
func (s *SignedKeyList) Hash() task.KeyListHash { return sha256.Sum256(s.List) }

// Bytes returns the msgpack form.
func (s *SignedKeyList) Bytes() ([]byte, error) { return codec.Marshal(s) }

// ParseKeyList parses a signed key list from msgpack, without checking it against a party; see [PartyKeys]. The result
// shares memory with in. [KeyListSize] returns how many bytes a task's list must have.
func ParseKeyList(in []byte) (*SignedKeyList, error) {
	v := codec.NewView(in)
	v.ArrayOf(2)
	s := &SignedKeyList{v.Bytes(), v.Bytes()}
	if err := v.End(); err != nil {
		return nil, fmt.Errorf("couldn't decode a list of keys: %w", err)
	}
	return s, nil
}

// KeyListSize returns the size in bytes of a signed list with this many keys of a KEM. For [TokenKEM], these are ids of
// an issuer's keys. It returns an error for an unknown KEM.
func KeyListSize(kem task.KEM, keys uint64) (uint64, error) {
	size, err := publicSize(kem)
	if err != nil {
		return 0, err
	}
	const labels = 1 + 1 + len(keysLabel) + 1 + 1 // headers of outer array and list, label, version, header of the KEM
	list := labels + len(kem) + arrayHeader(int(keys)) + int(keys)*bytesSize(size)
	return uint64(1 + bytesSize(list) + bytesSize(ed25519.SignatureSize)), nil
}

// publicSize returns the size in bytes of a public key of a KEM, or of the id of an issuer's key.
func publicSize(kem task.KEM) (int, error) {
	switch kem {
	case task.KEMX25519, TokenKEM:
		return 32, nil
	case task.KEMMLKEM768X25519:
		return 1216, nil
	case task.KEMMLKEM768:
		return 1184, nil
	}
	_, err := Overhead(kem)
	return 0, err
}

// PartyKeys returns the public keys of a key list, by epoch. It checks the list against the hash and the signing key
// that the task names for the party at hop.
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
		if before, seen := epochOf[key.id]; seen { // erasing one epoch's key would leave the other's copy
			return nil, fmt.Errorf("couldn't accept the keys of hop %d: epochs %d and %d have the same", hop, before, i)
		}
		epochOf[key.id], keys[i] = i, key
	}
	return keys, nil
}

// TokenKEM stands in an issuer's key list instead of a KEM. The list's entries are the ids of the issuer's 2048-bit
// keys for blind RSA signatures ([RFC 9578], section 6.5: SHA-256 of the public key).
//
// [RFC 9578]: https://www.rfc-editor.org/rfc/rfc9578
const TokenKEM = "rsabssa-2048"

// IssuerKeys checks the key list of a task's issuer, as [PartyKeys] does, and returns the ids of the token keys by
// epoch.
func IssuerKeys(t *task.Task, s *SignedKeyList) ([]KeyID, error) {
	listed, err := s.open("the keys of the issuer", t.Clients.Issuer, TokenKEM, t.Epochs.Count)
	if err != nil {
		return nil, err
	}
	ids := make([]KeyID, len(listed))
	epochOf := make(map[KeyID]int, len(ids))
	for i, id := range listed {
		ids[i] = KeyID(id)
		if before, seen := epochOf[ids[i]]; seen { // a token of one epoch would be valid in the other
			return nil, fmt.Errorf("couldn't accept the keys of the issuer: epochs %d and %d have the same", before, i)
		}
		epochOf[ids[i]] = i
	}
	return ids, nil
}

// NewIssuerKeyList signs an issuer's list of token key ids.
func NewIssuerKeyList(ids []KeyID, signKey ed25519.PrivateKey) (*SignedKeyList, error) {
	keys := make([][]byte, len(ids))
	for i := range ids {
		keys[i] = ids[i][:]
	}
	return newList(TokenKEM, keys, signKey)
}

// open checks a list's hash, signature and form against a party, and returns its entries. what is the list's name in
// errors.
func (s *SignedKeyList) open(what string, party task.Party, kem task.KEM, count uint64) ([][]byte, error) {
	if s.Hash() != party.KeyList {
		return nil, fmt.Errorf("couldn't accept %s: not the list the task names", what)
	}
	if !signing.Verify(party.SignKey[:], signing.KeyList, s.List, s.Signature) {
		return nil, fmt.Errorf("couldn't accept %s: %w", what, signing.ErrSigner)
	}
	size, err := publicSize(kem)
	if err != nil {
		return nil, err
	}
	v := codec.NewView(s.List)
	v.ArrayOf(4)
	label, version, of, n := string(v.Text()), v.Uint(), task.KEM(v.Text()), v.Array()
	if label != keysLabel || version != task.Version || of != kem || uint64(n) != count {
		return nil, fmt.Errorf("couldn't accept %s: %d keys of kem %.20q, version %d; want %d keys of kem %s, "+
			"version %d", what, n, of, version, count, kem, task.Version)
	}
	keys := make([][]byte, n)
	for i := range keys {
		if keys[i] = v.Bytes(); len(keys[i]) != size {
			return nil, fmt.Errorf("couldn't accept %s: epoch %d has a key of %d bytes, want %d", what, i, len(keys[i]), size)
		}
	}
	if err := v.End(); err != nil {
		return nil, fmt.Errorf("couldn't accept %s: %w", what, err)
	}
	return keys, nil
}
