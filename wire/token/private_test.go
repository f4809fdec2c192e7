package token_test

import (
	"bytes"
	"crypto/sha256"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/doona-dp/doona/wire/token"
)

// TestOwnPrivateKey: an exponent that does not belong to its modulus must be refused, and its bytes must be cleared
// like those of a valid key.
func TestOwnPrivateKey(t *testing.T) {
	private, public := newKey(t)
	good := token.MarshalPrivate(private)
	const size, sum = 256, 512 // size: bytes of the modulus; sum: offset of the checksum
	changed := func(change func(raw []byte)) []byte {
		raw := bytes.Clone(good)
		change(raw[:sum])
		digest := sha256.Sum256(raw[:sum])
		copy(raw[sum:], digest[:])
		return raw
	}
	flipped := bytes.Clone(good)
	flipped[sum+31] ^= 1
	const form, modulus, exponent = "modulus, exponent and their checksum", "token key", "its exponent does not match"
	for name, bad := range map[string]struct {
		raw  []byte
		want string
	}{
		"nothing":          {nil, form},
		"short":            {bytes.Clone(good[:len(good)-1]), form},
		"long":             {append(bytes.Clone(good), 0), form},
		"its checksum":     {flipped, form},
		"an even modulus":  {changed(func(raw []byte) { raw[size-1] ^= 1 }), modulus},
		"a short modulus":  {changed(func(raw []byte) { raw[0] = 0 }), modulus},
		"a modulus of 0":   {changed(func(raw []byte) { clear(raw[:size]) }), modulus},
		"another modulus":  {changed(func(raw []byte) { raw[size-1] ^= 2 }), exponent},
		"another exponent": {changed(func(raw []byte) { raw[sum-1] ^= 2 }), exponent},
		"an exponent of 0": {changed(func(raw []byte) { clear(raw[size:]) }), exponent},
	} {
		_, err := token.OwnPrivateKey(bad.raw)
		require.ErrorContains(t, err, bad.want, name)
		require.Equal(t, make([]byte, len(bad.raw)), append([]byte{}, bad.raw...), name)
	}
	key, err := token.OwnPrivateKey(good)
	require.NoError(t, err)
	require.Equal(t, make([]byte, len(good)), good)
	require.Equal(t, public.ID(), key.Public().ID())
}
