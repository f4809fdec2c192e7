package relay_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/doona-dp/doona/internal/testing/relaytest"
	"github.com/doona-dp/doona/relay"
	"github.com/doona-dp/doona/wire/problem"
)

// TestOwnerLimits: an owner is over each limit in turn, while clients report to another owner's task. The relay must
// refuse the reports and tasks of that owner alone, say so, and accept them when a reload removes the limit. No report
// of the other owner may be refused or lost.
func TestOwnerLimits(t *testing.T) {
	all := startReloading(t, relaytest.Options{})
	first := all.owners[0]
	busy := begin(t, all.Cascade, all.Named("busy"))
	stop := reporters(t, busy)
	second := all.OfOwner(t)
	limited := relay.OwnerConfig{Owner: second.Owner, Folder: "second", Tasks: 3}
	require.NoError(t, all.reload(t, first, limited))
	one := begin(t, second, second.Named("one"))
	client := 0
	posts := func(n int) (refused int) { // fewer than a batch, so that none is sealed
		t.Helper()
		for range n {
			client++
			if err := one.Post(t.Context(), 0, one.Seal(t, 0, 1), relaytest.Network(300+client)); err != nil {
				requireProblem(t, problem.Overloaded, err)
				refused++
			}
		}
		return refused
	}
	requireLimited := func(name, words string) {
		t.Helper()
		of := statusOf(t, all.Cascade).Owners[1]
		require.True(t, of.Limited)
		require.Contains(t, of.String(), words)
		_, metrics := get(t, all.Cascade, 0, "/metrics")
		require.Contains(t, metrics, `doona_relay_owner_limited_total{limit="`+name+`",owner="`+shortKey(second.Owner)+
			`",task=""}`)
		_, table, _ := run(t, "owners", "--admin", "http://"+all.Config(t, 0).Admin)
		require.Equal(t, "limited", fieldsOf(table)[2][2])
		require.Equal(t, "active", fieldsOf(table)[1][2])
	}
	require.False(t, statusOf(t, all.Cascade).Owners[1].Limited)

	limited.Bytes = 1 // below a report
	require.NoError(t, all.reload(t, first, limited))
	require.Equal(t, 2, posts(2))
	requireLimited("bytes", ", at most 1 bytes on disk, over a limit: the relay refuses reports")
	limited.Bytes = 1000
	require.NoError(t, all.reload(t, first, limited))
	refused := posts(9)
	require.Positive(t, refused)
	require.Less(t, refused, 9, "the first reports fit")

	limited.Bytes, limited.ReportsPerSecond = 0, 1
	require.NoError(t, all.reload(t, first, limited))
	require.Positive(t, posts(8))
	requireLimited("reports_per_second", ", at most 1 reports per second")
	limited.ReportsPerSecond = 0
	require.NoError(t, all.reload(t, first, limited))
	require.Zero(t, posts(1))

	limited.Dummies = added - 1
	require.NoError(t, all.reload(t, first, limited))
	noise := second.Sign(t, second.Named("noise", noisy))
	err := second.Begin(t.Context(), t, 0, noise)
	requireProblem(t, problem.OwnerTaskLimit, err)
	require.ErrorContains(t, err, "too many dummies")
	limited.Dummies = added
	require.NoError(t, all.reload(t, first, limited))
	require.NoError(t, second.Begin(t.Context(), t, 0, noise))

	for _, bad := range []relay.OwnerConfig{{ReportsPerSecond: -1}, {ReportsPerSecond: 1_000_001},
		{Dummies: 1<<32 + 1}} {
		bad.Owner, bad.Folder, bad.Tasks = limited.Owner, limited.Folder, limited.Tasks
		require.ErrorContains(t, all.reload(t, first, bad), "or 0 for no limit")
	}
	requireAll(t, busy, stop())
}
