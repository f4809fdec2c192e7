package onion

import (
	"bytes"
	"crypto/ed25519"
	"crypto/sha256"
	"fmt"

	"github.com/doona-dp/doona/wire/codec"
	"github.com/doona-dp/doona/wire/signing"
	"github.com/doona-dp/doona/wire/task"
)

// keysLabel is the first field of every key list.
const keysLabel = "doona-keys"

// KeyList is what a party signs about its HPKE public keys, exactly one per epoch of a task. The task contains the
// list's hash, so all clients of a task seal to the same keys. A party cannot give one client a different key to
// recognize it.
type KeyList struct {
	Label   string
	Version uint64
	KEM     task.KEM
	Count   uint64 // the number of keys
	Root    []byte // of the Merkle tree of the keys (see [hashAll]), 32 bytes
}

// SignedKeyList is a key list with its party's signature and some of its keys: all, for parties, or those of one block
// of epochs, for clients. A key list with all keys has a msgpack form, [list, signature, keys]; see
// [SignedKeyList.Bytes].
type SignedKeyList struct {
	List      []byte // A [KeyList] in msgpack.
	Signature []byte

	// Keys are public keys, one after the other, from the key of epoch First on; for an issuer, their 32-byte ids. Path
	// is empty for all keys. For those of a block, it proves their place in the tree.
	First      uint64
	Keys, Path []byte

	all *allKeys // if Keys are all and were hashed: see Block
}

// NewSignedKeyList signs the list of the public halves of keys.
func NewSignedKeyList(kem task.KEM, keys []*PrivateKey, signKey ed25519.PrivateKey) (*SignedKeyList, error) {
	var public []byte
	for _, k := range keys {
		public = append(public, k.public.key.Bytes()...)
	}
	return ListOf(kem, public, signKey)
}

// ListOf is [NewSignedKeyList] for serialized public keys, or for the ids of an issuer's keys ([TokenKEM]), one after
// the other. It does not check them.
func ListOf(kem task.KEM, keys []byte, signKey ed25519.PrivateKey) (*SignedKeyList, error) {
	size, err := publicSize(kem)
	if err != nil {
		return nil, err
	}
	all := hashAll(keys, size)
	root := all.tree.root()
	list := KeyList{Label: keysLabel, Version: task.Version, KEM: kem, Count: uint64(len(keys) / size), Root: root[:]}
	body, err := codec.Marshal(&list)
	if err != nil {
		return nil, err
	}
	return &SignedKeyList{List: body, Signature: signing.Sign(signKey, signing.KeyList, body), Keys: keys,
		Path: []byte{}, all: all}, nil
}

// Hash returns the SHA-256 of the list. A task contains this hash.
func (s *SignedKeyList) Hash() task.KeyListHash { return sha256.Sum256(s.List) }

// Bytes returns the msgpack form, for a list with all its keys.
func (s *SignedKeyList) Bytes() ([]byte, error) {
	return codec.Marshal(&struct{ List, Signature, Keys []byte }{s.List, s.Signature, s.Keys})
}

// Head returns the msgpack form of list and signature alone, which stands in a task's bundle.
func (s *SignedKeyList) Head() ([]byte, error) {
	return codec.Marshal(&struct{ List, Signature []byte }{s.List, s.Signature})
}

// ParseHead sets list and signature from what [SignedKeyList.Head] returns. They share memory with in.
func (s *SignedKeyList) ParseHead(in []byte) error {
	v := codec.NewView(in)
	v.ArrayOf(2)
	s.List, s.Signature = v.Bytes(), v.Bytes()
	return v.End()
}

// ParseKeyList parses a signed key list with all its keys from msgpack, without checking it against a party; see
// [PartyKeys]. The result shares memory with in.
func ParseKeyList(in []byte) (*SignedKeyList, error) {
	v := codec.NewView(in)
	v.ArrayOf(3)
	s := &SignedKeyList{List: v.Bytes(), Signature: v.Bytes(), Keys: v.Bytes(), Path: []byte{}}
	if err := v.End(); err != nil {
		return nil, fmt.Errorf("couldn't decode a list of keys: %w", err)
	}
	return s, nil
}

// KeySizes returns the size in bytes of what [SignedKeyList.Head] returns for a list of this many keys, and of the
// keys. For [TokenKEM], these are ids of an issuer's keys. It returns an error for an unknown KEM.
func KeySizes(kem task.KEM, count uint64) (head, keys uint64, err error) {
	size, err := publicSize(kem)
	const labels = 1 + 1 + len(keysLabel) + 1 + 1 // headers of list and label, label, version, header of the KEM
	list := labels + len(kem) + codec.UintSize(count) + bytesSize(sha256.Size)
	return uint64(1 + bytesSize(list) + bytesSize(ed25519.SignatureSize)), count * uint64(size), err
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
// that the task names for the party at hop. If the list has the keys of one block only, the other keys are nil.
func PartyKeys(t *task.Task, hop int, s *SignedKeyList) ([]*PublicKey, error) {
	keys := make([]*PublicKey, t.Epochs.Count)
	epochOf := make(map[KeyID]uint64, len(keys))
	err := s.each(fmt.Sprintf("the keys of hop %d", hop), t.Party(hop), t.KEM, t.Epochs.Count,
		func(epoch uint64, serialized []byte) error {
			key, err := ParsePublicKey(t.KEM, serialized)
			if err != nil {
				return fmt.Errorf("hop %d, epoch %d: %w", hop, epoch, err)
			}
			if before, seen := epochOf[key.id]; seen { // erasing one epoch's key would leave the other's copy
				return fmt.Errorf("couldn't accept the keys of hop %d: epochs %d and %d have the same", hop, before, epoch)
			}
			epochOf[key.id], keys[epoch] = epoch, key
			return nil
		})
	return keys, err
}

// TokenKEM stands in an issuer's key list instead of a KEM. The list's entries are the ids of the issuer's 2048-bit
// keys for blind RSA signatures ([RFC 9578], section 6.5: SHA-256 of the public key).
//
// [RFC 9578]: https://www.rfc-editor.org/rfc/rfc9578
const TokenKEM = "rsabssa-2048"

// IssuerKeys checks the key list of a task's issuer, as [PartyKeys] does, and returns the ids of the token keys by
// epoch. If the list has those of one block only, the other ids are zero.
func IssuerKeys(t *task.Task, s *SignedKeyList) ([]KeyID, error) {
	ids := make([]KeyID, t.Epochs.Count)
	epochOf := make(map[KeyID]uint64, len(ids))
	err := s.each("the keys of the issuer", t.Clients.Issuer, TokenKEM, t.Epochs.Count,
		func(epoch uint64, id []byte) error {
			ids[epoch] = KeyID(id)
			if before, seen := epochOf[ids[epoch]]; seen { // a token of one epoch would be valid in the other
				return fmt.Errorf("couldn't accept the keys of the issuer: epochs %d and %d have the same", before, epoch)
			}
			epochOf[ids[epoch]] = epoch
			return nil
		})
	return ids, err
}

// each checks a list's hash, signature and form against a party, and its keys against the root. Then it calls accept
// with each key that the list has, by epoch. what is the list's name in errors.
func (s *SignedKeyList) each(what string, party task.Party, kem task.KEM, count uint64,
	accept func(epoch uint64, key []byte) error) error {
	if s.Hash() != party.KeyList {
		return fmt.Errorf("couldn't accept %s: not the list the task names", what)
	}
	if !signing.Verify(party.SignKey[:], signing.KeyList, s.List, s.Signature) {
		return fmt.Errorf("couldn't accept %s: %w", what, signing.ErrSigner)
	}
	size, err := publicSize(kem)
	if err != nil {
		return err
	}
	var list KeyList
	if err := codec.Unmarshal(s.List, &list); err != nil {
		return fmt.Errorf("couldn't accept %s: %w", what, err)
	}
	if list.Label != keysLabel || list.Version != task.Version || list.KEM != kem || list.Count != count {
		return fmt.Errorf("couldn't accept %s: %d keys of kem %.20q, version %d; want %d keys of kem %s, version %d", what,
			list.Count, list.KEM, list.Version, count, kem, task.Version)
	}
	root, err := s.root(count, size)
	if err != nil {
		return fmt.Errorf("couldn't accept %s: %w", what, err)
	}
	if !bytes.Equal(root[:], list.Root) {
		return fmt.Errorf("couldn't accept %s: other keys, or in other places, than the party signed", what)
	}
	for i := range len(s.Keys) / size {
		if err := accept(s.First+uint64(i), s.Keys[i*size:(i+1)*size]); err != nil {
			return err
		}
	}
	return nil
}

// root returns the root that follows from the keys: all, or those of a block with their path.
func (s *SignedKeyList) root(count uint64, size int) (node, error) {
	if s.First == 0 && len(s.Path) == 0 && len(s.Keys) == int(count)*size {
		all := hashAll(s.Keys, size)
		if s.all == nil { // never changed later: others may read it by then
			s.all = all
		}
		return all.tree.root(), nil
	}
	if s.First >= count || s.First%BlockEpochs != 0 {
		return node{}, fmt.Errorf("keys from epoch %d on, want a multiple of %d below %d", s.First, BlockEpochs, count)
	}
	if want := int(min(BlockEpochs, count-s.First)) * size; len(s.Keys) != want {
		return node{}, fmt.Errorf("%d bytes of keys from epoch %d on, want %d", len(s.Keys), s.First, want)
	}
	return rootBy(leafOf(s.Keys), s.First/BlockEpochs, (count+BlockEpochs-1)/BlockEpochs, s.Path)
}
