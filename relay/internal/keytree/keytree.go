// Package keytree derives keys for labels from one secret. Single keys can be destroyed while all others remain
// derivable. This is a puncturable pseudorandom function: the tree of [GGM86], from which leaves and branches are cut
// as in [BW13] and [KPTZ13].
//
// Every node of a binary tree has a value. The root's value is random. A child's value follows from its parent's:
//
//	value(path ‖ bit) = HKDF-Expand(value(path), "bit" ‖ bit, 32)             (1)
//
// A label is a path from the root. Its key is HKDF-Expand(value(label), "key " ‖ purpose, 32). A [Tree] holds the
// values of some nodes, at first only of the root. To cut a label, it replaces the held node above the label by the
// siblings of all nodes on the path down to the label. From these follow all values below the old node, except those of
// the label and its subtree.
//
// Guarantee: an attacker who gets a tree learns nothing about keys that were cut from it before, if HMAC-SHA256 is a
// pseudorandom function. Trees that began as copies agree on every key that none of them has cut, whatever others each
// has cut. A tree has at most one node per bit of each label that was cut. Labels that are cut in ascending order share
// almost all of these nodes.
//
// Limits: a key that was derived before its label was cut lives until its holder clears it. A [File] cannot make a file
// system, a solid-state disk or a backup forget what it held.
//
// [GGM86]: https://doi.org/10.1145/6490.6503 [BW13]: https://eprint.iacr.org/2013/352 [KPTZ13]:
// https://eprint.iacr.org/2013/379
package keytree

import (
	"crypto/rand"
	"crypto/sha256"
	"errors"
	"math/bits"
	"strings"

	"github.com/doona-dp/doona/internal/secret"
)

// Size is the length of values and keys in bytes.
const Size = sha256.Size

// ErrCut means that a label, or a label that it begins with, was cut.
var ErrCut = errors.New("the key has been destroyed")

// Label is the path from the root to a node: a string of '0' and '1'. Cutting a longer label leaves more nodes.
type Label string

// OfBytes returns the bits of b, the highest bit of each byte first.
func OfBytes(b []byte) Label {
	out := make([]byte, 0, 8*len(b))
	for _, b := range b {
		out = appendBits(out, uint64(b), 8)
	}
	return Label(out)
}

// OfNumber returns a path that is short for small numbers: Elias's γ code of n+1, with the leading zeros replaced by
// ones and the first one by zero. No number's path is the beginning of another's. Greater numbers are further right in
// the tree.
func OfNumber(n uint32) Label {
	behind := bits.Len64(uint64(n)+1) - 1
	out := append([]byte(strings.Repeat("1", behind)), '0')
	return Label(appendBits(out, uint64(n)+1, behind))
}

// appendBits appends the lowest count bits of n, the highest of these first.
func appendBits(to []byte, n uint64, count int) []byte {
	for shift := count - 1; shift >= 0; shift-- {
		to = append(to, '0'+byte(n>>shift&1))
	}
	return to
}

// Tree holds the nodes of a key tree that remain after cuts.
type Tree struct {
	root *node // nil: all keys are cut
}

// node has either a value or at least one child. It never changes, except that forget overwrites its value.
type node struct {
	value *nodeValue
	child [2]*node
}

// New returns a tree with a random root, from which all keys can be derived.
func New() *Tree {
	n := &node{value: new(nodeValue)}
	rand.Read(n.value[:])
	return &Tree{n}
}

type nodeValue [Size]byte

// down returns the child for a bit ('0' or '1'); nil if its subtree was cut.
func (n *node) down(bit byte) *node {
	if n.value != nil {
		child := &node{value: new(nodeValue)}
		secret.DoSmall(func() { n.value.expand(child.value, infoBit, bit) }) // (1)
		return child
	}
	return n.child[bit-'0']
}

// Prefixes of HKDF-Expand's parameter info.
const (
	infoBit = "bit"
	infoKey = "key "
)

// expand is HKDF-Expand with SHA-256 for one block. Unlike crypto/hkdf, it leaves no copies of either value in memory
// if it runs within [secret.Do].
func (v *nodeValue) expand(to *nodeValue, info string, rest ...byte) {
	secret.HMAC(to[:], v[:], []byte(info), rest, []byte{1})
}

// Key returns the key of a label for a purpose, or [ErrCut]. The caller clears it. No label in use may be the beginning
// of another: cutting either would destroy the key of the shorter one.
func (t *Tree) Key(label Label, purpose string) ([]byte, error) {
	at := t.root
	for len(label) > 0 && at != nil && at.value == nil {
		at, label = at.child[label[0]-'0'], label[1:]
	}
	if at == nil || at.value == nil {
		return nil, ErrCut
	}
	return at.value.key(label, purpose), nil
}

// key returns the key of a label, given as a path from the node with this value.
func (v *nodeValue) key(label Label, purpose string) []byte {
	now, next, key := new(nodeValue), new(nodeValue), new(nodeValue)
	defer clear(now[:])
	defer clear(next[:])
	copy(now[:], v[:])
	secret.DoSmall(func() {
		for i := range len(label) {
			now.expand(next, infoBit, label[i])
			copy(now[:], next[:])
		}
		now.expand(key, infoKey, []byte(purpose)...)
	})
	return key[:]
}

// Has reports whether the key of the label, or of any longer label that begins with it, remains.
func (t *Tree) Has(label Label) bool {
	at := t.root
	for i := 0; i < len(label) && at != nil && at.value == nil; i++ {
		at = at.child[label[i]-'0']
	}
	return at != nil
}

// cut returns a new tree without the keys of labels and of all labels that begin with them. gone are the nodes with
// values that only the old tree has. The trees share the other nodes.
func (t *Tree) cut(labels ...Label) (left *Tree, gone []*node) {
	root := t.root
	for _, label := range labels {
		root, gone = root.cut(label, gone)
	}
	return &Tree{root}, gone
}

// cut returns a node without the subtree at label, given as a path from the node; nil if nothing remains. It appends
// the nodes that are gone.
func (n *node) cut(label Label, gone []*node) (*node, []*node) {
	if n == nil || label == "" {
		return nil, n.list(gone)
	}
	bit := label[0] - '0'
	out := &node{child: n.child}
	if n.value != nil {
		gone = append(gone, n)
		out.child = [2]*node{n.down('0'), n.down('1')}
	}
	out.child[bit], gone = out.child[bit].cut(label[1:], gone)
	switch {
	case out.child == [2]*node{}:
		return nil, gone
	case n.value == nil && out.child == n.child: // the label was cut before
		return n, gone
	}
	return out, gone
}

// list appends the node and all nodes below it that have values.
func (n *node) list(to []*node) []*node {
	switch {
	case n == nil:
		return to
	case n.value != nil:
		return append(to, n)
	}
	return n.child[1].list(n.child[0].list(to))
}
