package onion

import (
	"crypto/ecdh"
	"crypto/hpke"
	"crypto/rand"
	"encoding/hex"
	"testing"

	"github.com/cloudflare/circl/dh/x25519"
	"github.com/stretchr/testify/require"

	"github.com/doona-dp/doona/wire/task"
)

// oddShares returns key shares that an implementation of X25519 may treat specially: small ones, those at and above the
// field's prime, those of order 8, and random ones. Each comes with and without the highest bit, which X25519 must
// ignore.
func oddShares(t *testing.T) (shares [][32]byte) {
	t.Helper()
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
	for _, share := range shares[:len(shares):len(shares)] {
		share[31] ^= 0x80
		shares = append(shares, share)
	}
	return shares
}

// TestExchangesAgree compares circl's X25519 with crypto/ecdh's. Both must compute the same secrets and refuse the same
// shares.
func TestExchangesAgree(t *testing.T) {
	refused := 0
	for _, share := range oddShares(t) {
		key, err := ecdh.X25519().GenerateKey(rand.Reader)
		require.NoError(t, err)
		remote, err := ecdh.X25519().NewPublicKey(share[:])
		require.NoError(t, err)
		want, wantErr := key.ECDH(remote)
		var shared x25519.Key
		secret, theirs := x25519.Key(key.Bytes()), x25519.Key(share)
		ok := x25519.Shared(&shared, &secret, &theirs)
		require.Equal(t, wantErr == nil, ok, "share %x", share)
		if !ok {
			refused++
			continue
		}
		require.Equal(t, want, shared[:], "share %x", share)
	}
	require.Equal(t, 14, refused, "0, 1, -1, p, p + 1 and the two of order 8, each with both highest bits")
}

// TestFastOpensWhatPlainDoes: both unsealers must open what crypto/hpke seals, for messages of every size and any info
// string and associated data. Neither may open it after any bit, its context or its length has changed.
func TestFastOpensWhatPlainDoes(t *testing.T) {
	key, other := newX25519(t), newX25519(t)
	for size := range 120 {
		plaintext, info, aad := make([]byte, size), make([]byte, size*7%300), make([]byte, size%5)
		for _, b := range [][]byte{plaintext, info, aad} {
			rand.Read(b)
		}
		enc, sender, err := hpke.NewSender(key.public.key, hpke.HKDFSHA256(), hpke.AES128GCM(), info)
		require.NoError(t, err)
		ciphertext, err := sender.Seal(aad, plaintext)
		require.NoError(t, err)
		sealed := append(enc, ciphertext...)
		fast, plain := unsealers(t, key, info)
		for _, u := range []unsealer{fast, plain} {
			got, err := u.open(aad, sealed)
			require.NoError(t, err)
			require.Equal(t, string(plaintext), string(got))
		}
		before := string(sealed)
		requireNeither(t, key, append([]byte{0}, info...), aad, sealed)
		requireNeither(t, key, info, append([]byte{0}, aad...), sealed)
		requireNeither(t, other, info, aad, sealed)
		requireNeither(t, key, info, aad, sealed[:len(sealed)-1])
		requireNeither(t, key, info, aad, append(sealed[:len(sealed):len(sealed)], 0))
		for _, bit := range []int{0, 255, size * 5 % 256, 256, len(sealed)*8 - 1, 256 + size*11%(len(sealed)*8-256)} {
			changed := []byte(before)
			changed[bit/8] ^= 1 << (bit % 8)
			requireNeither(t, key, info, aad, changed)
		}
		require.Equal(t, before, string(sealed), "opening must not change its input")
	}
	for n := range 32 + aeadTag {
		requireNeither(t, key, nil, nil, make([]byte, n))
	}
}

// TestOddSharesOpenNothing: neither unsealer may open a ciphertext with another share than the sender's, including
// shares of low order. For shares that have a secret, both must derive the same keys.
func TestOddSharesOpenNothing(t *testing.T) {
	key := newX25519(t)
	fast, plain := unsealers(t, key, []byte("info"))
	secret := x25519.Key(keyBytes(t, key))
	opened := 0
	for _, share := range oddShares(t) {
		requireNeither(t, key, []byte("info"), nil, append(share[:], make([]byte, 40)...))
		theirs := x25519.Key(share)
		var shared x25519.Key
		refused := !x25519.Shared(&shared, &secret, &theirs)
		if refused {
			shared = x25519.Key{} // a secret of zeros, which everybody knows
		}
		aead, nonce, err := schedule(share[:], shared[:], key.public.key.Bytes(), hashInfo([]byte("info")))
		require.NoError(t, err)
		sealed := aead.Seal(share[:], nonce[:nonceSize], []byte("message"), nil)
		if refused {
			requireNeither(t, key, []byte("info"), nil, sealed)
			continue
		}
		for _, u := range []unsealer{fast, plain} {
			got, err := u.open(nil, sealed)
			require.NoError(t, err, "share %x", share)
			require.Equal(t, "message", string(got))
		}
		opened++
	}
	require.Equal(t, 2*770-14, opened)
}

// TestOtherKEMsOpenPlainly: for KEMs other than X25519, opening must use crypto/hpke, not the fast unsealer.
func TestOtherKEMsOpenPlainly(t *testing.T) {
	for _, name := range []task.KEM{task.KEMMLKEM768, task.KEMMLKEM768X25519} {
		key, err := GenerateKey(name)
		require.NoError(t, err)
		require.Nil(t, fastUnsealer(key, nil))
	}
}

// TestOpeningAllocatesLittle: opening a message must take at most 10 allocations.
func TestOpeningAllocatesLittle(t *testing.T) {
	key := newX25519(t)
	sealed, err := seal(key.public, Context{}, 3, kindSlot, make([]byte, 40))
	require.NoError(t, err)
	fast, _ := unsealers(t, key, Context{}.info(key.public.id))
	require.LessOrEqual(t, testing.AllocsPerRun(200, func() {
		_, err = fast.open(aad(3, kindSlot), sealed)
	}), 10.)
	require.NoError(t, err)
}

func newX25519(t testing.TB) *PrivateKey {
	t.Helper()
	key, err := GenerateKey(task.KEMX25519)
	require.NoError(t, err)
	return key
}

func keyBytes(t testing.TB, key *PrivateKey) []byte {
	t.Helper()
	raw, err := key.Bytes()
	require.NoError(t, err)
	return raw
}

func unsealers(t testing.TB, key *PrivateKey, info []byte) (fast, plain unsealer) {
	t.Helper()
	fast = newUnsealer(key, info)
	require.IsType(t, &x25519Unsealer{}, fast)
	library, err := hpke.DHKEM(ecdh.X25519()).NewPrivateKey(keyBytes(t, key))
	require.NoError(t, err)
	return fast, &plainUnsealer{&PrivateKey{serialized: key.serialized, key: library, enc: key.enc}, info}
}

func requireNeither(t *testing.T, key *PrivateKey, info, aad, sealed []byte) {
	t.Helper()
	fast, plain := unsealers(t, key, info)
	for _, u := range []unsealer{fast, plain} {
		_, err := u.open(aad, sealed)
		require.ErrorIs(t, err, ErrOpen)
	}
}

// BenchmarkOpen opens a message with both unsealers. For comparison, it measures the work that no implementation can
// avoid: one key exchange, and the least hashing and deciphering that the format allows.
func BenchmarkOpen(b *testing.B) {
	key := newX25519(b)
	info := Context{}.info(key.public.id)
	sealed, err := seal(key.public, Context{}, 3, kindSlot, make([]byte, 40))
	require.NoError(b, err)
	fast, plain := unsealers(b, key, info)
	for name, u := range map[string]unsealer{"fast": fast, "plain": plain} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				_, err := u.open(aad(3, kindSlot), sealed)
				require.NoError(b, err)
			}
		})
	}
	b.Run("exchange", func(b *testing.B) {
		secret, share := x25519.Key(keyBytes(b, key)), x25519.Key(sealed[:32])
		var shared x25519.Key
		for b.Loop() {
			x25519.Shared(&shared, &secret, &share)
		}
	})
}
