package onion

import (
	"crypto/sha256"
	"fmt"
	"math/bits"
	"slices"
)

// BlockEpochs is the number of epochs whose keys a client fetches at a time. Their keys are one leaf of the tree, so
// that a client that comes once an epoch asks for keys in every eighth only, and needs one path for all of them.
const BlockEpochs = 8

// node is a hash in a Merkle tree.
type node [sha256.Size]byte

// tree is the leaves of a Merkle tree as in [RFC 9162], section 2.1: here by their hashes.
//
// [RFC 9162]: https://www.rfc-editor.org/rfc/rfc9162#section-2.1
type tree []node

// allKeys is the tree of all keys of a party.
type allKeys struct {
	tree  tree
	block int // bytes of a leaf's keys
}

// hashAll returns the tree of a party's keys, each of size bytes. A leaf is the keys of [BlockEpochs] epochs, one after
// the other; the last leaf may have fewer.
func hashAll(keys []byte, size int) *allKeys {
	all := &allKeys{block: BlockEpochs * size}
	for block := range slices.Chunk(keys, all.block) {
		all.tree = append(all.tree, leafOf(block))
	}
	return all
}

func leafOf(keys []byte) node { return sha256.Sum256(append([]byte{0}, keys...)) }

func parentOf(left, right node) node {
	return sha256.Sum256(append(append([]byte{1}, left[:]...), right[:]...))
}

// split returns how many of n leaves, n > 1, are below the root's left child: the largest power of two below n.
func split(n int) int { return 1 << (bits.Len(uint(n-1)) - 1) }

func (t tree) root() node {
	switch len(t) {
	case 0:
		return sha256.Sum256(nil)
	case 1:
		return t[0]
	}
	k := split(len(t))
	return parentOf(t[:k].root(), t[k:].root())
}

// path returns the nodes that prove leaf i, from the leaf up.
func (t tree) path(i uint64) []byte {
	if len(t) <= 1 {
		return []byte{}
	}
	k := split(len(t))
	if i < uint64(k) {
		right := t[k:].root()
		return append(t[:k].path(i), right[:]...)
	}
	left := t[:k].root()
	return append(t[k:].path(i-uint64(k)), left[:]...)
}

// rootBy returns the root that follows from leaf i of n, i < n, and its path ([RFC 9162], section 2.1.3.2).
//
// [RFC 9162]: https://www.rfc-editor.org/rfc/rfc9162#section-2.1.3.2
func rootBy(leaf node, i, n uint64, path []byte) (node, error) {
	hash, last, rest := leaf, n-1, path
	for ; last > 0 && len(rest) >= len(hash); rest = rest[len(hash):] {
		sibling := node(rest)
		if i%2 == 1 || i == last {
			hash = parentOf(sibling, hash)
			for ; i%2 == 0 && i > 0; i, last = i/2, last/2 {
			}
		} else {
			hash = parentOf(hash, sibling)
		}
		i, last = i/2, last/2
	}
	if last > 0 || len(rest) > 0 {
		return hash, fmt.Errorf("a path of %d bytes, which isn't the one of its place among %d blocks", len(path), n)
	}
	return hash, nil
}

// Block returns a list with all its keys as a list with those of the block that contains an epoch. The list must come
// from [ListOf], or have passed [PartyKeys] or [IssuerKeys].
func (s *SignedKeyList) Block(epoch uint64) *SignedKeyList {
	i := epoch / BlockEpochs
	from := int(i) * s.all.block
	return &SignedKeyList{List: s.List, Signature: s.Signature, First: i * BlockEpochs, Path: s.all.tree.path(i),
		Keys: s.Keys[from:min(from+s.all.block, len(s.Keys))]}
}
