package wasm_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/doona-dp/doona/planner"
	"github.com/doona-dp/doona/wasm"
)

func TestZZ(t *testing.T) {
	for _, q := range []planner.Query{
		{Name: "x", Protocol: "correlated", Query: "sum", Hi: 1, Padding: "none", Params: planner.Params{"max": 16}, Batch: 1e6, Honest: 1, Epsilon: 1, Delta: 1e-6},
		{Name: "x", Protocol: "correlated", Query: "sum", Hi: 1, Padding: "full", Params: planner.Params{"max": 16}, Batch: 1e6, Honest: 1, Epsilon: 1, Delta: 1e-6},
		{Name: "x", Protocol: "correlated", Query: "mean", Hi: 1, Padding: "none", Batch: 1e4, Honest: .9, Epsilon: 1, Delta: 1e-6},
	} {
		t0 := time.Now()
		draft, err := planner.Draft(q)
		if err != nil {
			t.Log(q, err)
			continue
		}
		t.Log(draft.Slots, draft.Params, time.Since(t0))
		f := signed(t, draft)
		module := start(t, wasm.Browser)
		for range 3 {
			t0 = time.Now()
			module.open(f.Task)
			t.Log("open", time.Since(t0))
		}
		require.NotNil(t, module)
	}
}
