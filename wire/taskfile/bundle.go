// Package taskfile has the parts of a task that the browser module leaves out: the JSON form, the hash, the owner's
// signature, and the bundle in which parties exchange a task.
package taskfile

import (
	"bytes"
	"crypto/ed25519"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"

	"github.com/doona-dp/doona/internal/invalid"
	"github.com/doona-dp/doona/wire/codec"
	"github.com/doona-dp/doona/wire/onion"
	"github.com/doona-dp/doona/wire/signing"
	"github.com/doona-dp/doona/wire/task"
)

// ID returns a task's id: the SHA-256 of its canonical form.
func ID(t *task.Task) task.ID { return sha256.Sum256(t.Canonical()) }

// Bundle is a signed task with the key lists that it names: those of the relays in order, the verifier's and, for a
// task with tokens, the issuer's. A client needs nothing else. Its msgpack form is [task, owner, signature, [list …],
// first, [[keys, path] …]].
//
// Parties exchange bundles with all keys. Pages get them with the keys of one block of epochs ([Bundle.Block]), and in
// a [Chain] without lists and keys if the task is over.
type Bundle struct {
	Task      []byte   // The task's canonical form.
	Owner     []byte   // The owner's Ed25519 public key, 32 bytes.
	Signature []byte   // The owner's signature of Task.
	KeyLists  [][]byte // The signed key lists, each in msgpack and without keys: see [onion.SignedKeyList.Head].
	First     uint64   // The first epoch of the keys.
	Keys      []Keys   // The keys of each list.
}

// Keys are some keys of one party, and the path that proves them: see [onion.SignedKeyList].
type Keys struct{ Keys, Path []byte }

// Open is a task from a bundle whose signature, hashes and key lists have been checked.
type Open struct {
	*task.Task
	ID       task.ID
	Owner    task.SignKey
	KeyLists []*onion.SignedKeyList // By hop, with the verifier's last.

	// Only for tasks with tokens: the issuer's key list, and the ids of its keys by epoch.
	IssuerKeys *onion.SignedKeyList
	TokenKeys  []onion.KeyID
}

// Sign signs a task, which must be valid, and returns its bundle. lists must have the order of [Bundle].
func Sign(t *task.Task, owner ed25519.PrivateKey, lists []*onion.SignedKeyList) (*Bundle, error) {
	if err := t.Validate(); err != nil {
		return nil, err
	}
	if err := CheckSize(t); err != nil {
		return nil, err
	}
	b := &Bundle{Task: t.Canonical(), Owner: owner.Public().(ed25519.PublicKey), KeyLists: [][]byte{}, Keys: []Keys{}}
	b.Signature = signing.Sign(owner, signing.Task, b.Task)
	for _, list := range lists {
		head, err := list.Head()
		if err != nil {
			return nil, err
		}
		b.KeyLists, b.Keys = append(b.KeyLists, head), append(b.Keys, Keys{list.Keys, list.Path})
	}
	_, err := b.Open(nil)
	return b, err
}

// Block returns the bundle as pages get it: with the keys of the block that contains an epoch. lists are its key lists
// with all keys: see [Open.Lists].
func (b *Bundle) Block(lists []*onion.SignedKeyList, epoch uint64) *Bundle {
	block := *b
	block.Keys = make([]Keys, len(lists))
	for i, list := range lists {
		part := list.Block(epoch)
		block.First, block.Keys[i] = part.First, Keys{part.Keys, part.Path}
	}
	return &block
}

// Bare returns the bundle without key lists and keys, as pages get it of a task that is over.
func (b *Bundle) Bare() *Bundle {
	return &Bundle{Task: b.Task, Owner: b.Owner, Signature: b.Signature, KeyLists: [][]byte{}, Keys: []Keys{}}
}

// EpochNear returns the epoch at Unix time now. Before the first epoch it is the first, and after the last the last.
func (o *Open) EpochNear(now uint64) uint64 {
	epoch, is := o.Epochs.At(now)
	if !is && now >= o.Epochs.Over() {
		return o.Epochs.Count - 1
	}
	return epoch
}

// Open checks a bundle with all keys. It checks the owner's signature and the task, and that every key list is the one
// that the task names, signed by its party. If owner is not nil, it must be the task's owner. Open refuses a task with
// a part that no party supports yet: see [task.Task.CheckSupported].
func (b *Bundle) Open(owner *task.SignKey) (*Open, error) {
	open, err := b.openHead(owner)
	if err != nil {
		return nil, err
	}
	return open, b.openAll(open)
}

// openAll is [Bundle.openKeys] for a bundle with all keys. Their number of bytes does not tell: with nine epochs, a
// block and its path have as many bytes as all keys.
func (b *Bundle) openAll(open *Open) error {
	if err := b.openKeys(open); err != nil {
		return err
	}
	if n := b.epochs(open.Task, 0); n != open.Epochs.Count {
		return fmt.Errorf("couldn't accept the task: it has the keys of %d epochs, as pages get it; want all %d", n,
			open.Epochs.Count)
	}
	return nil
}

// epochs returns of how many epochs a bundle has the keys of a list. The list must exist.
func (b *Bundle) epochs(t *task.Task, list int) uint64 {
	_, size, err := onion.KeySizes(kemOf(t, list), 1)
	if err != nil {
		return 0
	}
	return uint64(len(b.Keys[list].Keys)) / size
}

// OpenBlock is [Bundle.Open] for a bundle that may have the keys of one block only.
func (b *Bundle) OpenBlock(owner *task.SignKey) (*Open, error) {
	open, err := b.openHead(owner)
	if err != nil {
		return nil, err
	}
	if err := b.openKeys(open); err != nil {
		return nil, err
	}
	return open, nil
}

// openHead is [Bundle.Open] without the checks of the key lists.
func (b *Bundle) openHead(owner *task.SignKey) (*Open, error) {
	if len(b.Owner) != 32 {
		return nil, fmt.Errorf("couldn't accept the task: an owner's key of %d bytes, want 32", len(b.Owner))
	}
	if owner != nil {
		if err := (&Open{Owner: task.SignKey(b.Owner)}).CheckOwner(*owner); err != nil {
			return nil, err
		}
	}
	if !signing.Verify(b.Owner, signing.Task, b.Task, b.Signature) {
		return nil, fmt.Errorf("couldn't accept the task: %w", signing.ErrSigner)
	}
	t, err := task.Parse(b.Task)
	if err != nil {
		return nil, err
	}
	return b.opened(t)
}

// opened runs the checks that do not need the signature. It returns the task without its key lists.
func (b *Bundle) opened(t *task.Task) (*Open, error) {
	if err := t.CheckSupported(); err != nil {
		return nil, err
	}
	signer := task.SignKey(b.Owner)
	if t.Clients.Kind == task.ClientToken && signer == t.Clients.Issuer.SignKey {
		return nil, invalid.Field("clients.issuer", "the owner's key",
			"an issuer that is not the owner: who issues tokens can mint clients")
	}
	if err := checkSize(t, len(b.Task)); err != nil {
		return nil, err
	}
	return &Open{Task: t, ID: sha256.Sum256(b.Task), Owner: signer}, nil
}

// Lists returns all key lists, in the order of [Bundle].
func (o *Open) Lists() []*onion.SignedKeyList {
	if o.IssuerKeys == nil {
		return o.KeyLists
	}
	return append(slices.Clone(o.KeyLists), o.IssuerKeys)
}

// CheckOwner returns an error unless the task's owner is want.
func (o *Open) CheckOwner(want task.SignKey) error {
	if o.Owner == want {
		return nil
	}
	return fmt.Errorf("couldn't accept the task: its owner is %s, want %s", FormatKey(o.Owner), FormatKey(want))
}

// openKeys checks the key lists. It parses them only if all have the sizes that the task implies.
func (b *Bundle) openKeys(open *Open) error {
	t := open.Task
	sizes := listSizes(t)
	if len(b.KeyLists) != len(sizes) || len(b.Keys) != len(sizes) {
		return fmt.Errorf("couldn't accept the task: %d key lists with the keys of %d, want %d of both", len(b.KeyLists),
			len(b.Keys), len(sizes))
	}
	for hop, raw := range b.KeyLists {
		if len(raw) != sizes[hop] {
			return fmt.Errorf("couldn't accept the keys of hop %d: a list of %d bytes, want %d for %d epochs and kem %s", hop,
				len(raw), sizes[hop], t.Epochs.Count, t.KEM)
		}
		if b.epochs(t, hop) != b.epochs(t, 0) {
			return fmt.Errorf("couldn't accept the keys of hop %d: of other epochs than those of hop 0", hop)
		}
	}
	for hop, raw := range b.KeyLists {
		list := &onion.SignedKeyList{First: b.First, Keys: b.Keys[hop].Keys, Path: b.Keys[hop].Path}
		if err := list.ParseHead(raw); err != nil {
			return fmt.Errorf("couldn't accept the keys of hop %d: %w", hop, err)
		}
		if hop > t.VerifierHop() {
			ids, err := onion.IssuerKeys(t, list)
			if err != nil {
				return err
			}
			open.TokenKeys, open.IssuerKeys = ids, list
			continue
		}
		if _, err := onion.PartyKeys(t, hop, list); err != nil {
			return err
		}
		open.KeyLists = append(open.KeyLists, list)
	}
	return nil
}

// Bytes returns the bundle in msgpack.
func (b *Bundle) Bytes() ([]byte, error) { return codec.Marshal(b) }

// maxLists is the largest number of key lists in a bundle: of all relays, the verifier and the issuer.
const maxLists = task.MaxRelays + 2

// ParseBundle parses a bundle from msgpack without checking it; see [Bundle.Open]. The result shares memory with in.
func ParseBundle(in []byte) (*Bundle, error) {
	if isJSON(in) {
		return nil, errors.New("couldn't read the task: a JSON document, want the signed bundle")
	}
	if len(in) > MaxBundle {
		return nil, fmt.Errorf("couldn't read the task: a bundle of %d bytes, at most %d", len(in), MaxBundle)
	}
	v := codec.NewView(in)
	v.ArrayOf(6)
	b := &Bundle{Task: v.Bytes(), Owner: v.Bytes(), Signature: v.Bytes()}
	b.KeyLists = make([][]byte, v.ArrayUpTo(maxLists))
	for i := range b.KeyLists {
		b.KeyLists[i] = v.Bytes()
	}
	b.First = v.Uint()
	b.Keys = make([]Keys, v.ArrayUpTo(maxLists))
	for i := range b.Keys {
		v.ArrayOf(2)
		b.Keys[i] = Keys{v.Bytes(), v.Bytes()}
	}
	if err := v.End(); err != nil {
		return nil, fmt.Errorf("couldn't decode a bundle: %w", err)
	}
	return b, nil
}

// ReadBundle reads a bundle with all keys from an untrusted sender. It checks the same as [Bundle.Open], in the order
// of arrival. First it reads the owner's signed task and checks the signature; then it calls accept. Then it reads at
// most as many bytes as the task's key lists and keys have. It also returns the bundle's bytes.
func ReadBundle(in io.Reader, accept func(*Open) error) (raw []byte, open *Open, err error) {
	var read bytes.Buffer
	head, err := readHead(codec.NewReader(io.TeeReader(in, &read)))
	if err != nil {
		return nil, nil, fmt.Errorf("couldn't read the task: %w", err)
	}
	if open, err = head.openHead(nil); err != nil {
		return nil, nil, err
	}
	if err := accept(open); err != nil {
		return nil, nil, err
	}
	lists, err := listsSize(open.Task, open.Epochs.Count, 0)
	if err != nil {
		return nil, nil, err
	}
	rest := int64(lists)
	read.Grow(int(rest))
	if n, err := io.Copy(&read, io.LimitReader(in, rest+1)); err != nil {
		return nil, nil, fmt.Errorf("couldn't read the task: %w", err)
	} else if n != rest {
		return nil, nil, fmt.Errorf("couldn't read the task: it does not have the %d bytes that its epochs "+
			"and parties require", int64(read.Len())-n+rest)
	}
	b, err := ParseBundle(read.Bytes())
	if err != nil {
		return nil, nil, err
	}
	return read.Bytes(), open, b.openAll(open)
}

// readHead reads a bundle up to its key lists, without checks.
func readHead(r *codec.Reader) (b *Bundle, err error) {
	b = &Bundle{KeyLists: [][]byte{}, Keys: []Keys{}}
	if err = r.ArrayOf(6); err == nil {
		b.Task, err = r.Bytes(MaxTask)
	}
	if err == nil {
		b.Owner, err = r.Exactly(uint64(len(task.SignKey{})))
	}
	if err == nil {
		b.Signature, err = r.Exactly(ed25519.SignatureSize)
	}
	return b, err
}

// Load reads a task from a file. The file is a JSON document, for which open is nil, or a bundle, which Load checks.
func Load(path string) (t *task.Task, open *Open, err error) {
	in, err := ReadFile(path)
	if err != nil {
		return nil, nil, err
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
	in, err := ReadFile(path)
	if err != nil {
		return nil, err
	}
	open, err := ParseOpen(in)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return open, nil
}

// ReadFile reads a file that contains a bundle, a task document or a key list. It returns an error if the file is
// larger than MaxBundle, which none of them exceeds.
func ReadFile(path string) ([]byte, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("couldn't read the task: %w", err)
	}
	defer file.Close()
	in, err := io.ReadAll(io.LimitReader(file, MaxBundle+1))
	if err == nil && len(in) > MaxBundle {
		err = fmt.Errorf("%s has more than %d bytes", path, MaxBundle)
	}
	if err == nil {
		if in, err = codec.Document(in); err != nil {
			err = fmt.Errorf("%s: %w", path, err)
		}
	}
	if err != nil {
		return nil, fmt.Errorf("couldn't read the task: %w", err)
	}
	return in, nil
}

func isJSON(in []byte) bool { return bytes.HasPrefix(bytes.TrimLeft(in, " \t\r\n"), []byte("{")) }

// ParseOpen parses a bundle and checks it, for any owner.
func ParseOpen(in []byte) (*Open, error) {
	b, err := ParseBundle(in)
	if err != nil {
		return nil, err
	}
	return b.Open(nil)
}
