package token_test

import (
	"bytes"
	"crypto"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha256"
	"crypto/sha512"
	"encoding/hex"
	"encoding/json"
	"math/big"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/doona-dp/doona/wire/onion"
	"github.com/doona-dp/doona/wire/task"
	"github.com/doona-dp/doona/wire/token"
)

func newKey(t testing.TB) (*rsa.PrivateKey, *token.PublicKey) {
	t.Helper()
	private, err := rsa.GenerateKey(rand.Reader, 2048)
	require.NoError(t, err)
	public, err := token.NewPublicKey(&private.PublicKey)
	require.NoError(t, err)
	return private, public
}

func issue(t testing.TB, private *rsa.PrivateKey, key *token.PublicKey, challenge []byte) []byte {
	t.Helper()
	pending, err := token.Blind(key, challenge)
	require.NoError(t, err)
	require.Len(t, pending.Request, token.RequestSize)
	reply, err := token.Sign(private, key, pending.Request)
	require.NoError(t, err)
	tok, err := pending.Finalize(reply)
	require.NoError(t, err)
	require.Len(t, tok, token.Size)
	return tok
}

func TestVerify(t *testing.T) {
	private, key := newKey(t)
	_, stranger := newKey(t)
	challenge, digest := []byte("challenge"), token.NewDigest([]byte("challenge"))
	tok := issue(t, private, key, challenge)
	require.NoError(t, token.Verify(key, digest, tok))
	require.ErrorIs(t, token.Verify(stranger, digest, tok), token.ErrInvalid)
	require.ErrorIs(t, token.Verify(key, sha256.Sum256([]byte("another")), tok), token.ErrInvalid)
	for _, bad := range [][]byte{nil, tok[:len(tok)-1], append(bytes.Clone(tok), 0)} {
		require.ErrorIs(t, token.Verify(key, digest, bad), token.ErrInvalid)
	}
	for at := range tok {
		bad := bytes.Clone(tok)
		bad[at] ^= 0x10
		require.ErrorIs(t, token.Verify(key, digest, bad), token.ErrInvalid, "byte %d", at)
	}
	// The test changes one byte before the issuer signs. Only a change of the nonce may give a valid token; another
	// challenge or key id must not.
	for at, want := range map[int]error{2: nil, 33: nil, 34: token.ErrInvalid, 65: token.ErrInvalid,
		66: token.ErrInvalid, 97: token.ErrInvalid} {
		signed := bytes.Clone(tok[:98])
		signed[at] ^= 1
		hash := sha512.Sum384(signed)
		signature, err := rsa.SignPSS(rand.Reader, private, crypto.SHA384, hash[:], &rsa.PSSOptions{SaltLength: 48})
		require.NoError(t, err)
		require.ErrorIs(t, token.Verify(key, digest, append(signed, signature...)), want, "byte %d", at)
	}
	// A verifier that first reduces the signature modulo N would accept s + N, too. Verify must not.
	s := new(big.Int).SetBytes(tok[98:])
	if s.Add(s, private.N).BitLen() <= 2048 {
		require.ErrorIs(t, token.Verify(key, digest, append(bytes.Clone(tok[:98]), s.FillBytes(make([]byte, 256))...)),
			token.ErrInvalid)
	}
}

func TestRequestsAndReplies(t *testing.T) {
	private, key := newKey(t)
	other, _ := newKey(t)
	pending, err := token.Blind(key, []byte("challenge"))
	require.NoError(t, err)
	for want, change := range map[string]func([]byte) []byte{
		"257 bytes":        func(b []byte) []byte { return b[:257] },
		"260 bytes":        func(b []byte) []byte { return append(b, 0) },
		"token type":       func(b []byte) []byte { b[1] = 1; return b },
		"truncated key id": func(b []byte) []byte { b[2] ^= 1; return b },
		"blinded message":  func(b []byte) []byte { return append(b[:3], bytes.Repeat([]byte{0xff}, 256)...) },
	} {
		_, err := token.Sign(private, key, change(bytes.Clone(pending.Request)))
		require.ErrorContains(t, err, want)
	}
	reply, err := token.Sign(private, key, pending.Request)
	require.NoError(t, err)
	again, err := token.Sign(private, key, pending.Request)
	require.NoError(t, err)
	require.Equal(t, reply, again, "a retry must get the same reply")
	wrong, err := token.Sign(other, key, pending.Request) // signs with another private key
	if err == nil {
		_, err = pending.Finalize(wrong)
	}
	require.Error(t, err)
	for _, bad := range [][]byte{nil, reply[:255], append(bytes.Clone(reply), 0), make([]byte, 256)} {
		_, err = pending.Finalize(bad)
		require.Error(t, err)
	}
	_, err = pending.Finalize(reply)
	require.NoError(t, err)
}

// TestIssuerCannotLink: any request could belong to any token. For every request z and token message m there is exactly
// one blinding factor r with z = m·rᵉ. The issuer can compute this r, and finds one for each pair. So what the issuer
// saw fits all tokens equally.
func TestIssuerCannotLink(t *testing.T) {
	private, key := newKey(t)
	const people = 4
	var blinded, signatures []*big.Int
	for range people {
		pending, err := token.Blind(key, []byte("challenge"))
		require.NoError(t, err)
		reply, err := token.Sign(private, key, pending.Request)
		require.NoError(t, err)
		tok, err := pending.Finalize(reply)
		require.NoError(t, err)
		blinded = append(blinded, new(big.Int).SetBytes(pending.Request[3:]))
		signatures = append(signatures, new(big.Int).SetBytes(tok[98:]))
	}
	e := big.NewInt(int64(private.E))
	for i, z := range blinded {
		for j, s := range signatures {
			r := new(big.Int).ModInverse(s, private.N)
			r.Mul(r, new(big.Int).Exp(z, private.D, private.N)).Mod(r, private.N)
			m := new(big.Int).Exp(s, e, private.N)
			require.Zero(t, z.Cmp(m.Mul(m, new(big.Int).Exp(r, e, private.N)).Mod(m, private.N)),
				"request %d, token %d", i, j)
		}
	}
	require.NotEqual(t, blinded[0], blinded[1])
}

func TestPublicKeyHasOneForm(t *testing.T) {
	private, key := newKey(t)
	again, err := token.ParsePublicKey(key.Bytes())
	require.NoError(t, err)
	require.Equal(t, onion.KeyID(sha256.Sum256(key.Bytes())), again.ID())
	for at := range key.Bytes() {
		if at >= len(key.Bytes())-261 && at < len(key.Bytes())-5 { // inside the modulus
			continue
		}
		bad := key.Bytes()
		bad[at] ^= 1
		_, err := token.ParsePublicKey(bad)
		require.ErrorContains(t, err, "token key", "byte %d", at)
	}
	short := new(big.Int).Rsh(private.N, 1)
	short.SetBit(short, 0, 1)
	even := new(big.Int).Sub(private.N, big.NewInt(1))
	for _, bad := range []*rsa.PublicKey{{N: short, E: 65537}, {N: even, E: 65537}, {N: private.N, E: 3},
		{N: new(big.Int).Lsh(private.N, 1), E: 65537}} {
		_, err := token.NewPublicKey(bad)
		require.ErrorContains(t, err, "token key")
	}
}

func TestHeader(t *testing.T) {
	for _, tok := range [][]byte{{}, {1}, bytes.Repeat([]byte{0xfb}, token.Size)} {
		got, err := token.ParseHeader(token.Header(tok))
		require.NoError(t, err)
		require.Equal(t, tok, got)
	}
	got, err := token.ParseHeader("privatetoken token=AQ==")
	require.NoError(t, err)
	require.Equal(t, []byte{1}, got)
	for _, bad := range []string{"", "PrivateToken", `PrivateToken token="AQ"`, `PrivateToken token="AR=="`,
		`PrivateToken token="A+=="`, "Bearer token=AQ==",
		`PrivateToken token="AQ==", x=1`, "PrivateToken token=\"AQ\n==\"", `PrivateToken challenge="AQ=="`} {
		_, err := token.ParseHeader(bad)
		require.ErrorContains(t, err, "Authorization", bad)
	}
}

func TestDirectory(t *testing.T) {
	_, key := newKey(t)
	raw, err := token.Directory("token-request", key)
	require.NoError(t, err)
	keys, err := token.ParseDirectory(raw)
	require.NoError(t, err)
	require.Equal(t, key.Bytes(), keys[key.ID()].Bytes())
	keys, err = token.ParseDirectory(bytes.Replace(raw, []byte(`"token-type":2`), []byte(`"token-type":1`), 1))
	require.NoError(t, err)
	require.Empty(t, keys, "keys of other types must be ignored")
	for _, bad := range []string{"", "[]", strings.Replace(string(raw), "MIIB", "+IIB", 1),
		strings.Replace(string(raw), "MIIB", "MIIA", 1)} {
		_, err := token.ParseDirectory([]byte(bad))
		require.Error(t, err, bad)
	}
}

// TestChallengeNamesTaskAndEpoch: the challenge must name the task, the epoch and the hosts, in the layout of RFC 9577.
func TestChallengeNamesTaskAndEpoch(t *testing.T) {
	named := &task.Task{Clients: task.Clients{Issuer: task.Party{URL: "https://issuer.example:8443/a/b"}},
		Relays: []task.Party{{URL: "http://[::1]:80"}}}
	got := token.Challenge(named, task.ID{1}, 2)
	context := sha256.Sum256([]byte("doona-v1 token\x01" + strings.Repeat("\x00", 31) +
		"\x00\x00\x00\x00\x00\x00\x00\x02"))
	require.Equal(t, "\x00\x02\x00\x13issuer.example:8443\x20"+string(context[:])+"\x00\x08[::1]:80", string(got))
}

func FuzzParseHeader(f *testing.F) {
	f.Add(token.Header([]byte{1, 2, 3}))
	f.Fuzz(func(t *testing.T, header string) {
		tok, err := token.ParseHeader(header)
		if err != nil {
			return
		}
		again, err := token.ParseHeader(token.Header(tok))
		require.NoError(t, err)
		require.Equal(t, tok, again)
	})
}

func FuzzParseDirectory(f *testing.F) {
	f.Add([]byte(`{"issuer-request-uri":"x","token-keys":[{"token-type":2,"token-key":"AQ=="}]}`))
	f.Fuzz(func(t *testing.T, in []byte) {
		keys, err := token.ParseDirectory(in)
		if err != nil {
			return
		}
		for id, key := range keys {
			again, err := token.ParsePublicKey(key.Bytes())
			require.NoError(t, err)
			require.Equal(t, id, again.ID())
		}
	})
}

func BenchmarkVerify(b *testing.B) {
	private, key := newKey(b)
	digest := sha256.Sum256([]byte("challenge"))
	tok := issue(b, private, key, []byte("challenge"))
	for b.Loop() {
		if err := token.Verify(key, digest, tok); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkSign(b *testing.B) {
	private, key := newKey(b)
	pending, err := token.Blind(key, []byte("challenge"))
	require.NoError(b, err)
	for b.Loop() {
		if _, err := token.Sign(private, key, pending.Request); err != nil {
			b.Fatal(err)
		}
	}
}

// draftVector is one test vector in testdata/draft11.json.
type draftVector struct {
	PkS       string `json:"pkS"`
	Challenge string `json:"token_challenge"`
	Nonce     string `json:"nonce"`
	Request   string `json:"token_request"`
	Response  string `json:"token_response"`
	Token     string `json:"token"`
}

// TestStandardVectors checks the test vectors of the standard's authors; see testdata/README.md.
func TestStandardVectors(t *testing.T) {
	raw, err := os.ReadFile("testdata/draft11.json")
	require.NoError(t, err)
	var vectors []draftVector
	require.NoError(t, json.Unmarshal(raw, &vectors))
	require.NotEmpty(t, vectors)
	unhex := func(s string) []byte {
		out, err := hex.DecodeString(s)
		require.NoError(t, err)
		return out
	}
	for _, v := range vectors {
		key, err := token.ParsePublicKey(unhex(v.PkS))
		require.NoError(t, err)
		tok := unhex(v.Token)
		require.NoError(t, token.Verify(key, sha256.Sum256(unhex(v.Challenge)), tok))
		require.Equal(t, unhex(v.Nonce), tok[2:34])
		blinded, err := token.BlindedMessage(key, unhex(v.Request))
		require.NoError(t, err)
		n := new(big.Int).SetBytes(unhex(v.PkS)[len(unhex(v.PkS))-261:][:256])
		signed := new(big.Int).Exp(new(big.Int).SetBytes(unhex(v.Response)), big.NewInt(65537), n)
		require.Equal(t, blinded, signed.FillBytes(make([]byte, 256)))
	}
}
