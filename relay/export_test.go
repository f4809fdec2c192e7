package relay

import (
	"fmt"
	"net/http"
	"net/netip"
)

// ClientNetwork returns the network that counts as the client of a request behind the trusted
// proxies, for tests.
func ClientNetwork(r *http.Request, header string, trusted ...string) (netip.Prefix, error) {
	c := Config{TrustedProxies: trusted}
	networks, err := c.trusted()
	p := proxies{networks, header}
	return network(p.client(r)), err
}

// LimitPages lets a relay's store grow to n pages, or not at all where it has as many, like a disk
// that is full then; 0 lifts the limit.
func LimitPages(r *Relay, n int) error {
	if n == 0 {
		n = 1 << 30
	}
	_, err := r.store.(*sqlite).write.Exec(fmt.Sprintf("PRAGMA max_page_count = %d", n))
	return err
}
