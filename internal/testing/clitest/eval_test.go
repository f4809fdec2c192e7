package clitest_test

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/doona-dp/doona/internal/testing/clitest"
)

const document = `{"n": 4, "name": "mean", "none": null, "x": [1, 2, 3], "y": [1, 2, 4], "empty": [],
	"tasks": [{"epochs": [{"issued": 0}, {"issued": 2}]}]}`

func object(t *testing.T) (out map[string]any) {
	require.NoError(t, json.Unmarshal([]byte(document), &out))
	return out
}

func TestEval(t *testing.T) {
	for expression, want := range map[string]any{
		`n*2 + 1 == 9 && name == "mean"`:     true,
		`none == null && !(n == null)`:       true,
		`n % 3 == 1 || false`:                true,
		`abs(x - y) <= 1`:                    true,
		`abs(x - y) < 1`:                     false,
		`x <= y`:                             true,
		`y <= x`:                             false,
		`sum(x*x) / len(x) == 14.0/3`:        true,
		`x[2] == 3 && -x[0] == -1`:           true,
		`tasks[0].epochs.issued <= 2`:        true,
		`tasks[0].epochs.issued == 0`:        false,
		`len(tasks[0].epochs) == 2`:          true,
		`len(empty) == 0 && sum(empty) == 0`: true,
		`abs(sin(n) + 0.7568) < 1e-4`:        true,
	} {
		got, err := clitest.Eval(expression, object(t))
		require.NoError(t, err, expression)
		require.Equal(t, want, got, expression)
	}
}

// TestEvalRefuses: a comparison with a missing name or a null value is an error, not true.
func TestEvalRefuses(t *testing.T) {
	for _, expression := range []string{
		`missing == null`, `empty == 0`, `x == x[0:2]`, `x + empty == 1`, `x[3] == 0`, `name < 3`, `none < 1`,
		`n.missing == 1`, `cos(n) < 1`, `n <`, `tasks.missing == 1`,
	} {
		_, err := clitest.Eval(expression, object(t))
		require.Error(t, err, expression)
	}
}
