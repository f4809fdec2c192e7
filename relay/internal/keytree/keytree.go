// Package keytree makes keys for labels from one secret, such that single keys can be destroyed
// while all others live: a puncturable pseudorandom function, by the tree of [GGM86] from which
// leaves and branches are cut, as in [BW13] and [KPTZ13].
//
// Every node of a binary tree has a value: that of the root is random, that of a child follows from
// its parent's,
//
//	value(path ‖ bit) = HKDF-Expand(value(path), "bit" ‖ bit, 32)             (1)
//
// and the key of a label is HKDF-Expand(value(bits of the label), purpose, 32). A [Tree] holds the
// values of some nodes, at first of the root alone. To cut a label it replaces the node above it by
// the siblings of the path from there down to the label, so that the value of every other node
// still follows and that of the label, and of what is below it, does not.
//
// What it promises: who has a tree learns of the keys that were cut from it before nothing, if
// HMAC-SHA256 is a pseudorandom function. Trees that began as copies agree on every key that neither
// has cut, whatever else each has cut and in whatever order. A tree has at most one node per bit and
// label cut, and labels that are cut in order share almost all of them.
//
// What it does not: keys that were taken out before live on in the memory of who took them; and a
// [File] cannot make a file system, a solid-state disk or a backup forget what it held.
//
// [GGM86]: https://doi.org/10.1145/6490.6503
// [BW13]: https://eprint.iacr.org/2013/352
// [KPTZ13]: https://eprint.iacr.org/2013/379
package keytree

import (
	"crypto/hkdf"
	"crypto/rand"
	"crypto/sha256"
	"errors"
	"strings"
)

// Size is the length of values and keys in bytes.
const Size = sha256.Size

// ErrCut is returned for a label that has been cut, by itself or with what is above it.
var ErrCut = errors.New("the key has been destroyed")

// Tree holds what is left of a tree of keys. No node is above another.
type Tree struct {
	nodes map[string][]byte // values by path, a string of '0' and '1'
}

// New returns a whole tree with a random root.
func New() *Tree {
	root := make([]byte, Size)
	rand.Read(root)
	return &Tree{map[string][]byte{"": root}}
}

// path returns the bits of a label, the highest of each byte first.
func path(label []byte) string {
	bits := make([]byte, 0, 8*len(label))
	for _, b := range label {
		for shift := 7; shift >= 0; shift-- {
			bits = append(bits, '0'+b>>shift&1)
		}
	}
	return string(bits)
}

// above returns the node at or above a path, and whether there is one.
func (t *Tree) above(to string) (from string, ok bool) {
	for n := len(to); n >= 0; n-- {
		if t.nodes[to[:n]] != nil {
			return to[:n], true
		}
	}
	return "", false
}

// child returns the value of a node's child. (1)
func child(value []byte, bit byte) []byte { return expand(value, "bit"+string(bit)) }

func expand(value []byte, info string) []byte {
	out, err := hkdf.Expand(sha256.New, value, info, Size)
	if err != nil {
		panic(err) // only for lengths that hkdf cannot make
	}
	return out
}

// Key returns the key of a label for a purpose, or [ErrCut]. Of two labels that are used none may
// begin with the other, or who has the tree from which one was cut could lack, or have, the other.
func (t *Tree) Key(label []byte, purpose string) ([]byte, error) {
	to := path(label)
	from, ok := t.above(to)
	if !ok {
		return nil, ErrCut
	}
	value := t.nodes[from]
	for _, bit := range []byte(to[len(from):]) {
		value = child(value, bit)
	}
	return expand(value, "key "+purpose), nil
}

// Has says whether anything is left at or below a label.
func (t *Tree) Has(label []byte) bool {
	to := path(label)
	if _, ok := t.above(to); ok {
		return true
	}
	for at := range t.nodes {
		if strings.HasPrefix(at, to) {
			return true
		}
	}
	return false
}

// Cut destroys the keys of a label and of all labels that begin with it. It says whether there was
// anything left to cut.
func (t *Tree) Cut(label []byte) (changed bool) {
	to := path(label)
	from, ok := t.above(to)
	if !ok {
		for at := range t.nodes {
			if strings.HasPrefix(at, to) {
				t.drop(at)
				changed = true
			}
		}
		return changed
	}
	value := t.nodes[from]
	for n := len(from); n < len(to); n++ {
		t.nodes[to[:n]+string('1'-to[n]+'0')] = child(value, '1'-to[n]+'0')
		value = child(value, to[n])
	}
	t.drop(from)
	return true
}

func (t *Tree) drop(at string) {
	clear(t.nodes[at])
	delete(t.nodes, at)
}

// forget overwrites the values of a tree that is replaced.
func (t *Tree) forget() {
	for _, value := range t.nodes {
		clear(value)
	}
}
