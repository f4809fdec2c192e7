// Package keyfile stores the private keys of owners, relays, verifiers and issuers in files of mode 0600. A file
// contains one Ed25519 signing key, or one HPKE or RSA key per epoch. Each epoch's key can be erased without the
// others.
package keyfile

import (
	"bytes"
	"crypto/ed25519"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"sync"

	"github.com/doona-dp/doona/internal/durable"
	"github.com/doona-dp/doona/internal/rollback"
	"github.com/doona-dp/doona/internal/secret"
	"github.com/doona-dp/doona/wire/onion"
	"github.com/doona-dp/doona/wire/task"
	"github.com/doona-dp/doona/wire/taskfile"
)

// The kinds of key files, as the field "kind" names them.
const (
	kindSign = "doona sign key"
	kindHPKE = "doona hpke keys"
)

// ErrErased is the error for an epoch whose private key was erased.
var ErrErased = onion.ErrErased

type signFile struct {
	Kind    string  `json:"kind"`
	Public  string  `json:"public"`
	Private private `json:"private"` // seed
}

type epochFile struct {
	Kind  string     `json:"kind"`
	KEM   task.KEM   `json:"kem,omitempty"`   // HPKE keys only
	Store string     `json:"store,omitempty"` // the store that uses the keys; see [HPKE.Bind] and [RSA.SetStore]
	Keys  []epochKey `json:"keys"`

	mark *rollback.Mark // rollback mark that follows the JSON in the file; nil for none
}

type epochKey struct {
	Epoch   uint64  `json:"epoch"`
	Private private `json:"private"`
}

func (f *epochFile) clear() {
	for _, k := range f.Keys {
		k.clear()
	}
}

func (k *epochKey) clear() {
	if k.Private.Bytes != nil {
		k.Private.Clear()
	}
}

// NewSign makes an Ed25519 key and writes it to a file, which must not exist.
func NewSign(path string) (key ed25519.PrivateKey, err error) {
	seed := make([]byte, ed25519.SeedSize)
	rand.Read(seed)
	secret.Do(func() { key = ed25519.NewKeyFromSeed(seed) })
	f := signFile{kindSign, taskfile.FormatKey(publicOf(key)), ownPrivate(seed)}
	defer f.Private.Clear()
	return key, create(path, f.encode())
}

func publicOf(key ed25519.PrivateKey) task.SignKey {
	return task.SignKey(key[ed25519.PrivateKeySize-ed25519.PublicKeySize:])
}

// LoadSign reads an Ed25519 key from a file. The caller must clear the key after use.
func LoadSign(path string) (ed25519.PrivateKey, error) {
	var f signFile
	if _, err := load(path, &f); err != nil {
		return nil, err
	}
	if f.Private.Bytes != nil {
		defer f.Private.Clear()
	}
	public, err := taskfile.ParseKey("public", f.Public)
	if f.Kind != kindSign || err != nil || f.Private.Bytes == nil {
		return nil, fmt.Errorf("couldn't read %s: not a %s file", path, kindSign)
	}
	key := make(ed25519.PrivateKey, 0, ed25519.PrivateKeySize)
	f.Private.Use(func(seed []byte) {
		if len(seed) == ed25519.SeedSize {
			key = append(append(key, seed...), public[:]...)
		}
	})
	if len(key) == 0 {
		return nil, fmt.Errorf("couldn't read %s: not a %s file", path, kindSign)
	}
	if !pairs(key) {
		clear(key)
		return nil, fmt.Errorf("couldn't read %s: its private key does not belong to the public key %s", path, f.Public)
	}
	return key, nil
}

// pairs reports whether the two halves of a key belong together, by verifying a signature. Deriving the public half
// instead would leave more copies of the private half in the library's memory.
func pairs(key ed25519.PrivateKey) (ok bool) {
	public := publicOf(key)
	secret.Do(func() { ok = ed25519.Verify(public[:], nil, ed25519.Sign(key, nil)) })
	return ok
}

// NewHPKE makes one HPKE key per epoch and writes them to a file, which must not exist. It returns the list of the
// public keys, signed by the party's signing key.
func NewHPKE(path string, kem task.KEM, epochs uint64, sign ed25519.PrivateKey) (*onion.SignedKeyList, error) {
	if err := taskfile.CheckListSize(kem, epochs); err != nil { // a bundle must have room for the list
		return nil, err
	}
	f := epochFile{Kind: kindHPKE, KEM: kem}
	defer f.clear()
	keys := make([]*onion.PrivateKey, epochs)
	for epoch := range keys {
		key, err := onion.GenerateKey(kem)
		if err != nil {
			return nil, err
		}
		defer key.Clear()
		raw, err := key.Bytes()
		if err != nil {
			return nil, fmt.Errorf("couldn't encode key: %w", err)
		}
		keys[epoch] = key
		f.Keys = append(f.Keys, epochKey{uint64(epoch), ownPrivate(raw)})
	}
	list, err := onion.NewSignedKeyList(kem, keys, sign)
	if err != nil {
		return nil, err
	}
	return list, create(path, f.encode())
}

// privateKey is a key that can be cleared: [onion.PrivateKey] or [token.PrivateKey].
type privateKey interface{ Clear() }

// epochKeys is a loaded file with one private key per epoch.
type epochKeys[K privateKey] struct {
	path   string
	kind   string
	own    func(kem task.KEM, private []byte) (K, error) // parses a serialized key and takes ownership of the slice
	mu     sync.Mutex                                    // guards file and parsed
	file   epochFile
	parsed map[uint64]K
}

func newEpochKeys[K privateKey](path, kind string, own func(task.KEM, []byte) (K, error)) (*epochKeys[K], error) {
	file, err := loadEpochs(path, kind)
	return &epochKeys[K]{path: path, kind: kind, own: own, file: file, parsed: map[uint64]K{}}, err
}

func loadEpochs(path, kind string) (f epochFile, err error) {
	if f.mark, err = load(path, &f); err != nil {
		f.clear()
		return f, err
	}
	if err = f.check(kind); err != nil {
		f.clear()
		return f, fmt.Errorf("couldn't read %s: %w", path, err)
	}
	return f, nil
}

// check returns an error unless the file is of this kind and has exactly one key for each epoch in it.
func (f *epochFile) check(kind string) error {
	if f.Kind != kind {
		return fmt.Errorf("not a %s file", kind)
	}
	seen := map[uint64]bool{}
	for _, k := range f.Keys {
		switch {
		case k.Private.Bytes == nil:
			return fmt.Errorf("epoch %d: it has no key", k.Epoch)
		case seen[k.Epoch]:
			return fmt.Errorf("epoch %d: it has two keys, and may have one", k.Epoch)
		}
		seen[k.Epoch] = true
	}
	return nil
}

// Key returns the private key of an epoch, or [ErrErased]. The file keeps ownership of the key, and Erase clears it.
func (h *epochKeys[K]) Key(epoch uint64) (K, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.key(epoch)
}

// key is [epochKeys.Key] for a caller that holds mu.
func (h *epochKeys[K]) key(epoch uint64) (key K, err error) {
	if key, ok := h.parsed[epoch]; ok {
		return key, nil
	}
	err = ErrErased
	for _, k := range h.file.Keys {
		if k.Epoch != epoch {
			continue
		}
		k.Private.Use(func(raw []byte) { key, err = h.own(h.file.KEM, bytes.Clone(raw)) })
		if err != nil {
			return key, fmt.Errorf("couldn't read %s: epoch %d: %w", h.path, epoch, err)
		}
		h.parsed[epoch] = key
		break
	}
	return key, err
}

// Erase durably removes the private key of an epoch from the file; erasing twice succeeds. It locks and rereads the
// file first, so that a process never writes back a key that another process erased. No copy of the key's bytes remains
// in memory. Erase cannot reach copies of the old file that the file system or a backup keeps.
func (h *epochKeys[K]) Erase(epoch uint64) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	f, unlock, err := h.current()
	if err != nil {
		return err
	}
	defer unlock()
	all := len(f.Keys)
	f.Keys = slices.DeleteFunc(f.Keys, func(k epochKey) bool {
		if k.Epoch == epoch {
			k.clear()
		}
		return k.Epoch == epoch
	})
	if len(f.Keys) < all {
		if err := f.replace(h.path); err != nil {
			f.clear()
			return err
		}
	}
	h.reload(f)
	return nil
}

// reload replaces the loaded keys with those in f, and clears parsed keys that f no longer contains.
func (h *epochKeys[K]) reload(f epochFile) {
	h.file.clear()
	h.file = f
	for epoch, key := range h.parsed {
		if !slices.ContainsFunc(f.Keys, func(k epochKey) bool { return k.Epoch == epoch }) {
			key.Clear()
			delete(h.parsed, epoch)
		}
	}
	secret.ClearRegisters()
}

// Close clears all keys in memory. After that, Key returns [ErrErased].
func (h *epochKeys[K]) Close() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.reload(epochFile{Kind: h.file.Kind, KEM: h.file.KEM, Store: h.file.Store})
}

// current locks the file against other processes until the caller calls unlock, and returns the file's content.
func (h *epochKeys[K]) current() (f epochFile, unlock func(), err error) {
	if unlock, err = durable.Lock(h.path); err != nil {
		return f, nil, fmt.Errorf("couldn't lock key: %w", err)
	}
	if f, err = loadEpochs(h.path, h.kind); err != nil {
		unlock()
	}
	return f, unlock, err
}

// Mark opens the rollback mark in the file. The mark records how far the store that uses the keys has advanced.
func (h *epochKeys[K]) Mark() (*rollback.MarkFile, error) { return rollback.OpenMark(h.path) }

// HPKE is a loaded file of HPKE keys. It is safe for concurrent use.
type HPKE struct{ *epochKeys[*onion.PrivateKey] }

// LoadHPKE reads a file of HPKE keys. Whether they are a task's keys is for [HPKE.Check] to decide.
func LoadHPKE(path string) (*HPKE, error) {
	keys, err := newEpochKeys(path, kindHPKE, onion.OwnPrivateKey)
	return &HPKE{keys}, err
}

// ErrStore is the error for keys that were used with another store.
var ErrStore = errors.New("its keys have been used with another store, which alone knows what they have opened")

// Bind durably binds the file to the store that records what its keys have opened. It returns [ErrStore] if the file is
// already bound to another store: with an empty store, the keys would open every ciphertext a second time.
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
			f.clear()
			return err
		}
	}
	if f.Store != store {
		f.clear()
		return fmt.Errorf("couldn't use %s: %w", h.path, ErrStore)
	}
	h.reload(f)
	return nil
}

// Rebind binds the file to a store, even if it was bound to another. Call it only when the operator demands it, and
// after erasing the keys of every epoch that was used with another store.
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
			f.clear()
			return err
		}
	}
	h.reload(f)
	return nil
}

// CheckStore returns [ErrStore] if [HPKE.Bind] would return it. It changes nothing.
func (h *HPKE) CheckStore(store string) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.file.Store != "" && h.file.Store != store {
		return fmt.Errorf("couldn't use %s: %w", h.path, ErrStore)
	}
	return nil
}

// Check returns an error unless the file has keys for the task. list is the key list of one of the task's parties. It
// must contain the public half of every key that is still in the file.
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
		if k.Epoch >= t.Epochs.Count || public[k.Epoch] == nil || key.Public().ID() != public[k.Epoch].ID() {
			return fmt.Errorf("couldn't use %s: its key of epoch %d is not the one the task names", h.path, k.Epoch)
		}
	}
	return nil
}

// load reads a JSON file into v, and returns the rollback mark that follows the JSON. Its errors do not quote the
// file's content. After it returns, v holds the only copy of the keys in memory.
func load(path string, v any) (*rollback.Mark, error) {
	in, err := durable.ReadPrivate(path)
	if err != nil {
		return nil, fmt.Errorf("couldn't read key: %w", err)
	}
	defer clear(in)
	document, state, err := rollback.SplitFile(in)
	if err == nil {
		err = json.Unmarshal(document, v)
	}
	if err != nil {
		return nil, fmt.Errorf("couldn't read key %s: %w", path, err)
	}
	return state, nil
}

// create writes a document to a new file, and clears the document. It creates the empty file first, so that only one of
// two concurrent calls succeeds.
func create(path string, document []byte) error {
	defer clear(document)
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return fmt.Errorf("couldn't write key: %w", err)
	}
	f.Close()
	if err := replace(path, document, nil); err != nil {
		os.Remove(path)
		return err
	}
	return nil
}

// replace durably replaces the file at path with f, and keeps the rollback mark that was read with f.
func (f *epochFile) replace(path string) error {
	document := f.encode()
	defer clear(document)
	return replace(path, document, f.mark)
}

// replace durably writes a document, followed by a rollback mark unless it is nil, over path.
func replace(path string, document []byte, s *rollback.Mark) error {
	out := rollback.JoinFile(document, s)
	defer clear(out)
	if err := durable.WriteFile(path, out, 0o600); err != nil {
		return fmt.Errorf("couldn't write key: %w", err)
	}
	return nil
}

// encode returns the JSON of the file in a slice allocated at full size, so that growing leaves no partial copy in
// memory. The caller clears it.
func (f *signFile) encode() []byte {
	return encode(&struct {
		Kind   string `json:"kind"`
		Public string `json:"public"`
	}{f.Kind, f.Public}, secret.TextLen(ed25519.SeedSize)+keyExtra, func(out []byte) []byte {
		return append(f.Private.appendTo(append(out, ",\n \"private\": \""...)), '"')
	})
}

// encode returns the JSON of the file, allocated like that of [signFile.encode].
func (f *epochFile) encode() []byte {
	size := keyExtra
	for _, k := range f.Keys {
		k.Private.Use(func(key []byte) { size += secret.TextLen(len(key)) + keyExtra })
	}
	return encode(&struct {
		Kind  string   `json:"kind"`
		KEM   task.KEM `json:"kem,omitempty"`
		Store string   `json:"store,omitempty"`
	}{f.Kind, f.KEM, f.Store}, size, func(out []byte) []byte {
		out = append(out, ",\n \"keys\": ["...)
		for i, k := range f.Keys {
			if i > 0 {
				out = append(out, ',')
			}
			out = strconv.AppendUint(append(out, "\n  {\n   \"epoch\": "...), k.Epoch, 10)
			out = append(out, ",\n   \"private\": \""...)
			out = append(k.Private.appendTo(out), "\"\n  }"...)
		}
		return append(out, "\n ]"...)
	})
}

// keyExtra is an upper bound of the bytes that a key takes in a file besides its text.
const keyExtra = 96

// encode returns the JSON of head, followed by the fields that keys appends. keys appends at most size bytes.
func encode(head any, size int, keys func(out []byte) []byte) []byte {
	text, err := json.MarshalIndent(head, "", " ")
	if err != nil {
		panic(err) // head always has a JSON form
	}
	text = bytes.TrimSuffix(text, []byte("\n}"))
	return append(keys(append(make([]byte, 0, len(text)+size+len(documentTail)), text...)), documentTail...)
}

const documentTail = "\n}\n"

// private is a private key that is encoded as text in JSON.
type private struct{ secret.Text }

func ownPrivate(key []byte) private { return private{secret.Text{Bytes: secret.Own(key)}} }

// appendTo appends the key's text to a slice, which must have enough capacity.
func (p *private) appendTo(out []byte) []byte {
	p.Use(func(key []byte) { out = secret.AppendText(out, key) })
	return out
}
