// Package keyfile keeps the private keys of owners, relays, verifiers and issuers in files of mode
// 0600: Ed25519 signing keys, and HPKE or RSA keys, one per epoch, that can be erased one by one.
package keyfile

import (
	"crypto/ed25519"
	"crypto/rand"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"slices"
	"sync"

	"github.com/doona-dp/doona/internal/durable"
	"github.com/doona-dp/doona/internal/mark"
	"github.com/doona-dp/doona/wire/onion"
	"github.com/doona-dp/doona/wire/task"
	"github.com/doona-dp/doona/wire/taskfile"
)

// The kinds of key files.
const (
	kindSign = "doona sign key"
	kindHPKE = "doona hpke keys"
)

// ErrErased is returned for an epoch whose private key is gone.
var ErrErased = errors.New("the key of this epoch has been erased")

type signFile struct {
	Kind    string `json:"kind"`
	Public  string `json:"public"`
	Private string `json:"private"` // seed, unpadded base64url
}

type epochFile struct {
	Kind  string     `json:"kind"`
	KEM   task.KEM   `json:"kem,omitempty"`   // of HPKE keys
	Store string     `json:"store,omitempty"` // of keys in use: see [HPKE.Bind] and [RSA.SetStore]
	Keys  []epochKey `json:"keys"`

	mark *mark.State // nil where there is none
}

type epochKey struct {
	Epoch   uint64 `json:"epoch"`
	Private string `json:"private"`
}

// NewSign writes a new Ed25519 key to a file that must not exist.
func NewSign(path string) (ed25519.PrivateKey, error) {
	public, private, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("couldn't generate key: %w", err)
	}
	return private, create(path, &signFile{kindSign, taskfile.FormatKey(task.SignKey(public)), encode(private.Seed())})
}

// LoadSign reads an Ed25519 key.
func LoadSign(path string) (ed25519.PrivateKey, error) {
	var f signFile
	if _, err := load(path, &f); err != nil {
		return nil, err
	}
	seed, err := decode(f.Private)
	if f.Kind != kindSign || err != nil || len(seed) != ed25519.SeedSize {
		return nil, fmt.Errorf("couldn't read %s: not a %s file", path, kindSign)
	}
	key := ed25519.NewKeyFromSeed(seed)
	if taskfile.FormatKey(task.SignKey(key.Public().(ed25519.PublicKey))) != f.Public {
		return nil, fmt.Errorf("couldn't read %s: its private key is not that of %s", path, f.Public)
	}
	return key, nil
}

// NewHPKE writes one new HPKE key per epoch to a file that must not exist and returns their
// public list, signed by the party's signing key.
func NewHPKE(path string, kem task.KEM, epochs uint64, sign ed25519.PrivateKey) (*onion.SignedKeyList, error) {
	if err := taskfile.CheckListSize(kem, epochs); err != nil { // no bundle has room for them
		return nil, err
	}
	f := epochFile{Kind: kindHPKE, KEM: kem}
	keys := make([]*onion.PrivateKey, epochs)
	for epoch := range keys {
		key, err := onion.GenerateKey(kem)
		if err != nil {
			return nil, err
		}
		private, err := key.Bytes()
		if err != nil {
			return nil, fmt.Errorf("couldn't encode key: %w", err)
		}
		keys[epoch] = key
		f.Keys = append(f.Keys, epochKey{uint64(epoch), encode(private)})
	}
	list, err := onion.NewSignedKeyList(kem, keys, sign)
	if err != nil {
		return nil, err
	}
	return list, create(path, &f)
}

// epochKeys is a loaded file of keys, one per epoch.
type epochKeys[K any] struct {
	path   string
	kind   string
	parse  func(kem task.KEM, private []byte) (*K, error)
	mu     sync.Mutex // guards file and parsed
	file   epochFile
	parsed map[uint64]*K
}

func newEpochKeys[K any](path, kind string, parse func(task.KEM, []byte) (*K, error)) (*epochKeys[K], error) {
	file, err := loadEpochs(path, kind)
	return &epochKeys[K]{path: path, kind: kind, parse: parse, file: file, parsed: map[uint64]*K{}}, err
}

func loadEpochs(path, kind string) (f epochFile, err error) {
	state, err := load(path, &f)
	if err != nil {
		return f, err
	}
	f.mark = state
	if f.Kind != kind {
		return f, fmt.Errorf("couldn't read %s: not a %s file", path, kind)
	}
	return f, nil
}

// Key returns the private key of an epoch, or [ErrErased].
func (h *epochKeys[K]) Key(epoch uint64) (*K, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.key(epoch)
}

// key is Key; the caller holds mu.
func (h *epochKeys[K]) key(epoch uint64) (*K, error) {
	if key := h.parsed[epoch]; key != nil {
		return key, nil
	}
	for _, k := range h.file.Keys {
		if k.Epoch != epoch {
			continue
		}
		raw, err := decode(k.Private)
		if err != nil {
			return nil, fmt.Errorf("couldn't read %s: epoch %d: %w", h.path, epoch, err)
		}
		key, err := h.parse(h.file.KEM, raw)
		if err != nil {
			return nil, fmt.Errorf("couldn't read %s: epoch %d: %w", h.path, epoch, err)
		}
		h.parsed[epoch] = key
		return key, nil
	}
	return nil, ErrErased
}

// Erase removes the private key of an epoch from the file, durably; erasing twice is no error.
// It starts from the file as it is now, and under the file's lock, so that no process brings back
// what another erased. What the file system or a backup keeps of the old file is beyond its reach.
func (h *epochKeys[K]) Erase(epoch uint64) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	f, unlock, err := h.current()
	if err != nil {
		return err
	}
	defer unlock()
	all := len(f.Keys)
	f.Keys = slices.DeleteFunc(f.Keys, func(k epochKey) bool { return k.Epoch == epoch })
	if len(f.Keys) < all {
		if err := f.replace(h.path); err != nil {
			return err
		}
	}
	h.file = f
	delete(h.parsed, epoch)
	return nil
}

// current locks the file against other processes, until unlock, and returns what it holds now.
func (h *epochKeys[K]) current() (f epochFile, unlock func(), err error) {
	if unlock, err = durable.Lock(h.path); err != nil {
		return f, nil, fmt.Errorf("couldn't lock key: %w", err)
	}
	if f, err = loadEpochs(h.path, h.kind); err != nil {
		unlock()
	}
	return f, unlock, err
}

// Mark opens the mark in the file: how far the store has come that is used with the keys.
func (h *epochKeys[K]) Mark() (*mark.File, error) { return mark.Open(h.path) }

// HPKE is a loaded file of HPKE keys. It is safe for concurrent use.
type HPKE struct{ *epochKeys[onion.PrivateKey] }

// LoadHPKE reads a file of HPKE keys. [HPKE.Check] tells whether they are those of a task.
func LoadHPKE(path string) (*HPKE, error) {
	keys, err := newEpochKeys(path, kindHPKE, onion.ParsePrivateKey)
	return &HPKE{keys}, err
}

// ErrStore is returned for keys that have been used with another store.
var ErrStore = errors.New("its keys have been used with another store, which alone knows what they have opened")

// Bind ties the file to the store that remembers what its keys have opened, durably, or is [ErrStore]
// where it is tied to another: beside a store that remembers nothing, every ciphertext could be
// opened once more.
func (h *HPKE) Bind(store string) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.file.Store == store {
		return nil
	}
	f, unlock, err := h.current()
	if err != nil {
		return err
	}
	defer unlock()
	if f.Store == "" {
		f.Store = store
		if err := f.replace(h.path); err != nil {
			return err
		}
	}
	if f.Store != store {
		return fmt.Errorf("couldn't use %s: %w", h.path, ErrStore)
	}
	h.file = f
	return nil
}

// Rebind ties the file to a store, whatever it was tied to: by the operator's word, when the keys of all that
// was opened beside another are erased.
func (h *HPKE) Rebind(store string) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	f, unlock, err := h.current()
	if err != nil {
		return err
	}
	defer unlock()
	if f.Store = store; h.file.Store != store {
		if err := f.replace(h.path); err != nil {
			return err
		}
	}
	h.file = f
	return nil
}

// CheckStore is [ErrStore] where [HPKE.Bind] would be.
func (h *HPKE) CheckStore(store string) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.file.Store != "" && h.file.Store != store {
		return fmt.Errorf("couldn't use %s: %w", h.path, ErrStore)
	}
	return nil
}

// Check is an error unless the file holds keys for a task: list is the key list of one of its
// parties, and the public half of every key that is left in the file stands in it.
func (h *HPKE) Check(t *task.Task, list *onion.SignedKeyList) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	hop := 0
	for hop < t.VerifierHop() && t.Party(hop).KeyList != list.Hash() {
		hop++
	}
	public, err := onion.PartyKeys(t, hop, list)
	if err != nil {
		return fmt.Errorf("couldn't use %s: %w", h.path, err)
	}
	if h.file.KEM != t.KEM {
		return fmt.Errorf("couldn't use %s: its keys are for kem %s, the task wants %s", h.path, h.file.KEM, t.KEM)
	}
	for _, k := range h.file.Keys {
		key, err := h.key(k.Epoch)
		if err != nil {
			return err
		}
		if k.Epoch >= t.Epochs.Count || key.Public().ID() != public[k.Epoch].ID() {
			return fmt.Errorf("couldn't use %s: its key of epoch %d is not the one the task names", h.path, k.Epoch)
		}
	}
	return nil
}

func encode(private []byte) string { return base64.RawURLEncoding.EncodeToString(private) }

func decode(private string) ([]byte, error) {
	return base64.RawURLEncoding.Strict().DecodeString(private)
}

// load reads a JSON file into v, and the mark that stands behind it. Its errors do not quote the file.
func load(path string, v any) (*mark.State, error) {
	in, err := durable.ReadPrivate(path)
	if err != nil {
		return nil, fmt.Errorf("couldn't read key: %w", err)
	}
	in, state, err := mark.Split(in)
	if err == nil {
		err = json.Unmarshal(in, v)
	}
	if err != nil {
		return nil, fmt.Errorf("couldn't read key %s: %w", path, err)
	}
	return state, nil
}

// create writes v to a new file, whose name it reserves first: of two at once one fails.
func create(path string, v any) error {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return fmt.Errorf("couldn't write key: %w", err)
	}
	f.Close()
	if err := replace(path, v, nil); err != nil {
		os.Remove(path)
		return err
	}
	return nil
}

// replace writes the file durably over path, with the mark that it was read with.
func (f *epochFile) replace(path string) error { return replace(path, f, f.mark) }

// replace writes v durably over path, with a mark or none.
func replace(path string, v any, s *mark.State) error {
	out, err := json.MarshalIndent(v, "", " ")
	if err != nil {
		return fmt.Errorf("couldn't encode key: %w", err)
	}
	if err := durable.WriteFile(path, mark.Join(append(out, '\n'), s), 0o600); err != nil {
		return fmt.Errorf("couldn't write key: %w", err)
	}
	return nil
}
