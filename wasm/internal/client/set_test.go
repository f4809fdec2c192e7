//go:build doona_set || !wasip1

package client

import (
	"math"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/doona-dp/doona/internal/testing/fixture"
	"github.com/doona-dp/doona/wire/task"
)

// TestSetDelta: the δ of a set grows with its tables, their copies and a smaller ε. A table whose copies are in two
// parts has the δ of all of them.
func TestSetDelta(t *testing.T) {
	epochs := task.Epochs{Start: 3600, Length: 3600, Count: 1}
	signed, err := fixture.Sign(fixture.Table(20, epochs), []string{"https://one.example", "https://two.example"}, epochs)
	require.NoError(t, err)
	c, err := Open(signed.Canonical())
	require.NoError(t, err)
	eps := c.EpsilonWithin(10, 1e-5)
	whole := SetDelta(eps, 1e-5, []Copies{{c, 10}})
	require.InEpsilon(t, 1e-5, whole, .01)
	require.InEpsilon(t, whole, SetDelta(eps, 1e-5, []Copies{{c, 4}, {c, 0}, {c, 6}}), .01)
	require.Greater(t, SetDelta(.9*eps, 1e-5, []Copies{{c, 10}}), whole)
	require.Greater(t, SetDelta(eps, 1e-5, []Copies{{c, 10}, {c, 1}}), whole)
	require.Zero(t, SetDelta(1, 1e-6, nil))
	require.True(t, math.IsNaN(SetDelta(0, 1e-6, []Copies{{c, 1}})))
	require.Equal(t, 1.0, SetDelta(1, 1e-6, []Copies{{c, 1 << 31}}))
}
