package tasks

import (
	"encoding/binary"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/doona-dp/doona/relay/internal/store"
	"github.com/doona-dp/doona/wire/signing"
	"github.com/doona-dp/doona/wire/task"
)

// TestNoncesAreBounded: a ring must recognize the last store.KeptNonces nonces of each next hop, and keep no more.
func TestNoncesAreBounded(t *testing.T) {
	var n nonces
	one, other := task.SignKey{1}, task.SignKey{2}
	nonce := func(i int) (out signing.Nonce) {
		binary.BigEndian.PutUint64(out[:], uint64(i))
		return out
	}
	for i := range store.KeptNonces + 10 {
		require.True(t, n.fresh(one, nonce(i)))
	}
	require.False(t, n.fresh(one, nonce(store.KeptNonces+9)))
	require.False(t, n.fresh(one, nonce(10)))
	require.True(t, n.fresh(other, nonce(10)), "nonce of another next hop")
	require.Len(t, n.hops[one].seen, store.KeptNonces)
	require.True(t, n.fresh(one, nonce(9)), "forgotten")
}
