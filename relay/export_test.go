package relay

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net/http"
	"net/netip"

	"github.com/doona-dp/doona/internal/clientaddr"
	"github.com/doona-dp/doona/wire/onion"
)

// ClientNetwork returns the network that counts as the client of a request behind the trusted
// proxies, for tests.
func ClientNetwork(r *http.Request, header string, trusted ...string) (netip.Prefix, error) {
	networks, err := clientaddr.ParseTrusted(trusted)
	p := clientaddr.Proxies{Trusted: networks, Header: header}
	return clientaddr.Network(p.Client(r)), err
}

// LimitPages lets a relay's store grow to n pages, or not at all where it has as many, like a disk
// that is full then; 0 lifts the limit.
func LimitPages(r *Relay, n int) error {
	if n == 0 {
		n = 1 << 30
	}
	_, err := r.store.(*database).write.Exec(fmt.Sprintf("PRAGMA max_page_count = %d", n))
	return err
}

// FillHandouts takes all places for batches of a relay's first task on their way out, until free is
// called.
func FillHandouts(r *Relay) (free func()) {
	n := 0
	for r.handouts.take(r.order[0]) {
		n++
	}
	return func() {
		for range n {
			r.handouts.leave(r.order[0])
		}
	}
}

// FailSeals lets no batch of a task be sealed, as if the store failed. Call it before Run.
func FailSeals(r *Relay, task [32]byte) { r.store = failingSeals{r.store, task} }

type failingSeals struct {
	store
	task [32]byte
}

func (f failingSeals) seal(ctx context.Context, id epochID, seq uint64, build func(uint64, []row) (*onion.Batch, error)) error {
	if id.task == f.task {
		return errors.New("as the test asked")
	}
	return f.store.seal(ctx, id, seq, build)
}

// RetryMixes has every mix's transaction done twice, as where a server undoes the first. Call it before
// Run.
func RetryMixes(r *Relay) { r.store = retriedMixes{r.store} }

type retriedMixes struct{ store }

func (m retriedMixes) mix(ctx context.Context, id epochID, seq uint64, tags []short, build func([]bool) (*onion.Batch, error)) error {
	return m.store.mix(ctx, id, seq, tags, func(fresh []bool) (*onion.Batch, error) {
		if _, err := build(fresh); err != nil {
			return nil, err
		}
		return build(fresh)
	})
}

// HasEpochKey says whether a relay can still name the clients of an epoch.
func HasEpochKey(r *Relay, task [32]byte, epoch uint64) bool {
	_, err := r.vault.epochKey(epochID{task, epoch})
	return err == nil
}

// FreeMemory returns what is left of MaxMemory.
func FreeMemory(r *Relay) int64 { return r.admission.left().bytes }

// Unencrypted has a relay store the first batch of epoch 0 of a task as it is, until it seals it.
func Unencrypted(r *Relay, task [32]byte) {
	r.vault.mu.Lock()
	defer r.vault.mu.Unlock()
	for _, kind := range []byte{kindRows, kindSealed} {
		r.vault.ciphers[string(epochID{task, 0}.batchLabel(kind, 0))] = noCipher{}
	}
}

type noCipher struct{}

func (noCipher) NonceSize() int { return nonceSize }
func (noCipher) Overhead() int  { return tagSize }

func (noCipher) Seal(dst, _, plain, _ []byte) []byte {
	return append(append(dst, plain...), make([]byte, tagSize)...)
}

func (noCipher) Open(dst, _, sealed, _ []byte) ([]byte, error) {
	return append(dst, sealed[:len(sealed)-tagSize]...), nil
}

// Decryptable says what a secret file can still decrypt of a batch of epoch 0: its rows, and the
// batch itself.
func Decryptable(secret string, task [32]byte, seq uint64) (rows, sealed bool, err error) {
	v, err := openVault(secret, false)
	if err != nil {
		return false, false, err
	}
	_, rowsErr := v.batchCipher(epochID{task, 0}, kindRows, seq)
	_, sealedErr := v.batchCipher(epochID{task, 0}, kindSealed, seq)
	return rowsErr == nil, sealedErr == nil, nil
}

// Submissions counts the submissions in open batches of a task in a store.
func Submissions(cfg Config, task [32]byte) (n uint64, err error) {
	s, err := readStore(cfg.Store)
	if err != nil {
		return 0, err
	}
	defer s.close()
	all, err := s.progress(context.Background())
	for _, p := range all {
		for _, b := range p.open {
			if b.id.task == task {
				n += b.submissions
			}
		}
	}
	return n, err
}

// Tables counts the tables in a PostgreSQL database.
func Tables(url string) (n int, err error) {
	db, err := sql.Open("pgx", url)
	if err != nil {
		return 0, err
	}
	defer db.Close()
	return n, db.QueryRow(`SELECT COUNT(*) FROM pg_tables WHERE schemaname = 'public'`).Scan(&n)
}
