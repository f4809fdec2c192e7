package keytree

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"slices"
	"strings"
	"sync"

	"github.com/doona-dp/doona/internal/durable"
	"github.com/doona-dp/doona/internal/mark"
)

// File is a tree in a file of mode 0600. Several processes may share the file, or have copies of
// it: each cuts for itself. It is safe for concurrent use.
type File struct {
	path string
	mark *mark.File
	mu   sync.Mutex // guards tree and its writing
	tree *Tree
}

type document struct {
	Kind  string            `json:"kind"`
	Nodes map[string]string `json:"nodes"` // values, unpadded base64url, by path in '0' and '1'
}

const kind = "doona secret"

// Open reads a file. Where there is none and create is set, it writes a new one; of several that
// do so at once, all get the same. Otherwise the error is [fs.ErrNotExist].
func Open(path string, create bool) (*File, error) {
	f := &File{path: path}
	tree, _, err := read(path)
	if errors.Is(err, fs.ErrNotExist) && create {
		var unlock func()
		if unlock, err = durable.Lock(path); err != nil {
			return nil, fmt.Errorf("couldn't lock the secret: %w", err)
		}
		defer unlock()
		if tree, _, err = read(path); errors.Is(err, fs.ErrNotExist) {
			tree = New()
			err = write(path, tree, nil)
		}
	}
	if err != nil {
		return nil, err
	}
	f.tree = tree
	f.mark, err = mark.Open(path)
	return f, err
}

// Mark returns the mark in the file.
func (f *File) Mark() *mark.File { return f.mark }

// read reads a tree, and the mark of its file. Its errors do not quote the file.
func read(path string) (*Tree, *mark.State, error) {
	in, err := durable.ReadPrivate(path)
	if err != nil {
		return nil, nil, fmt.Errorf("couldn't read the secret: %w", err)
	}
	in, state, err := mark.Split(in)
	if err != nil {
		return nil, nil, fmt.Errorf("couldn't read %s: %w", path, err)
	}
	tree, err := parse(path, in)
	return tree, state, err
}

func parse(path string, in []byte) (*Tree, error) {
	damaged := fmt.Errorf("couldn't read %s: not a %s file", path, kind)
	var d document
	if err := json.Unmarshal(in, &d); err != nil || d.Kind != kind || d.Nodes == nil {
		return nil, damaged
	}
	t := &Tree{map[string][]byte{}}
	for at, text := range d.Nodes {
		value, err := base64.RawURLEncoding.Strict().DecodeString(text)
		if err != nil || len(value) != Size || strings.Trim(at, "01") != "" {
			return nil, damaged
		}
		t.nodes[at] = value
	}
	all := slices.Sorted(maps.Keys(t.nodes)) // what is below a node follows it
	for i := range len(all) - 1 {
		// as where copies were merged: cut below, it would come back from above
		if strings.HasPrefix(all[i+1], all[i]) {
			return nil, damaged
		}
	}
	return t, nil
}

func write(path string, t *Tree, s *mark.State) error {
	d := document{kind, map[string]string{}}
	for at, value := range t.nodes {
		d.Nodes[at] = base64.RawURLEncoding.EncodeToString(value)
	}
	out, err := json.MarshalIndent(&d, "", " ")
	if err != nil {
		return fmt.Errorf("couldn't encode the secret: %w", err)
	}
	if err := durable.WriteFile(path, mark.Join(append(out, '\n'), s), 0o600); err != nil {
		return fmt.Errorf("couldn't write the secret: %w", err)
	}
	return nil
}

// Key is [Tree.Key].
func (f *File) Key(label []byte, purpose string) ([]byte, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.tree.Key(label, purpose)
}

// Cut cuts labels from the file, durably, and from memory. It starts from the file as it is now, so
// that it does not bring back what another process has cut. Where nothing is left of any label it
// writes nothing.
func (f *File) Cut(labels ...[]byte) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	left := false
	for _, label := range labels {
		left = left || f.tree.Has(label)
	}
	if !left {
		return nil
	}
	unlock, err := durable.Lock(f.path)
	if err != nil {
		return fmt.Errorf("couldn't lock the secret: %w", err)
	}
	defer unlock()
	tree, state, err := read(f.path)
	if err != nil {
		return err
	}
	changed := false
	for _, label := range labels {
		changed = tree.Cut(label) || changed
	}
	if changed {
		if err := write(f.path, tree, state); err != nil {
			return err
		}
	}
	f.tree.forget()
	f.tree = tree
	return nil
}
