package tasks

import (
	"context"
	"errors"
	"sync"

	"github.com/doona-dp/doona/relay/internal/store"
	"github.com/doona-dp/doona/wire/problem"
	"github.com/doona-dp/doona/wire/signing"
	"github.com/doona-dp/doona/wire/task"
)

// nonces remembers the signed requests of next hops and of streams' owners, so that an eavesdropper cannot replay them.
// It keeps the last [store.KeptNonces] nonces of each key, 2 MB at most, until no task names the key any more. All keys
// that only one approved owner's tasks name share one ring buffer.
//
// A process forgets its nonces when it ends: it then accepts an older request once more. Processes that share a store
// also keep nonces in the store, so only one of them accepts a request. The relay accepts the request once more only if
// all processes stopped and the database server crashed. That is harmless: a pull returns ciphertexts for the next hop,
// and a confirmation repeats one that the next hop made. Requests of approved owners use up task slots, so the relay
// stores their nonces durably: see [ownerFolder.fresh].
type nonces struct {
	mu   sync.Mutex // guards the rest
	hops map[task.SignKey]*ring
}

// Fresh returns an error unless a signed request is new to this process and to all that share its store.
func (h *Host) Fresh(ctx context.Context, key task.SignKey, nonce signing.Nonce) error {
	key = h.Hosted().ring(key)
	fresh := h.nonces.fresh(key, nonce)
	if fresh {
		var err error
		if fresh, err = h.Store.Fresh(ctx, key, nonce); err != nil {
			return err
		}
	}
	if !fresh {
		return problem.New(problem.Unauthorized, "")
	}
	return nil
}

// ring returns the key that names the ring buffer for a key's nonces. That is the key itself, if a task that the
// operator configured names it. An approved owner's tasks can name arbitrary keys: a key that only such tasks name uses
// the buffer of the first owner among them.
func (l *Set) ring(key task.SignKey) task.SignKey {
	ring, found := key, false
	named := func(o *owner) (own bool) {
		if o != nil && !found {
			ring, found = o.key, true
		}
		return o == nil
	}
	for _, s := range l.Order {
		if s.Party(s.Hop+1).SignKey == key && named(s.owner) {
			return key
		}
	}
	for _, of := range l.streams {
		if of.Authority().Key == key && named(of.owner) {
			return key
		}
	}
	return ring
}

// rings returns the names of all ring buffers in use.
func (l *Set) rings() map[task.SignKey]bool {
	all := map[task.SignKey]bool{}
	for _, s := range l.Order {
		all[l.ring(s.Party(s.Hop+1).SignKey)] = true
	}
	for _, of := range l.streams {
		all[l.ring(of.Authority().Key)] = true
	}
	return all
}

// forgetRings forgets the nonces of keys that no task names any more after a task was dropped.
func (h *Host) forgetRings(ctx context.Context, before *Set) (failed error) {
	left := h.Hosted().rings()
	for key := range before.rings() {
		if !left[key] {
			h.nonces.forget(key)
			failed = errors.Join(failed, h.Store.ForgetNonces(ctx, key))
		}
	}
	return failed
}

func (n *nonces) forget(key task.SignKey) {
	n.mu.Lock()
	defer n.mu.Unlock()
	delete(n.hops, key)
}

// ring is a ring buffer with the last nonces of a key.
type ring struct {
	seen  map[signing.Nonce]bool
	order []signing.Nonce // when full, the oldest is at next
	next  int
}

// fresh records a nonce that a key has signed, and reports whether it is new.
func (n *nonces) fresh(hop task.SignKey, nonce signing.Nonce) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.hops == nil {
		n.hops = map[task.SignKey]*ring{}
	}
	r := n.hops[hop]
	if r == nil {
		r = &ring{seen: map[signing.Nonce]bool{}}
		n.hops[hop] = r
	}
	return r.add(nonce)
}

func (r *ring) add(nonce signing.Nonce) bool {
	if r.seen[nonce] {
		return false
	}
	r.seen[nonce] = true
	if len(r.order) < store.KeptNonces {
		r.order = append(r.order, nonce)
		return true
	}
	delete(r.seen, r.order[r.next])
	r.order[r.next] = nonce
	r.next = (r.next + 1) % store.KeptNonces
	return true
}
