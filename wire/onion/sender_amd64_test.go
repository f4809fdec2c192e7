package onion

import (
	"crypto/hpke"
	"crypto/rand"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/doona-dp/doona/wire/task"
)

// TestFastSealOpens: crypto/hpke must open what fastSeal seals, for messages of every size, and only in the right
// context. Two ciphertexts of the same message must have nothing in common.
func TestFastSealOpens(t *testing.T) {
	key, err := GenerateKey(task.KEMX25519)
	require.NoError(t, err)
	for size := range 200 {
		plaintext, info, aad := make([]byte, size), make([]byte, size*7%90), make([]byte, size%4)
		for _, b := range [][]byte{plaintext, info, aad} {
			rand.Read(b)
		}
		sealed, ok, err := fastSeal(key.public, info, aad, plaintext)
		require.NoError(t, err)
		require.True(t, ok)
		require.Len(t, sealed, 32+size+aeadTag)
		recipient, err := hpke.NewRecipient(sealed[:32], key.key, hpke.HKDFSHA256(), hpke.AES128GCM(), info)
		require.NoError(t, err)
		opened, err := recipient.Open(aad, sealed[32:])
		require.NoError(t, err)
		require.Equal(t, string(plaintext), string(opened))
		_, err = OpenWith(key, append(info, 0), aad, sealed)
		require.ErrorIs(t, err, ErrOpen)
		again, _, err := fastSeal(key.public, info, aad, plaintext)
		require.NoError(t, err)
		require.NotEqual(t, sealed[:32], again[:32])
		require.NotEqual(t, sealed[32:], again[32:])
	}
}

// TestFastSealRefuses: fastSeal must refuse public keys of low order, and leave other KEMs to crypto/hpke.
func TestFastSealRefuses(t *testing.T) {
	public, err := ParsePublicKey(task.KEMX25519, append([]byte{1}, make([]byte, 31)...))
	require.NoError(t, err)
	_, ok, err := fastSeal(public, nil, nil, []byte("message"))
	require.True(t, ok)
	require.ErrorIs(t, err, errLowOrder)
	for _, name := range []task.KEM{task.KEMMLKEM768, task.KEMMLKEM768X25519} {
		key, err := GenerateKey(name)
		require.NoError(t, err)
		_, ok, err := fastSeal(key.public, nil, nil, nil)
		require.NoError(t, err)
		require.False(t, ok)
	}
}

func BenchmarkSeal(b *testing.B) {
	key, err := GenerateKey(task.KEMX25519)
	require.NoError(b, err)
	plaintext := make([]byte, 90)
	b.Run("fast", func(b *testing.B) {
		for b.Loop() {
			_, _, err := fastSeal(key.public, plaintext, plaintext[:3], plaintext)
			require.NoError(b, err)
		}
	})
	b.Run("crypto", func(b *testing.B) {
		for b.Loop() {
			_, sender, err := hpke.NewSender(key.public.key, hpke.HKDFSHA256(), hpke.AES128GCM(), plaintext)
			require.NoError(b, err)
			_, err = sender.Seal(plaintext[:3], plaintext)
			require.NoError(b, err)
		}
	})
}
