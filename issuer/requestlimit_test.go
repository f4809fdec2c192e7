package issuer

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/doona-dp/doona/wire/problem"
)

// TestRequestLimit: one client may use an eighth of the free capacity, and one of two tasks at most as much as it
// leaves free. Released capacity must be free again.
func TestRequestLimit(t *testing.T) {
	p := newRequestLimit(16, 2)
	a, b := &hostedTask{}, &hostedTask{}
	take := func(want problem.Name, s *hostedTask, client string) {
		t.Helper()
		require.Equal(t, want, p.take(s, client))
	}
	take("", a, "ann")
	take("", b, "ann")
	take(problem.SlowDown, a, "ann")
	for _, name := range []string{"bob", "cem", "dot", "eve", "fay", "gus", "hal"} {
		take("", a, name)
	}
	require.Equal(t, 9, p.inFlight())
	take(problem.Overloaded, a, "ida")
	take("", b, "ida")
	p.release(a, "ann")
	take(problem.SlowDown, b, "ann")
	p.release(b, "ann")
	take("", b, "ann")
	for _, name := range []string{"bob", "cem"} {
		p.release(a, name)
	}
	take("", a, "ida")

	oneTask := newRequestLimit(8, 1)
	for _, name := range []string{"ann", "bob", "cem", "dot", "eve", "fay", "gus", "hal"} {
		require.Empty(t, oneTask.take(a, name))
	}
	require.Equal(t, problem.Overloaded, oneTask.take(a, "ida"))
	for _, name := range []string{"ann", "bob", "cem", "dot", "eve", "fay", "gus", "hal"} {
		oneTask.release(a, name)
	}
	require.Zero(t, oneTask.inFlight())
	require.Empty(t, oneTask.clients)
	require.Empty(t, oneTask.tasks)
}
