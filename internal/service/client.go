package service

import (
	"fmt"
	"net/http"
	"net/netip"
	"slices"
	"strings"

	"github.com/doona-dp/doona/internal/invalid"
)

// The headers in which a proxy may name its client.
const (
	headerXFF       = "X-Forwarded-For"
	headerForwarded = "Forwarded" // RFC 7239
)

// Proxies are the proxies that are trusted to name a client's address, and the header that they use.
type Proxies struct {
	Trusted []netip.Prefix
	Header  string // headerXFF or headerForwarded; Client ignores the other one
}

// Client returns the address of the client that sent a request. It starts with the address of the connection's peer.
// While that is a trusted proxy, it continues with the address that the proxy names. The result is the right-most
// address that is no trusted proxy: the client may forge all addresses to the left of it. If a trusted proxy names no
// readable address, the proxy counts as the client. All such requests share one quota, which no header can enlarge.
func (p *Proxies) Client(r *http.Request) netip.Addr {
	with, err := netip.ParseAddrPort(r.RemoteAddr)
	if err != nil {
		return netip.IPv6Unspecified()
	}
	at := with.Addr().WithZone("").Unmap()
	hops := p.forwarded(r.Header)
	for i := len(hops) - 1; i >= 0 && p.Trusts(at); i-- {
		before, ok := ParseAddress(hops[i])
		if !ok {
			return at
		}
		at = before
	}
	return at
}

// Trusts reports whether a trusted proxy has the address.
func (p *Proxies) Trusts(a netip.Addr) bool {
	for _, network := range p.Trusted {
		if network.Contains(a) {
			return true
		}
	}
	return false
}

// forwarded returns the addresses in the proxies' header, from the farthest to the nearest. Repeated headers count as
// one list.
func (p *Proxies) forwarded(h http.Header) []string {
	if len(p.Trusted) == 0 {
		return nil
	}
	joined := strings.Join(h.Values(p.Header), ",")
	if p.Header != headerForwarded {
		return strings.Split(joined, ",")
	}
	list := splitUnquoted(joined, ',')
	for i, element := range list {
		list[i] = forValue(element)
	}
	return list
}

// forValue returns the value of for= in one element of a Forwarded header. It returns "" unless there is exactly one.
func forValue(element string) (found string) {
	for _, pair := range splitUnquoted(element, ';') {
		name, value, ok := strings.Cut(pair, "=")
		if !ok || !strings.EqualFold(strings.TrimSpace(name), "for") {
			continue
		}
		if found != "" {
			return ""
		}
		found = strings.Trim(strings.TrimSpace(value), `"`)
	}
	return found
}

// splitUnquoted splits s at each separator outside quoted strings. A proxy may quote a Host header, which the client
// wrote. splitUnquoted scans from the right, where the trusted proxies' elements are. So a quotation mark that the
// client left open cannot hide one of these elements.
func splitUnquoted(s string, separator byte) (parts []string) {
	quoted, end := false, len(s)
	for i := len(s) - 1; i >= 0; i-- {
		switch {
		case s[i] == '"':
			escapes := len(s[:i]) - len(strings.TrimRight(s[:i], `\`))
			quoted = quoted != (escapes%2 == 0)
		case s[i] == separator && !quoted:
			parts, end = append(parts, s[i+1:end]), i
		}
	}
	parts = append(parts, s[:end])
	slices.Reverse(parts)
	return parts
}

// ParseAddress reads "192.0.2.1", "192.0.2.1:80", "2001:db8::1", "[2001:db8::1]" or "[2001:db8::1]:80". It turns
// IPv4-mapped IPv6 addresses into IPv4 and drops zones.
func ParseAddress(s string) (netip.Addr, bool) {
	s = strings.TrimSpace(s)
	a, err := netip.ParseAddr(s)
	if err != nil {
		if with, err := netip.ParseAddrPort(s); err == nil {
			a = with.Addr()
		} else if inner, ok := strings.CutPrefix(s, "["); ok {
			a, _ = netip.ParseAddr(strings.TrimSuffix(inner, "]"))
		}
	}
	return a.WithZone("").Unmap(), a.IsValid()
}

// Network returns the network that counts as one client: an IPv4 /24 or an IPv6 /48.
func Network(a netip.Addr) netip.Prefix {
	bits := 48
	if a.Is4() {
		bits = 24
	}
	return netip.PrefixFrom(a, bits).Masked()
}

// ParseNetworks reads networks in CIDR notation, as in a setting such as trusted_proxies.
func ParseNetworks(setting string, networks []string) ([]netip.Prefix, error) {
	var out []netip.Prefix
	for _, text := range networks {
		p, err := netip.ParsePrefix(text)
		if err != nil {
			return nil, invalid.Field(setting, fmt.Sprintf("%q", text), "a network such as 10.0.0.0/8")
		}
		out = append(out, p.Masked())
	}
	return out, nil
}
