package relay

import (
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"net/netip"
	"os"
	"sync"

	"github.com/doona-dp/doona/internal/durable"
	"github.com/doona-dp/doona/token"
)

// limitKeys holds the keys under which a first relay hashes its clients' networks, one per task
// and epoch. They form a chain per task, of which only the link of the oldest live epoch is kept:
//
//	key(e) = HMAC(link(e), "key"),   link(e+1) = HMAC(link(e), "next"),   link(0) random
//
// Erasing an epoch replaces its link by the next, so that what is on disk afterwards cannot tell
// whose network a hash of an earlier epoch was; several processes that share the file agree on
// all keys to come.
type limitKeys struct {
	path string
	mu   sync.Mutex // guards file, its writing, and keys
	file limitFile
	keys map[epochID][]byte // those that have been asked for
}

type limitFile struct {
	Kind  string                `json:"kind"`
	Tasks map[string]*limitLink `json:"tasks"` // by hex task id
}

type limitLink struct {
	Epoch uint64 `json:"epoch"`
	Link  string `json:"link"` // hex
}

const kindLimit = "doona limit secret"

// loadLimitKeys reads the secret file, creating it with mode 0600 where there is none.
func loadLimitKeys(path string) (*limitKeys, error) {
	l := &limitKeys{path: path, file: limitFile{kindLimit, map[string]*limitLink{}}, keys: map[epochID][]byte{}}
	in, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return l, l.write()
	}
	if err != nil {
		return nil, fmt.Errorf("couldn't read the limit secret: %w", err)
	}
	if err := json.Unmarshal(in, &l.file); err != nil || l.file.Kind != kindLimit || l.file.Tasks == nil {
		return nil, fmt.Errorf("couldn't read %s: not a %s file", path, kindLimit)
	}
	return l, nil
}

func (l *limitKeys) write() error {
	out, err := json.MarshalIndent(&l.file, "", " ")
	if err != nil {
		return fmt.Errorf("couldn't encode the limit secret: %w", err)
	}
	if err := durable.WriteFile(l.path, append(out, '\n'), 0o600); err != nil {
		return fmt.Errorf("couldn't write the limit secret: %w", err)
	}
	return nil
}

// errLimitErased is returned for an epoch whose limit key is gone.
var errLimitErased = errors.New("the limit key of this epoch has been erased")

// key returns the key of an epoch, or [errLimitErased].
func (l *limitKeys) key(id epochID) ([]byte, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if key := l.keys[id]; key != nil {
		return key, nil
	}
	name := hex.EncodeToString(id.task[:])
	at := l.file.Tasks[name]
	if at == nil {
		var first [32]byte
		rand.Read(first[:])
		at = &limitLink{0, hex.EncodeToString(first[:])}
		l.file.Tasks[name] = at
		if err := l.write(); err != nil {
			delete(l.file.Tasks, name)
			return nil, err
		}
	}
	link, err := at.walk(id.epoch)
	if err != nil {
		return nil, err
	}
	l.keys[id] = mac(link, "key")
	return l.keys[id], nil
}

// walk returns the link of an epoch.
func (at *limitLink) walk(epoch uint64) ([]byte, error) {
	link, err := hex.DecodeString(at.Link)
	if err != nil || len(link) != sha256.Size {
		return nil, errors.New("couldn't read the limit secret: a link is damaged")
	}
	if epoch < at.Epoch {
		return nil, errLimitErased
	}
	for range epoch - at.Epoch {
		link = mac(link, "next")
	}
	return link, nil
}

// erase makes the keys of an epoch and of all before it unrecoverable from the file. What the
// file system or a backup keeps of the old file is beyond its reach.
func (l *limitKeys) erase(id epochID) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	at := l.file.Tasks[hex.EncodeToString(id.task[:])]
	if at == nil {
		return nil
	}
	defer maps.DeleteFunc(l.keys, func(of epochID, _ []byte) bool { return of.task == id.task && of.epoch < at.Epoch })
	if id.epoch < at.Epoch {
		return nil
	}
	link, err := at.walk(id.epoch + 1)
	if err != nil {
		return err
	}
	before := *at
	*at = limitLink{id.epoch + 1, hex.EncodeToString(link)}
	if err := l.write(); err != nil {
		*at = before
		return err
	}
	return nil
}

func mac(key []byte, parts ...string) []byte {
	h := hmac.New(sha256.New, key)
	for _, p := range parts {
		h.Write([]byte(p))
	}
	return h.Sum(nil)
}

// networkID returns the name of a network under an epoch's key.
func networkID(key []byte, p netip.Prefix) short {
	return short(mac(key, "client", p.String()))
}

// tokenID returns the name of a token under an epoch's key.
func tokenID(key, tok []byte) short { return short(mac(key, "token", string(token.Input(tok)))) }

// receipt ties an envelope to the client that sent it, so that its retry is known as such. Only
// who holds the key can find the client of a receipt.
func receipt(key []byte, client, envelope short) short {
	return short(mac(key, "receipt", string(client[:]), string(envelope[:])))
}
