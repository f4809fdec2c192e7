package relay_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/doona-dp/doona/internal/testing/relaytest"
)

// TestTime: a relay must sign the time of its own clock for anyone who asks.
func TestTime(t *testing.T) {
	c := relaytest.New(t, relaytest.Options{})
	c.StartAll(t)
	for hop := range c.Open.Relays {
		got, err := c.Verifier.Time(t.Context(), c.Open, hop)
		require.NoError(t, err)
		require.InDelta(t, c.Clock.Now().Unix(), got, 5)
	}
}
