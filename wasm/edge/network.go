package edge

import "net/netip"

// networkOf returns the network that relays and issuers also count as one visitor: an IPv4 /24 or an IPv6 /48. For an
// invalid address it returns "".
func networkOf(address string) string {
	a, err := netip.ParseAddr(address)
	if err != nil {
		return ""
	}
	a = a.WithZone("").Unmap()
	bits := 48
	if a.Is4() {
		bits = 24
	}
	return netip.PrefixFrom(a, bits).Masked().String()
}
