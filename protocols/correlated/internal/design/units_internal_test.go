package design

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// TestTablesInSeveralUnits: a table whose probabilities range over more than a float64 must be log-concave where its
// unit changes, and its probabilities must add up to 1.
func TestTablesInSeveralUnits(t *testing.T) {
	table := newTable(Noise{R: 300, S: .001, Jump: 60}, 4, 1e-9)
	require.Greater(t, len(table.units), 2)
	require.InDelta(t, 0, table.mass(0, table.end), 1e-9)
	for z := int64(2); z < table.end; z++ {
		require.LessOrEqual(t, table.logP(z)+table.logP(z-2), 2*table.logP(z-1)+1e-9, "at %d", z)
	}
}
