package relay_test

import (
	"fmt"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/doona-dp/doona/internal/testing/memscan"
	"github.com/doona-dp/doona/internal/testing/relaytest"
)

// TestErasedKeysAreNotInMemory: after an epoch, a relay's memory must not hold the epoch's HPKE key, nor the root of
// the secret from which the epoch's other keys were derived. The keys of later epochs must still be there.
func TestErasedKeysAreNotInMemory(t *testing.T) {
	c := relaytest.New(t, relaytest.Options{})
	c.StartAll(t)
	var over, later []*memscan.Needle
	for hop := range 2 {
		folder := filepath.Join(c.Dir, fmt.Sprintf("relay%d", hop+1))
		keys := memscan.File(t, filepath.Join(folder, "task0.keys"))
		secret := memscan.File(t, filepath.Join(folder, "relay.secret"))
		require.Len(t, secret, 1, "the secret file must hold only the root key")
		keys[0].Name, keys[1].Name = fmt.Sprintf("relay %d, epoch 0", hop), fmt.Sprintf("relay %d, epoch 1", hop)
		secret[0].Name = fmt.Sprintf("relay %d, root of the secret", hop)
		over, later = append(over, keys[0], secret[0]), append(later, keys[1])
	}
	memscan.RequireFound(t, over...)
	for i := range 13 { // a full batch and three more
		require.NoError(t, c.Post(t.Context(), 0, c.Seal(t, 0, uint64(i)), relaytest.Network(i)))
	}
	c.Pull(t, 0, 0)
	c.Clock.Advance(relaytest.Epoch + 2*time.Second)
	for hop := range 2 {
		waitState(t, c, hop, 0, "erased")
	}
	memscan.RequireGone(t, over, later...)
}
