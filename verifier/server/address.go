package server

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"syscall"
)

// notPublic are networks in the public ranges of addresses that do not lead to a public server, or that have an IPv4
// address within.
var notPublic = prefixes("0.0.0.0/8", "100.64.0.0/10", "192.0.0.0/24", "192.0.2.0/24", "192.88.99.0/24", "198.18.0.0/15",
	"198.51.100.0/24", "203.0.113.0/24", "240.0.0.0/4", "2001::/23", "2001:db8::/32", "2002::/16", "3fff::/20")

// publicV6 are all IPv6 addresses that were given out: others are local, translated or not in use.
var publicV6 = netip.MustParsePrefix("2000::/3")

func prefixes(texts ...string) (out []netip.Prefix) {
	for _, text := range texts {
		out = append(out, netip.MustParsePrefix(text))
	}
	return out
}

// isPublic reports whether an address is one of the public internet.
func isPublic(a netip.Addr) bool {
	return a.IsGlobalUnicast() && !a.IsPrivate() && !a.IsLoopback() && a.Zone() == "" &&
		(a.Is4() || publicV6.Contains(a)) &&
		!slices.ContainsFunc(notPublic, func(p netip.Prefix) bool { return p.Contains(a) })
}

// refusePrivate refuses a connection to an address that is not public. [net.Dialer] calls it for each address that a
// name has resolved to, just before it connects. So the name cannot resolve to another address afterwards.
func refusePrivate(_ context.Context, _, address string, _ syscall.RawConn) error {
	at, err := netip.ParseAddrPort(address)
	if err != nil {
		return err
	}
	if !isPublic(at.Addr()) {
		return fmt.Errorf("refused: %s is no public address (webhook: allow_private: true allows it)", at.Addr())
	}
	return nil
}
