// Package taskfile holds what surrounds a task outside the browser module: its JSON form, its
// hash, its owner's signature, and the bundle in which it is handed around.
package taskfile

import (
	"bytes"
	"crypto/ed25519"
	"crypto/sha256"
	"errors"
	"fmt"
	"os"

	"github.com/doona-dp/doona/internal/invalid"
	"github.com/doona-dp/doona/wire/codec"
	"github.com/doona-dp/doona/wire/onion"
	"github.com/doona-dp/doona/wire/task"
)

// ID returns a task's id: the SHA-256 of its canonical form.
func ID(t *task.Task) task.ID { return sha256.Sum256(t.Canonical()) }

// Bundle is a signed task with the key lists it names, the relays' in order, then the verifier's
// and, for a task with tokens, the issuer's: all a client needs. Its msgpack form is [task, owner, signature, [list
// …]].
type Bundle struct {
	Task      []byte   // Canonical form.
	Owner     []byte   // The owner's Ed25519 public key, 32 bytes.
	Signature []byte   // The owner's signature of Task.
	KeyLists  [][]byte // msgpack forms of the signed key lists.
}

// Open is a bundle whose signature, hashes and key lists have been checked.
type Open struct {
	*task.Task
	ID       task.ID
	Owner    task.SignKey
	KeyLists []*onion.SignedKeyList // By hop, the verifier's last.

	// For tasks with tokens, the issuer's key list and the ids of its keys by epoch.
	IssuerKeys *onion.SignedKeyList
	TokenKeys  []onion.KeyID
}

// Sign returns the bundle of a valid task, with the key lists in the order of [Bundle].
func Sign(t *task.Task, owner ed25519.PrivateKey, lists []*onion.SignedKeyList) (*Bundle, error) {
	if err := t.Validate(); err != nil {
		return nil, err
	}
	b := &Bundle{Task: t.Canonical(), Owner: owner.Public().(ed25519.PublicKey), KeyLists: [][]byte{}}
	b.Signature = onion.Sign(owner, onion.SignTask, b.Task)
	for _, list := range lists {
		raw, err := list.Bytes()
		if err != nil {
			return nil, err
		}
		b.KeyLists = append(b.KeyLists, raw)
	}
	_, err := b.Open(nil)
	return b, err
}

// Open checks a bundle: the signature of its owner (who must be the given one unless that is
// nil), the task, and that every key list is the one the task names, signed by its party. It refuses
// what no party supports yet: [task.Task.CheckSupported].
func (b *Bundle) Open(owner *task.SignKey) (*Open, error) { return b.open(owner, true) }

// open is Open, or without a look at the key lists.
func (b *Bundle) open(owner *task.SignKey, keys bool) (*Open, error) {
	if len(b.Owner) != 32 {
		return nil, fmt.Errorf("couldn't accept the task: an owner's key of %d bytes, want 32", len(b.Owner))
	}
	signer := task.SignKey(b.Owner)
	if owner != nil && signer != *owner {
		return nil, fmt.Errorf("couldn't accept the task: its owner is %s, want %s", FormatKey(signer),
			FormatKey(*owner))
	}
	if !onion.Verify(b.Owner, onion.SignTask, b.Task, b.Signature) {
		return nil, fmt.Errorf("couldn't accept the task: %w", onion.ErrSigner)
	}
	t, err := task.Parse(b.Task)
	if err != nil {
		return nil, err
	}
	if err := t.CheckSupported(); err != nil {
		return nil, err
	}
	if t.Clients.Kind == task.ClientToken && signer == t.Clients.Issuer.SignKey {
		return nil, invalid.Field("clients.issuer", "the owner's key",
			"an issuer that is not the owner: who issues tokens can mint clients")
	}
	open := &Open{Task: t, ID: sha256.Sum256(b.Task), Owner: signer}
	if keys {
		err = b.openKeys(open)
	}
	if err != nil {
		return nil, err
	}
	return open, nil
}

// openKeys checks the key lists.
func (b *Bundle) openKeys(open *Open) error {
	t, lists := open.Task, open.VerifierHop()+1
	if t.Clients.Kind == task.ClientToken {
		lists++
	}
	if len(b.KeyLists) != lists {
		return fmt.Errorf("couldn't accept the task: %d key lists, want %d", len(b.KeyLists), lists)
	}
	for hop, raw := range b.KeyLists {
		list, err := onion.ParseKeyList(raw)
		if err != nil {
			return err
		}
		if hop > t.VerifierHop() {
			if open.TokenKeys, err = onion.IssuerKeys(t, list); err != nil {
				return err
			}
			open.IssuerKeys = list
			continue
		}
		if _, err := onion.PartyKeys(t, hop, list); err != nil {
			return err
		}
		open.KeyLists = append(open.KeyLists, list)
	}
	return nil
}

// Bytes returns the msgpack form.
func (b *Bundle) Bytes() ([]byte, error) { return codec.Marshal(b) }

// ParseBundle reads the msgpack form and nothing else; see [Bundle.Open].
func ParseBundle(in []byte) (*Bundle, error) {
	if isJSON(in) {
		return nil, errors.New("couldn't read the task: a JSON document, want the signed bundle")
	}
	var b Bundle
	if err := codec.Unmarshal(in, &b); err != nil {
		return nil, err
	}
	return &b, nil
}

// Load reads a task from a file: a JSON document, for which open is nil, or a bundle, whose checks
// it makes.
func Load(path string) (t *task.Task, open *Open, err error) {
	in, err := os.ReadFile(path)
	if err != nil {
		return nil, nil, fmt.Errorf("couldn't read the task: %w", err)
	}
	if isJSON(in) {
		t, _, err := ParseJSON(in)
		return t, nil, err
	}
	if open, err = ParseOpen(in); err != nil {
		return nil, nil, fmt.Errorf("%s: %w", path, err)
	}
	return open.Task, open, nil
}

// LoadBundle reads a bundle from a file and checks it.
func LoadBundle(path string) (*Open, error) {
	in, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("couldn't read the task: %w", err)
	}
	open, err := ParseOpen(in)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return open, nil
}

func isJSON(in []byte) bool { return bytes.HasPrefix(bytes.TrimLeft(in, " \t\r\n"), []byte("{")) }

func ParseOpen(in []byte) (*Open, error) {
	b, err := ParseBundle(in)
	if err != nil {
		return nil, err
	}
	return b.Open(nil)
}
