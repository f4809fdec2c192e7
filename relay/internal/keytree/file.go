package keytree

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"sync"

	"github.com/doona-dp/doona/internal/durable"
	"github.com/doona-dp/doona/internal/rollback"
	"github.com/doona-dp/doona/internal/secret"
)

// File is a key tree in a file of mode 0600. Several processes may share the file or have copies of it; each cuts by
// itself. File is safe for concurrent use.
type File struct {
	mark    *rollback.MarkFile
	cutting sync.Mutex   // one Cut at a time
	mu      sync.RWMutex // guards tree, which only Cut replaces
	tree    *Tree
}

type document struct {
	Kind string      `json:"kind"`
	Tree secret.Text `json:"tree"` // see [Tree.encode]
}

const kind = "doona secret"

// Open reads a key tree's file. If there is none, it returns [fs.ErrNotExist].
func Open(path string) (*File, error) { return open(path, read) }

// OpenOrCreate reads a key tree's file, and creates it if there is none. Concurrent callers all get the same tree.
func OpenOrCreate(path string) (*File, error) { return open(path, readOrCreate) }

func open(path string, read func(string) (*Tree, error)) (*File, error) {
	tree, err := read(path)
	if err != nil {
		return nil, err
	}
	f := &File{tree: tree}
	f.mark, err = rollback.OpenMark(path)
	return f, err
}

func readOrCreate(path string) (*Tree, error) {
	tree, err := read(path)
	if !errors.Is(err, fs.ErrNotExist) {
		return tree, err
	}
	unlock, err := durable.Lock(path)
	if err != nil {
		return nil, fmt.Errorf("couldn't lock the secret: %w", err)
	}
	defer unlock()
	if tree, err = read(path); errors.Is(err, fs.ErrNotExist) {
		tree = New()
		document := tree.document()
		if err = durable.WriteFile(path, document, 0o600); err != nil {
			err = fmt.Errorf("couldn't write the secret: %w", err)
		}
		clear(document)
	}
	return tree, err
}

// Mark returns the rollback mark in the file.
func (f *File) Mark() *rollback.MarkFile { return f.mark }

// read reads a tree. Its errors do not quote the file, which holds secrets.
func read(path string) (*Tree, error) {
	in, err := durable.ReadPrivate(path)
	if err != nil {
		return nil, fmt.Errorf("couldn't read the secret: %w", err)
	}
	defer clear(in)
	text, _, err := rollback.SplitFile(in)
	if err != nil {
		return nil, fmt.Errorf("couldn't read %s: %w", path, err)
	}
	t, err := parse(text)
	if err != nil {
		return nil, fmt.Errorf("couldn't read %s: %w", path, err)
	}
	return t, nil
}

var errDamaged = fmt.Errorf("not a %s file", kind)

// parse reads a document. Only the returned tree holds copies of key material.
func parse(in []byte) (*Tree, error) {
	var d document
	err := json.Unmarshal(in, &d)
	if d.Tree.Bytes == nil {
		return nil, errDamaged
	}
	defer d.Tree.Clear()
	var root *node
	whole := false
	d.Tree.Use(func(raw []byte) {
		var rest []byte
		root, rest, whole = decode(raw, maxLabel)
		whole = whole && len(rest) == 0
	})
	if t := (&Tree{root}); err != nil || d.Kind != kind || !whole {
		t.clear()
		return nil, errDamaged
	}
	return &Tree{root}, nil
}

func (t *Tree) clear() { forget(t.root.list(nil)) }

func forget(nodes []*node) {
	for _, n := range nodes {
		clear(n.value[:])
	}
}

// document returns the JSON document of a tree. The caller clears it.
func (t *Tree) document() []byte {
	raw := t.root.encode(make([]byte, 0, t.root.size()))
	head, tail := "{\n \"kind\": \""+kind+"\",\n \"tree\": \"", "\"\n}\n"
	out := make([]byte, 0, len(head)+secret.TextLen(len(raw))+len(tail))
	out = secret.AppendText(append(out, head...), raw)
	clear(raw)
	return append(out, tail...)
}

// The first byte of an encoded node.
const (
	nothing = iota // no subtree: it was cut
	leaf           // followed by the node's value
	inner          // followed by the left and the right child, of which at least one is not cut
)

// maxLabel is the maximum depth of a tree in a file, in bits of a label.
const maxLabel = 1024

// encode appends a node and its subtree.
func (n *node) encode(to []byte) []byte {
	switch {
	case n == nil:
		return append(to, nothing)
	case n.value != nil:
		return append(append(to, leaf), n.value[:]...)
	}
	return n.child[1].encode(n.child[0].encode(append(to, inner)))
}

func (n *node) size() int {
	switch {
	case n == nil:
		return 1
	case n.value != nil:
		return 1 + Size
	}
	return 1 + n.child[0].size() + n.child[1].size()
}

// decode reads what encode has written: a node with at most levels levels below it. It returns the bytes that follow.
func decode(in []byte, levels int) (n *node, rest []byte, ok bool) {
	if len(in) == 0 {
		return nil, nil, false
	}
	kind, in := in[0], in[1:]
	switch {
	case kind == nothing:
		return nil, in, true
	case kind == leaf && len(in) >= Size:
		found := new(nodeValue)
		copy(found[:], in)
		return &node{value: found}, in[Size:], true
	case kind != inner || levels == 0:
		return nil, nil, false
	}
	n = new(node)
	for i := range n.child {
		if n.child[i], in, ok = decode(in, levels-1); !ok {
			return nil, nil, false
		}
	}
	return n, in, n.child != [2]*node{}
}

// Key calls [Tree.Key].
func (f *File) Key(label Label, purpose string) ([]byte, error) {
	f.mu.RLock()
	defer f.mu.RUnlock()
	return f.tree.Key(label, purpose)
}

// Has calls [Tree.Has].
func (f *File) Has(label Label) bool {
	f.mu.RLock()
	defer f.mu.RUnlock()
	return f.tree.Has(label)
}

// Cut destroys the keys of labels in the file, durably, and in memory. It starts from the current file, so that keys
// that another process has cut do not return. If all labels are already cut, it writes nothing.
func (f *File) Cut(labels ...Label) error {
	f.cutting.Lock()
	defer f.cutting.Unlock()
	if !slices.ContainsFunc(labels, f.Has) {
		return nil
	}
	var next *Tree
	var gone []*node
	err := f.mark.Edit(func(document []byte) ([]byte, error) {
		if document != nil { // another process has written the file, or this is the first Cut
			now, err := parse(document)
			if err != nil {
				return nil, err
			}
			f.replace(now, f.tree.root.list(nil))
		}
		if next, gone = f.tree.cut(labels...); next.root == f.tree.root {
			return nil, nil
		}
		return next.document(), nil
	})
	if err != nil {
		if next != nil { // clear the values that only next has
			forget(f.tree.lacks(append(gone, next.root.list(nil)...)))
		}
		return fmt.Errorf("couldn't destroy keys in the secret: %w", err)
	}
	f.replace(next, gone)
	secret.ClearRegisters()
	return nil
}

// lacks returns those of the nodes that the tree does not have.
func (t *Tree) lacks(nodes []*node) []*node {
	has := map[*node]bool{}
	for _, n := range t.root.list(nil) {
		has[n] = true
	}
	return slices.DeleteFunc(nodes, func(n *node) bool { return has[n] })
}

// replace makes by the current tree and overwrites the values in gone.
func (f *File) replace(by *Tree, gone []*node) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.tree = by
	forget(gone)
}
