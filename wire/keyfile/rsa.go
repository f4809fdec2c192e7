package keyfile

import (
	"crypto/rand"
	"crypto/rsa"
	"fmt"
	"runtime"
	"sync"

	"github.com/doona-dp/doona/wire/task"
	"github.com/doona-dp/doona/wire/token"
)

const kindRSA = "doona token keys"

// rsaBits is the size of an issuer's keys in bits, which tokens of type 2 require.
const rsaBits = 2048

// RSA is a loaded file of an issuer's RSA keys, one per epoch. It is safe for concurrent use.
type RSA struct{ *epochKeys[*token.PrivateKey] }

// NewRSA makes one RSA key per epoch, writes them to a file, which must not exist, and returns the public halves. Each
// key takes about 0.2 s of one core; NewRSA calls progress, if not nil, after each key. Intermediate values of
// crypto/rsa stay in memory, so the process should exit afterwards.
func NewRSA(path string, epochs uint64, progress func()) ([]*rsa.PublicKey, error) {
	f := epochFile{Kind: kindRSA, Keys: make([]epochKey, epochs)}
	defer f.clear()
	public := make([]*rsa.PublicKey, epochs)
	errs := make(chan error, epochs)
	next := make(chan uint64)
	var workers sync.WaitGroup
	var mu sync.Mutex // one call of progress at a time
	for range runtime.GOMAXPROCS(0) {
		workers.Go(func() {
			for epoch := range next {
				key, err := rsa.GenerateKey(rand.Reader, rsaBits)
				if err != nil {
					errs <- fmt.Errorf("couldn't generate key: %w", err)
					continue
				}
				f.Keys[epoch], public[epoch] = epochKey{epoch, ownPrivate(token.MarshalPrivate(key))}, &key.PublicKey
				if progress != nil {
					mu.Lock()
					progress()
					mu.Unlock()
				}
			}
		})
	}
	for epoch := range epochs {
		next <- epoch
	}
	close(next)
	workers.Wait()
	select {
	case err := <-errs:
		return nil, err
	default:
	}
	return public, create(path, f.encode())
}

// LoadRSA reads an issuer's key file.
func LoadRSA(path string) (*RSA, error) {
	own := func(_ task.KEM, raw []byte) (*token.PrivateKey, error) { return token.OwnPrivateKey(raw) }
	keys, err := newEpochKeys(path, kindRSA, own)
	return &RSA{keys}, err
}

// Epochs returns the epochs that still have a key in the file, in the file's order.
func (r *RSA) Epochs() (out []uint64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, k := range r.file.Keys {
		out = append(out, k.Epoch)
	}
	return out
}

// Store returns the name of the store that SetStore recorded, or "".
func (r *RSA) Store() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.file.Store
}

// SetStore durably records the name of the store that counts the signatures made with these keys.
func (r *RSA) SetStore(name string) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	f, unlock, err := r.current()
	if err != nil {
		return err
	}
	defer unlock()
	f.Store = name
	if err := f.replace(r.path); err != nil {
		f.clear()
		return err
	}
	r.reload(f)
	return nil
}
