package relay_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/doona-dp/doona/internal/testing/relaytest"
	"github.com/doona-dp/doona/relay"
	"github.com/doona-dp/doona/wire/handover"
	"github.com/doona-dp/doona/wire/task"
)

// TestNoncesOfDroppedTasks: any number of keys that only an approved owner's tasks name share the owner's ring buffer
// of nonces. When no task names them any more, the relay must forget their nonces, in memory and in the store.
func TestNoncesOfDroppedTasks(t *testing.T) {
	c := relaytest.New(t, expiring(relaytest.Options{Hops: 1, Postgres: true}).Approving(t, 2))
	r, _ := c.StartRelay(t, 0)
	one, two := begin(t, c, c.Named("one")), begin(t, c, c.Named("two"))
	for _, task := range []*relaytest.Cascade{one, two} {
		_, err := c.Verifier.Pull(t.Context(), task.Open, 0, 0, 0)
		require.ErrorIs(t, err, handover.ErrNotSealed)
	}
	rows := func() int {
		n, err := relay.NonceRows(c.Config(t, 0).Store)
		require.NoError(t, err)
		return n
	}
	rings := relay.Rings(r)
	require.NotContains(t, rings, one.Open.Verifier.SignKey)
	require.Len(t, rings, 1)
	require.GreaterOrEqual(t, rings[one.Open.Owner], 2)
	require.Positive(t, rows())
	c.Clock.Advance(52 * time.Hour)
	requireSoon(t, func() bool { return len(entriesOf(t, c, 0)) == 0 && len(relay.Rings(r)) == 0 })
	requireSoon(t, func() bool { return rows() == 0 })
}

// TestConfiguredKeysHaveTheirRing: a key that a configured task names must have its own ring buffer of nonces.
func TestConfiguredKeysHaveTheirRing(t *testing.T) {
	c := relaytest.New(t, relaytest.Options{Hops: 1})
	r, _ := c.StartRelay(t, 0)
	_, err := c.Verifier.Pull(t.Context(), c.Open, 0, 0, 0)
	require.ErrorIs(t, err, handover.ErrNotSealed)
	require.Equal(t, map[task.SignKey]int{c.Open.Verifier.SignKey: 1}, relay.Rings(r))
}
