package secret_test

import (
	"bytes"
	"crypto/aes"
	"crypto/cipher"
	"crypto/ecdh"
	"crypto/hmac"
	"crypto/mlkem"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/doona-dp/doona/internal/secret"
)

// TestBytes: a cleared key is overwritten and cannot be used. No key is printed or encoded.
func TestBytes(t *testing.T) {
	raw := []byte("a key of some thirty-two bytes!!")
	b := secret.Own(raw)
	for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%x", "%q", "%d"} {
		require.Equal(t, "(secret)", fmt.Sprintf(verb, b))
	}
	text, err := json.Marshal(map[string]any{"key": b})
	require.NoError(t, err)
	require.Equal(t, `{"key":"(secret)"}`, string(text))
	var log bytes.Buffer
	slog.New(slog.NewJSONHandler(&log, nil)).Info("x", "key", b)
	require.Contains(t, log.String(), "(secret)")

	var used int
	require.True(t, b.Use(func(key []byte) { used = len(key) }))
	require.Equal(t, 32, used)
	b.Clear()
	require.Equal(t, make([]byte, 32), raw)
	require.False(t, b.Use(func([]byte) { t.Error("used") }))
	b.Clear()
}

// TestClearWaits: Clear must not overwrite a key while it is in use.
func TestClearWaits(t *testing.T) {
	b := secret.Own(bytes.Repeat([]byte{7}, 32))
	var clearing sync.WaitGroup
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			for b.Use(func(key []byte) {
				if !bytes.Equal(key, bytes.Repeat([]byte{7}, 32)) {
					t.Error("it is cleared in use")
				}
			}) {
				continue
			}
		})
	}
	clearing.Go(b.Clear)
	clearing.Wait()
	all.Wait()
}

func TestText(t *testing.T) {
	var document struct{ Key secret.Text }
	read := func(text string) error { return json.Unmarshal([]byte(`{"key":`+text+`}`), &document) }
	key := []byte("any key at all")
	text := secret.AppendText(make([]byte, 0, secret.TextLen(len(key))), key)
	require.NoError(t, read(`"`+string(text)+`"`))
	require.True(t, document.Key.Use(func(got []byte) { require.Equal(t, key, got) }))
	for _, bad := range []string{`7`, `[]`, `"*"`, `"QQ=="`, `"QR"`, `"Q\nQ"`, `"QQQ\u0051"`, "null"} {
		err := read(bad)
		require.Error(t, err, bad)
		require.NotContains(t, err.Error(), strings.Trim(bad, `"`), "it is quoted")
	}
}

// TestAESGCM compares the cipher with Go's AES-GCM, and checks that it fails after Clear.
func TestAESGCM(t *testing.T) {
	key := bytes.Repeat([]byte{1}, 32)
	block, err := aes.NewCipher(key)
	require.NoError(t, err)
	plain, err := cipher.NewGCM(block)
	require.NoError(t, err)
	c, err := secret.NewAESGCM(key)
	require.NoError(t, err)
	require.Equal(t, make([]byte, 32), key, "the key is left")
	require.Equal(t, []int{plain.NonceSize(), plain.Overhead()}, []int{c.NonceSize(), c.Overhead()})
	nonce, text := make([]byte, 12), []byte("some text")
	sealed := c.Seal(nil, nonce, text, nil)
	require.Equal(t, plain.Seal(nil, nonce, text, nil), sealed)
	opened, err := c.Open(nil, nonce, sealed, nil)
	require.NoError(t, err)
	require.Equal(t, text, opened)

	c.Clear()
	_, err = c.Open(nil, nonce, sealed, nil)
	require.ErrorIs(t, err, secret.ErrCleared)
	in := append(make([]byte, 0, 64), text...)
	late := c.Seal(in[:0], nonce, in, nil)
	require.Len(t, late, len(sealed))
	require.NotEqual(t, sealed, late)
	require.NotContains(t, string(late), string(text))
	c.Clear()
	_, err = secret.NewAESGCM(make([]byte, 5))
	require.Error(t, err)
}

// TestOverwrite: with this version of Go, the key objects of all libraries in use can be overwritten.
func TestOverwrite(t *testing.T) {
	block, err := aes.NewCipher(make([]byte, 32))
	require.NoError(t, err)
	require.True(t, secret.Overwrite(block))
	block, err = aes.NewCipher(make([]byte, 32))
	require.NoError(t, err)
	aead, err := cipher.NewGCM(block)
	require.NoError(t, err)
	require.True(t, secret.Overwrite(aead))
	key, err := mlkem.GenerateKey768()
	require.NoError(t, err)
	require.NotEqual(t, make([]byte, mlkem.SeedSize), key.Bytes())
	require.True(t, secret.Overwrite(key))
	require.Equal(t, make([]byte, mlkem.SeedSize), key.Bytes())
	exchange, err := ecdh.X25519().NewPrivateKey(bytes.Repeat([]byte{1}, 32))
	require.NoError(t, err)
	require.True(t, secret.OverwriteField(exchange, "privateKey"))
	require.Equal(t, make([]byte, 32), exchange.Bytes())
	require.False(t, secret.OverwriteField(exchange, "curve"))
	require.False(t, secret.OverwriteField(exchange, "none"))
	require.False(t, secret.Overwrite(exchange))
	require.False(t, secret.Overwrite(&struct{ a, b *int }{}))
	require.False(t, secret.Overwrite(&struct{ a *int }{}))
}

// TestHMAC compares HMAC with crypto/hmac.
func TestHMAC(t *testing.T) {
	for size := range 1200 {
		key, text := bytes.Repeat([]byte{byte(size)}, size%65), bytes.Repeat([]byte{byte(size + 1)}, size)
		want := hmac.New(sha256.New, key)
		want.Write(text)
		got := make([]byte, 1+size%32)
		secret.HMAC(got, key, text[:size/3], text[size/3:])
		require.Equal(t, want.Sum(nil)[:len(got)], got)
	}
	require.Panics(t, func() { secret.HMAC(make([]byte, 32), make([]byte, 65)) })
	if got := make([]byte, 32); !raceBuild {
		require.Zero(t, testing.AllocsPerRun(100, func() { secret.HMAC(got, got[:7], got) }))
	}
}

func BenchmarkHMAC(b *testing.B) {
	out := make([]byte, 32)
	library := hmac.New(sha256.New, out)
	b.Run("here", func(b *testing.B) {
		for b.Loop() {
			secret.HMAC(out, out, out)
		}
	})
	b.Run("library, made before", func(b *testing.B) {
		for b.Loop() {
			library.Reset()
			library.Write(out)
			library.Sum(out[:0])
		}
	})
}
