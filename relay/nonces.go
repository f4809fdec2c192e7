package relay

import (
	"sync"

	"github.com/doona-dp/doona/wire/onion"
	"github.com/doona-dp/doona/wire/task"
)

// nonces remembers the requests of next hops, so that who saw one on the way cannot ask again. It
// keeps the last keptNonces of each next hop, some 2 MB at most, and forgets them when the process
// ends: then a request of before is taken once more. That is harmless by itself: a pull gets
// ciphertexts for the next hop, and a confirmation is one that it made. An approved owner's requests take places, and
// are remembered there: see [places.fresh].
type nonces struct {
	mu   sync.Mutex // guards the rest
	hops map[task.SignKey]*ring
}

// keptNonces is an hour of one request in less than a quarter of a second.
const keptNonces = 1 << 14

// ring holds the last keptNonces of a next hop.
type ring struct {
	seen  map[onion.Nonce]bool
	order []onion.Nonce // the oldest at next once it is full
	next  int
}

// fresh takes note of a nonce that a next hop has signed, and says whether it is new.
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
	if len(r.order) < keptNonces {
		r.order = append(r.order, nonce)
		return true
	}
	delete(r.seen, r.order[r.next])
	r.order[r.next] = nonce
	r.next = (r.next + 1) % keptNonces
	return true
}
