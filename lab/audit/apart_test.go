package audit

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/doona-dp/doona/planner"
	"github.com/doona-dp/doona/protocols/registry"
	"github.com/doona-dp/doona/wire/task"
)

// TestTwoTextsAreApart: for any hash of a task, apart must find two texts without a common cell, and all their cells.
// Were one of the two texts fixed, a fifth of all tasks would have no second text, and a hundred tasks would pass only
// once in 10⁹ runs. The test does not fail by chance: each cell's count is at least 8 standard deviations from the
// threshold.
func TestTwoTextsAreApart(t *testing.T) {
	for _, c := range Native() {
		if c.Protocol != "strings" {
			continue
		}
		for range 50 {
			draft, err := planner.Draft(c.query)
			require.NoError(t, err)
			drawn, err := signed(draft)
			require.NoError(t, err)
			m, err := registry.Open(drawn)
			require.NoError(t, err)
			r := newDeployment(drawn, m)
			_, err = r.apart()
			require.NoError(t, err)
			require.Len(t, r.cells[0], 7, "a text has one cell in each of seven tables: six checks and a level")
			require.Len(t, r.cells[1], 7)
		}
	}
}

// TestFaultyLawsAreRefused: programs must refuse the claim of a task that states the noise of a planted fault: a rest
// cell without its loss at infinity, or independent cells charged with one cell's law.
func TestFaultyLawsAreRefused(t *testing.T) {
	for name, change := range map[string]func(*task.Noise){"as planned": nil, "without τ": noTau, "independent": noRest} {
		draft, err := planner.Draft(eventful().query)
		require.NoError(t, err)
		if change != nil {
			change(draft.Noise)
		}
		m, err := registry.Open(draft)
		require.NoError(t, err)
		if change == nil {
			require.NoError(t, m.CheckClaim())
		} else {
			require.Error(t, m.CheckClaim(), name)
			t.Log(m.CheckClaim())
		}
	}
}
