package relay

import (
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
