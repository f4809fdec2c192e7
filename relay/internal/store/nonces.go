package store

import (
	"context"
	"fmt"
	"sync"

	"github.com/doona-dp/doona/wire/signing"
	"github.com/doona-dp/doona/wire/task"
)

// KeptNonces is how many nonces a relay remembers for each key: enough for one hour of four requests per second.
const KeptNonces = 1 << 14

// pruneEvery is how many requests of one key a process accepts before it again deletes nonces beyond [KeptNonces]. It
// also deletes after the first request.
const pruneEvery = 1 << 10

// requests counts the requests that this process has accepted from each key.
type requests struct {
	mu    sync.Mutex // guards taken
	taken map[task.SignKey]uint64
}

// count counts one request and reports whether it is time to delete old nonces.
func (r *requests) count(key task.SignKey) (prune bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.taken == nil {
		r.taken = map[task.SignKey]uint64{}
	}
	r.taken[key]++
	return r.taken[key]%pruneEvery == 1
}

func (r *requests) forget(key task.SignKey) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.taken, key)
}

// nonces is the part of a store that recognizes replayed signed requests.
type nonces struct {
	*database
	requests requests
}

// Fresh records the nonce of a signed request. It reports whether the nonce is new among the last [KeptNonces] of that
// key, in all processes that share the store. If only one process can use the store, it always returns true, as that
// process keeps its own record. One statement outside of any transaction decides: if several processes ask at once, one
// of them inserts the row.
func (d *nonces) Fresh(ctx context.Context, key task.SignKey, nonce signing.Nonce) (bool, error) {
	if d.engine.alone() {
		return true, nil
	}
	if err := d.gate.enter(); err != nil {
		return false, err
	}
	defer d.gate.leave()
	const take = `INSERT INTO nonces (key, nonce) VALUES ($1, $2) ON CONFLICT DO NOTHING`
	done, err := d.write.ExecContext(ctx, take, key[:], nonce[:])
	if err != nil {
		return false, fmt.Errorf("couldn't store a request's nonce: %w", err)
	}
	n, err := done.RowsAffected()
	if err != nil || n == 0 {
		return false, err
	}
	if d.requests.count(key) {
		const prune = `DELETE FROM nonces WHERE key = $1 AND at <=
			(SELECT at FROM nonces WHERE key = $1 ORDER BY at DESC OFFSET $2 LIMIT 1)`
		if _, err := d.write.ExecContext(ctx, prune, key[:], KeptNonces); err != nil {
			return false, fmt.Errorf("couldn't delete old nonces: %w", err)
		}
	}
	return true, nil
}

// ForgetNonces deletes the nonces of a key that no task names any longer.
func (d *nonces) ForgetNonces(ctx context.Context, key task.SignKey) error {
	if d.engine.alone() {
		return nil
	}
	d.requests.forget(key)
	if _, err := d.write.ExecContext(ctx, `DELETE FROM nonces WHERE key = $1`, key[:]); err != nil {
		return fmt.Errorf("couldn't delete a key's nonces: %w", err)
	}
	return nil
}
