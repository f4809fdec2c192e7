package store

import (
	"crypto/cipher"
	"crypto/rand"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"math"
	"net/netip"
	"sync"

	"github.com/doona-dp/doona/internal/durable"
	"github.com/doona-dp/doona/internal/secret"
	"github.com/doona-dp/doona/relay/internal/keytree"
	"github.com/doona-dp/doona/wire/task"
	"github.com/doona-dp/doona/wire/token"
)

// Vault holds the keys of the store's data in a file outside the store, the secret file:
//
//	epoch   hashes tags, clients and receipts, and        destroyed when the epoch is closed; at a later
//	        encrypts the runs of them                     relay, when it is erased
//	rows    encrypts the slots of one open batch          destroyed when the batch is sealed
//	sealed  encrypts one sealed batch                     destroyed when the next hop has it
//
// Destroying a key also overwrites it in memory, with everything derived from it.
//
// Deleted rows may remain in a database, its logs, indexes, free pages and backups. Once the key is destroyed, they are
// indistinguishable from random bytes. Processes that share a store have the same secret file or copies of it. Each
// destroys keys in its own file.
type Vault struct {
	markFiles
	file    *keytree.File
	reserve Reserve
	cuts    durable.Coalescer[keytree.Label]

	mu       sync.Mutex // guards the rest
	epochs   map[EpochID]*EpochKey
	ciphers  map[keytree.Label]clearable
	finished map[EpochID]finishedSeq // batch numbers below which all keys are destroyed
}

// clearable is a cipher whose key can be overwritten.
type clearable interface {
	cipher.AEAD
	Clear()
}

// finishedSeq has, for each kind of key, the batch number below which all keys are destroyed.
type finishedSeq struct{ rows, sealed uint64 }

// The kinds of keys. In a key's label (its path in the key tree), the kind follows the epoch.
const (
	kindEpoch  keytree.Label = "00"
	kindRows   keytree.Label = "01"
	kindSealed keytree.Label = "10"
)

// The first bit of a label says what the key is for.
const (
	labelIdentity keytree.Label = "0" // key for Vault.fingerprint
	labelTask     keytree.Label = "1"
)

// OpenVault opens the secret file. If there is none it returns [fs.ErrNotExist].
func OpenVault(path string) (*Vault, error) { return newVault(keytree.Open(path)) }

// OpenOrCreateVault opens the secret file, and creates it if there is none.
func OpenOrCreateVault(path string) (*Vault, error) { return newVault(keytree.OpenOrCreate(path)) }

func newVault(file *keytree.File, err error) (*Vault, error) {
	if err != nil {
		return nil, err
	}
	return &Vault{
		markFiles: markFiles{secret: file.Mark()},
		file:      file,
		reserve:   noReserve{},
		epochs:    map[EpochID]*EpochKey{},
		ciphers:   map[keytree.Label]clearable{},
		finished:  map[EpochID]finishedSeq{},
	}, nil
}

// taskName is how many bytes of a task's ID, which is a hash, identify the task in labels. Each byte adds eight nodes
// per task to the secret file. An attacker needs about 2^80 hashes to find another task with the same 80 bits, and
// gains little: the keys of both are destroyed when the first task ends.
const taskName = 10

// Label returns the path of an epoch in the key tree. The labels of all its keys begin with it.
func (id EpochID) Label() keytree.Label {
	return labelTask + keytree.OfBytes(id.Task[:taskName]) + keytree.OfNumber(uint32(id.Epoch))
}

// kindLabel returns the label of all the epoch's keys of one kind.
func (id EpochID) kindLabel(kind keytree.Label) keytree.Label { return id.Label() + kind }

// label returns the label of the batch's key of one kind.
func (b BatchID) label(kind keytree.Label) keytree.Label {
	return b.kindLabel(kind) + keytree.OfNumber(uint32(b.Seq))
}

// fingerprint is equal in processes with the same secret, and reveals nothing about its keys.
func (v *Vault) fingerprint() ([]byte, error) {
	return v.file.Key(labelIdentity, "fingerprint")
}

// ErrDestroyed means that a key has been destroyed.
var ErrDestroyed = keytree.ErrCut

// EpochKey returns the key that hashes an epoch's tags, clients and receipts, or [ErrDestroyed].
func (v *Vault) EpochKey(id EpochID) (*EpochKey, error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if key := v.epochs[id]; key != nil {
		return key, nil
	}
	key, err := v.file.Key(id.kindLabel(kindEpoch), "hash")
	if err != nil {
		return nil, err
	}
	v.epochs[id] = newEpochKey(key)
	return v.epochs[id], nil
}

// nameCipher returns the cipher of an epoch's stored tags and clients, or [ErrDestroyed].
func (v *Vault) nameCipher(id EpochID) (cipher.AEAD, error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.cipher(id.kindLabel(kindEpoch))
}

// batchCipher returns the cipher of an open batch's slots or of a sealed batch, by kind, or [ErrDestroyed].
func (v *Vault) batchCipher(kind keytree.Label, b BatchID) (cipher.AEAD, error) {
	if b.Seq > math.MaxUint32 || b.Epoch > math.MaxUint32 {
		return nil, errors.New("an epoch has at most 2^32 batches")
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	c, err := v.cipher(b.label(kind))
	if err != nil {
		return nil, fmt.Errorf("couldn't use the key of batch %d of epoch %d (state rollback?): %w",
			b.Seq, b.Epoch, err)
	}
	return c, nil
}

// cipher returns the cipher of a label. The caller holds v.mu.
func (v *Vault) cipher(label keytree.Label) (cipher.AEAD, error) {
	if c := v.ciphers[label]; c != nil {
		return c, nil
	}
	key, err := v.file.Key(label, "AES-256-GCM")
	if err != nil {
		return nil, err
	}
	c, err := secret.NewAESGCM(key)
	if err != nil {
		return nil, err
	}
	v.ciphers[label] = c
	return c, nil
}

// Bytes that encrypt adds to a plaintext: a nonce and an authentication tag.
const (
	nonceSize   = 12
	tagSize     = 16
	sealedExtra = nonceSize + tagSize
)

// encrypt appends to to a random nonce and the ciphertext of the concatenated parts. One key encrypts at most about
// 2^24 rows of a batch, so two nonces are equal with probability at most about 2^-49.
func encrypt(to []byte, c cipher.AEAD, parts ...[]byte) []byte {
	at := len(to)
	to = append(to, make([]byte, nonceSize)...)
	rand.Read(to[at:])
	plain := len(to)
	for _, p := range parts {
		to = append(to, p...)
	}
	return c.Seal(to[:plain], to[at:plain], to[plain:], nil)
}

// decrypt reverses encrypt in place. It returns [ErrDestroyed] if the key was destroyed meanwhile.
func decrypt(c cipher.AEAD, nonce, sealed []byte) ([]byte, error) {
	plain, err := c.Open(sealed[:0], nonce, sealed, nil)
	switch {
	case errors.Is(err, secret.ErrCleared):
		return nil, ErrDestroyed
	case err != nil:
		return nil, errors.New("the store's data is damaged or encrypted under another secret")
	}
	return plain, nil
}

// destroy destroys all keys whose labels begin with one of labels. Concurrent calls share one write of the secret file.
func (v *Vault) destroy(labels ...keytree.Label) error {
	if len(labels) == 0 {
		return nil
	}
	return v.cuts.Do(v.cut, labels...)
}

// cut is destroy for several callers together, because each call writes the whole secret file.
func (v *Vault) cut(labels []keytree.Label) error {
	if err := v.file.Cut(labels...); err != nil {
		return err
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	maps.DeleteFunc(v.epochs, func(id EpochID, key *EpochKey) bool {
		gone := !v.file.Has(id.kindLabel(kindEpoch))
		if gone {
			key.key.Clear()
		}
		return gone
	})
	maps.DeleteFunc(v.ciphers, func(label keytree.Label, c clearable) bool {
		gone := !v.file.Has(label)
		if gone {
			c.Clear()
		}
		return gone
	})
	return nil
}

// DestroyEpochKey destroys the key that hashes an epoch's tags and clients.
func (v *Vault) DestroyEpochKey(id EpochID) error {
	return v.reserve.WithReserve(func() error { return v.destroy(id.kindLabel(kindEpoch)) })
}

// DestroyRows destroys the keys that encrypt the slots of an epoch's open batches.
func (v *Vault) DestroyRows(id EpochID) error {
	return v.reserve.WithReserve(func() error { return v.destroy(id.kindLabel(kindRows)) })
}

// DestroyEpochs destroys all keys of epochs. It skips epoch numbers that no task can have, because their labels may be
// those of another epoch.
func (v *Vault) DestroyEpochs(ids []EpochID) error {
	var labels []keytree.Label
	for _, id := range ids {
		if id.Epoch < task.MaxEpochs {
			labels = append(labels, id.Label())
		}
	}
	return v.reserve.WithReserve(func() error { return v.destroy(labels...) })
}

// Holds reports which keys of a batch remain: of the open batch's slots, and of the sealed batch.
func (v *Vault) Holds(b BatchID) (rows, sealed bool) {
	_, rowsErr := v.batchCipher(kindRows, b)
	_, sealedErr := v.batchCipher(kindSealed, b)
	return rowsErr == nil, sealedErr == nil
}

// DestroyUnneeded destroys the keys that the store no longer needs, given the progress of all epochs.
func (v *Vault) DestroyUnneeded(all []Progress) error {
	var over []keytree.Label
	at := map[EpochID]finishedSeq{}
	for i := range all {
		labels, upTo := v.over(&all[i])
		over = append(over, labels...)
		at[all[i].ID] = upTo
	}
	if err := v.reserve.WithReserve(func() error { return v.destroy(over...) }); err != nil {
		return err
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	v.finished = at
	return nil
}

// over lists the labels of an epoch's keys that are no longer needed. It repeats labels above the first unfinished
// batch, because destroying a key twice does nothing.
func (v *Vault) over(p *Progress) (labels []keytree.Label, upTo finishedSeq) {
	v.mu.Lock()
	upTo = v.finished[p.ID]
	v.mu.Unlock()
	switch {
	case p.State >= StateErased && len(p.Held) == 0:
		return []keytree.Label{p.ID.Label()}, upTo
	case p.State >= StateErased:
		labels = append(labels, p.ID.kindLabel(kindEpoch), p.ID.kindLabel(kindRows))
	}
	open, held := map[uint64]bool{}, map[uint64]bool{}
	for _, b := range p.Open {
		open[b.Seq], held[b.Seq] = true, true
	}
	for _, seq := range p.Held {
		held[seq] = true
	}
	first := func(from uint64, kind keytree.Label, not map[uint64]bool) uint64 {
		done := true
		next := from
		for seq := from; seq < p.Next; seq++ {
			done = done && !not[seq]
			if done {
				next = seq + 1
			}
			if !not[seq] {
				labels = append(labels, p.ID.Batch(seq).label(kind))
			}
		}
		return next
	}
	return labels, finishedSeq{first(upTo.rows, kindRows, open), first(upTo.sealed, kindSealed, held)}
}

// EpochKey hashes the tags, clients and receipts of one epoch. It is safe for concurrent use.
type EpochKey struct{ key *secret.Bytes }

func newEpochKey(key []byte) *EpochKey { return &EpochKey{secret.Own(key)} }

// mac returns a keyed hash. If the key has been destroyed, it returns random bytes, which match nothing.
func (k *EpochKey) mac(purpose string, parts ...[]byte) (name Short) {
	var text [4][]byte
	all := append(append(text[:0], []byte(purpose)), parts...)
	if !k.key.Use(func(key []byte) { secret.HMAC(name[:], key, all...) }) {
		rand.Read(name[:])
	}
	return name
}

// Network returns the hash that stands for the clients of a network.
func (k *EpochKey) Network(p netip.Prefix) Short {
	var text [64]byte // the longest prefix has 47 bytes
	return k.mac("client", p.AppendTo(text[:0]))
}

// Token returns the hash that stands for the client with a token.
func (k *EpochKey) Token(tok []byte) Short { return k.mac("token", token.Input(tok)) }

// Quota returns how many reports the epoch takes from a client: a uniformly random number from quota, which the task
// allows, to 2·quota−1. A client that sends reports until one is refused then cannot tell how many others of its
// network have sent. The number follows from the epoch's key, so all processes agree on it, and it is lost with the
// key.
func (k *EpochKey) Quota(client Short, quota uint64) uint64 {
	if quota <= 1 {
		return quota
	}
	draw := k.mac("quota", client[:])
	return quota + binary.BigEndian.Uint64(draw[:])%quota
}

// Tag returns the hash that stands for a tag in the replay set.
func (k *EpochKey) Tag(tag []byte) Short { return k.mac("tag", tag) }

// Receipt returns a hash of a client and the body that it sent, by which the relay recognizes a retry. Only a holder of
// the key can find the client of a receipt.
func (k *EpochKey) Receipt(client Short, body []byte) Short {
	digest := sha256.Sum256(body)
	return k.mac("receipt", client[:], digest[:])
}
