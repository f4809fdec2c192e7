package collect_test

import (
	"runtime"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/doona-dp/doona/internal/testing/memscan"
	"github.com/doona-dp/doona/wire/keyfile"
)

// TestAnErasedKeyIsNotInMemory: after an epoch's signed end, the verifier's memory must not contain the epoch's key.
func TestAnErasedKeyIsNotInMemory(t *testing.T) {
	p := newPulled(t, past)
	p.relay.Serve(t, 0, 0, p.batch(t, 0))
	keys := memscan.File(t, p.VerifierKeys("task0"))
	_, puller := p.start(t)
	require.NoError(t, puller.Pull(t.Context()))
	memscan.RequireFound(t, keys[0], keys[1])
	p.relay.End(0)
	require.NoError(t, puller.Pull(t.Context()))
	require.ErrorIs(t, p.keyOf(t, 0), keyfile.ErrErased)
	memscan.RequireGone(t, keys[:1], keys[1])
	runtime.KeepAlive(puller)
}
