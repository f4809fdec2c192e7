package onion

import (
	"crypto/ecdh"
	"crypto/rand"
	"encoding/hex"
	"testing"

	"github.com/cloudflare/circl/dh/x25519"
	"github.com/stretchr/testify/require"
)

// TestExchangesAgree holds circl's X25519 against crypto/ecdh's: random shares, small ones, those at
// and above the field's prime, with and without the highest bit, which both must ignore. Where one
// refuses, so must the other.
func TestExchangesAgree(t *testing.T) {
	var shares [][32]byte
	for i := range 256 {
		small, large := [32]byte{byte(i)}, [32]byte{byte(i)}
		for j := 1; j < 32; j++ {
			large[j] = 0xff
		}
		var random [32]byte
		_, _ = rand.Read(random[:])
		shares = append(shares, small, large, random)
	}
	for _, order8 := range []string{"e0eb7a7c3b41b8ae1656e3faf19fc46ada098deb9c32b1fd866205165f49b800",
		"5f9c95bca3508c24b1d0b1559c83ef5b04445cc4581c8e86d8224eddd09f1157"} {
		share, err := hex.DecodeString(order8)
		require.NoError(t, err)
		shares = append(shares, [32]byte(share))
	}
	refused := 0
	for _, share := range shares {
		for _, top := range []byte{0, 0x80} {
			share[31] = share[31]&0x7f | top
			key, err := ecdh.X25519().GenerateKey(rand.Reader)
			require.NoError(t, err)
			remote, err := ecdh.X25519().NewPublicKey(share[:])
			require.NoError(t, err)
			want, wantErr := key.ECDH(remote)
			got, err := (&exchanger{x25519.Key(key.Bytes()), key.PublicKey()}).ECDH(remote)
			require.Equal(t, wantErr == nil, err == nil, "share %x", share)
			require.Equal(t, want, got, "share %x", share)
			if err != nil {
				refused++
			}
		}
	}
	require.Equal(t, 14, refused, "0, 1, -1, p, p + 1 and the two of order 8, each with both highest bits")
}
