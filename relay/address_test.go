package relay_test

import (
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/doona-dp/doona/relay"
)

func TestClientNetwork(t *testing.T) {
	const xff, fwd = "X-Forwarded-For", "Forwarded"
	tests := []struct {
		name, peer, header string
		values             []string
		want               string
	}{
		{"direct", "203.0.113.7:999", xff, nil, "203.0.113.0/24"},
		{"direct v6", "[2001:db8:1:2::3]:999", xff, nil, "2001:db8:1::/48"},
		{"v4-mapped peer", "[::ffff:203.0.113.7]:999", xff, nil, "203.0.113.0/24"},
		{"zone dropped", "[fe80::1%eth0]:999", xff, nil, "fe80::/48"},
		{"spoofed by an untrusted peer", "203.0.113.7:999", xff, []string{"198.51.100.1"}, "203.0.113.0/24"},
		{"trusted proxy", "10.0.0.1:999", xff, []string{"198.51.100.1"}, "198.51.100.0/24"},
		{"trusted proxy, v4-mapped", "[::ffff:10.0.0.1]:999", xff, []string{"198.51.100.1"}, "198.51.100.0/24"},
		{"client's own invention to the left", "10.0.0.1:999", xff, []string{"1.2.3.4, 198.51.100.1"},
			"198.51.100.0/24"},
		{"the same in two headers", "10.0.0.1:999", xff, []string{"1.2.3.4", "198.51.100.1"}, "198.51.100.0/24"},
		{"chain of trusted proxies", "10.0.0.1:999", xff, []string{"1.2.3.4, 198.51.100.1, 10.0.0.3, 10.0.0.2"},
			"198.51.100.0/24"},
		{"untrusted proxy in the chain is the client", "10.0.0.1:999", xff,
			[]string{"1.2.3.4, 198.51.100.1, 10.0.0.3"}, "198.51.100.0/24"},
		{"all trusted: the farthest", "10.0.0.1:999", xff, []string{"10.9.0.3, 10.0.0.2"}, "10.9.0.0/24"},
		{"spoofed trusted address at the far end", "10.0.0.1:999", xff, []string{"198.51.100.1, 10.0.0.9"},
			"198.51.100.0/24"},
		{"no header", "10.0.0.1:999", xff, nil, "10.0.0.0/24"},
		{"empty header", "10.0.0.1:999", xff, []string{""}, "10.0.0.0/24"},
		{"unreadable: the proxy itself", "10.0.0.1:999", xff, []string{"198.51.100.1, unknown"}, "10.0.0.0/24"},
		{"v4 with port", "10.0.0.1:999", xff, []string{"198.51.100.1:4711"}, "198.51.100.0/24"},
		{"v6", "10.0.0.1:999", xff, []string{"2001:db8:7:8::9"}, "2001:db8:7::/48"},
		{"v6 with port", "10.0.0.1:999", xff, []string{"[2001:db8:7:8::9]:4711"}, "2001:db8:7::/48"},
		{"v6 in brackets", "10.0.0.1:999", xff, []string{"[2001:db8:7:8::9]"}, "2001:db8:7::/48"},
		{"v4-mapped in header", "10.0.0.1:999", xff, []string{"::ffff:198.51.100.1"}, "198.51.100.0/24"},
		{"v4-mapped trusted in header", "10.0.0.1:999", xff, []string{"198.51.100.1, ::ffff:10.0.0.2"},
			"198.51.100.0/24"},
		{"trusted v6 proxy", "[fd00::1]:999", xff, []string{"198.51.100.1"}, "198.51.100.0/24"},
		{"trusted v6 proxy with a zone", "[fd00::1%eth0]:999", xff, []string{"198.51.100.1"}, "198.51.100.0/24"},
		{"trusted v6 proxy with a zone in header", "10.0.0.1:999", xff, []string{"198.51.100.1, fd00::9%eth0"},
			"198.51.100.0/24"},
		{"zone in header", "10.0.0.1:999", xff, []string{"fe80::1%eth0"}, "fe80::/48"},
		{"the other header is ignored", "10.0.0.1:999", fwd, nil, "10.0.0.0/24"},
		{"forwarded", "10.0.0.1:999", fwd, []string{"for=198.51.100.1;proto=https;by=10.0.0.1"}, "198.51.100.0/24"},
		{"forwarded, chain", "10.0.0.1:999", fwd, []string{`for=1.2.3.4, For="198.51.100.1:80" , for=10.0.0.2`},
			"198.51.100.0/24"},
		{"forwarded, v6", "10.0.0.1:999", fwd, []string{`proto=http; for="[2001:db8:7::9]:4711"`}, "2001:db8:7::/48"},
		{"forwarded, obfuscated", "10.0.0.1:999", fwd, []string{"for=198.51.100.1, for=_hidden"}, "10.0.0.0/24"},
		{"forwarded, no for", "10.0.0.1:999", fwd, []string{"for=198.51.100.1, proto=https"}, "10.0.0.0/24"},
		{"forwarded, quoted comma", "10.0.0.1:999", fwd, []string{`for="198.51.100.1,x"`}, "10.0.0.0/24"},
		{"forwarded, an address in the host", "10.0.0.1:999", fwd, []string{`for=198.51.100.1;host="x,for=1.2.3.4"`},
			"198.51.100.0/24"},
		{"forwarded, an address in the host before", "10.0.0.1:999", fwd,
			[]string{`host="x;for=1.2.3.4;y";for=198.51.100.1`}, "198.51.100.0/24"},
		{"forwarded, an escaped quote in the host", "10.0.0.1:999", fwd,
			[]string{`host="\",for=1.2.3.4,\"";for=198.51.100.1`}, "198.51.100.0/24"},
		{"forwarded, an escaped backslash in the host", "10.0.0.1:999", fwd,
			[]string{`for=198.51.100.1;host="x,for=1.2.3.4\\"`}, "198.51.100.0/24"},
		{"forwarded, two addresses", "10.0.0.1:999", fwd, []string{`for=1.2.3.4;for=198.51.100.1`}, "10.0.0.0/24"},
		{"forwarded, a quote left open", "10.0.0.1:999", fwd, []string{`for=1.2.3.4;x=", for=198.51.100.1`},
			"198.51.100.0/24"},
		{"forwarded, a quote left open before quotes", "10.0.0.1:999", fwd,
			[]string{`for=1.2.3.4;x="`, `for="198.51.100.1:8"`}, "198.51.100.0/24"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			r := &http.Request{RemoteAddr: tt.peer, Header: http.Header{tt.header: tt.values}}
			if tt.name == "the other header is ignored" {
				r.Header = http.Header{xff: {"198.51.100.1"}}
			}
			got, err := relay.ClientNetwork(r, tt.header, "10.0.0.0/8", "fd00::/8")
			require.NoError(t, err)
			require.Equal(t, tt.want, got.String())
		})
	}
}

// FuzzClientNetwork: no header that a client writes may change the network under which the relay counts it: neither
// from an untrusted peer, nor left of a trusted proxy's entry. The relay must not fail, whatever the proxy forwards.
func FuzzClientNetwork(f *testing.F) {
	f.Add("1.2.3.4, [::1]:8, for=_x")
	f.Add(`for="[2001:db8::1]:4711";proto=http`)
	f.Add(`for=1.2.3.4;x="`)
	f.Add(`for=1.2.3.4;x="\`)
	f.Fuzz(func(t *testing.T, value string) {
		network := func(peer, header string, values ...string) string {
			r := &http.Request{RemoteAddr: peer, Header: http.Header{header: values}}
			got, err := relay.ClientNetwork(r, header, "10.0.0.0/8")
			require.NoError(t, err)
			require.True(t, got.IsValid())
			return got.String()
		}
		for header, added := range map[string]string{"X-Forwarded-For": "198.51.100.1", "Forwarded": "for=198.51.100.1"} {
			require.Equal(t, "203.0.113.0/24", network("203.0.113.7:999", header, value))
			require.Equal(t, "198.51.100.0/24", network("10.0.0.1:999", header, value, added), "in a header of its own")
			require.Equal(t, "198.51.100.0/24", network("10.0.0.1:999", header, value+", "+added), "in the same header")
			network("10.0.0.1:999", header, value)
		}
	})
}
