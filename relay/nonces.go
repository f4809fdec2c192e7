package relay

import (
	"context"
	"sync"

	"github.com/doona-dp/doona/relay/internal/store"
	"github.com/doona-dp/doona/wire/onion"
	"github.com/doona-dp/doona/wire/problem"
	"github.com/doona-dp/doona/wire/task"
)

// nonces remembers the requests of next hops and of streams' owners, so that who saw one on the way cannot ask again.
// It keeps the last [store.KeptNonces] of each key, some 2 MB at most, and forgets them when the process ends: then a
// request of before is taken once more. Processes that share a store remember them there, too: a request is taken by
// one of them, and once more where all were stopped and the server has crashed. That is harmless by itself: a pull gets
// ciphertexts for the next hop, and a confirmation is one that it made. An approved owner's requests take places, and
// are remembered there: see [places.fresh].
type nonces struct {
	mu   sync.Mutex // guards the rest
	hops map[task.SignKey]*ring
}

// fresh is an error unless a request that a key has signed is new to this process, and to all that share its store.
func (r *Relay) fresh(ctx context.Context, key task.SignKey, nonce onion.Nonce) error {
	fresh := r.nonces.fresh(key, nonce)
	if fresh {
		var err error
		if fresh, err = r.store.Fresh(ctx, key, nonce); err != nil {
			return err
		}
	}
	if !fresh {
		return problem.New(problem.Unauthorized, "")
	}
	return nil
}

// ring holds the last nonces of a key.
type ring struct {
	seen  map[onion.Nonce]bool
	order []onion.Nonce // the oldest at next once it is full
	next  int
}

// fresh takes note of a nonce that a key has signed, and says whether it is new.
func (n *nonces) fresh(hop task.SignKey, nonce onion.Nonce) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.hops == nil {
		n.hops = map[task.SignKey]*ring{}
	}
	r := n.hops[hop]
	if r == nil {
		r = &ring{seen: map[onion.Nonce]bool{}}
		n.hops[hop] = r
	}
	return r.add(nonce)
}

func (r *ring) add(nonce onion.Nonce) bool {
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
