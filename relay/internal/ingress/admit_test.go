package ingress

import (
	"net/netip"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/doona-dp/doona/relay/internal/tasks"
	"github.com/doona-dp/doona/wire/problem"
)

// TestFewNetworksLeaveRoom lets sixteen networks reserve all that they can. Reports and bytes must be left for others:
// another network may send one report, however large. All that is released can be reserved again.
func TestFewNetworksLeaveRoom(t *testing.T) {
	all := room{1024, 256 << 20}
	for _, bytes := range []int64{1 << 10, 1 << 20} {
		a, s := newAdmission(all, func() int { return 1 }), &tasks.Hosted{}
		network := func(n byte) netip.Prefix { return netip.PrefixFrom(netip.AddrFrom4([4]byte{10, 0, n, 0}), 24) }
		taken := map[byte]int{}
		for n := range byte(16) {
			for a.take(s, network(n), bytes) == "" {
				taken[n]++
			}
			require.Equal(t, problem.SlowDown, a.take(s, network(n), bytes))
		}
		left := a.left()
		require.Greater(t, left.reports, 100)
		require.Greater(t, left.bytes, all.bytes/10)
		require.Empty(t, a.take(s, network(99), left.bytes), "one report of another network must be admitted")
		a.leave(s, network(99), left.bytes)
		for n, reports := range taken {
			for range reports {
				a.leave(s, network(n), bytes)
			}
		}
		require.Equal(t, all, a.left())
		require.Empty(t, a.networks)
	}
}
