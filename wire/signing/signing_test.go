package signing_test

import (
	"crypto/ed25519"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/doona-dp/doona/wire/signing"
)

// TestPurposesAreSeparate: a signature for one purpose must be invalid for every other, even if bytes move between the
// purpose and the body.
func TestPurposesAreSeparate(t *testing.T) {
	key := ed25519.NewKeyFromSeed(make([]byte, 32))
	public := key.Public().(ed25519.PublicKey)
	purposes := []signing.Purpose{signing.Task, signing.KeyList, signing.Manifest, signing.Pull,
		signing.Confirm, signing.AskEnd, signing.End, signing.Updates, signing.Time,
		signing.Succeed, signing.Owner, signing.Statement, signing.Rotation}
	for _, made := range purposes {
		signature := signing.Sign(key, made, []byte("body"))
		for _, used := range purposes {
			require.Equal(t, made == used, signing.Verify(public, used, []byte("body"), signature), "%s used as %s",
				made, used)
		}
		require.True(t, ed25519.Verify(public, []byte("doona-v1 "+string(made)+"\x00body"), signature))
		require.False(t, signing.Verify(public, made, []byte("bodY"), signature))
		require.False(t, signing.Verify(public[:31], made, []byte("body"), signature))
		require.False(t, signing.Verify(public, made, []byte("body"), signature[:63]))
	}
}
