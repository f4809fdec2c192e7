// Package token implements the anonymous tokens that limit how often a person can report: Privacy Pass tokens of type
// 2, blind RSA signatures of 2048 bits ([RFC 9577], [RFC 9578], [RFC 9474]).
//
//	client                                issuer                     first relay
//	Blind(key, challenge) → Request  ───▶  Sign        (who asks)
//	Pending.Finalize      ◀───────────────  response
//	Header(token) with a report ─────────────────────────────────────▶  Verify  (not who)
//
// Unlinkability: the issuer sees m·rᵉ mod N for a uniform r that the client forgets. That value is uniform on the
// units of N for every m, so it is independent of the token (m, m^d) that the relay sees. This also holds for
// maliciously chosen keys, because m contains 48 random bytes of salt and a random nonce ([RFC 9474] section 7.3),
// provided that all clients of an epoch use one key. The task ensures that: it names the hash of the issuer's list of
// key ids, one per epoch, and clients use no other key.
//
// A token is valid in one task and epoch only: the signed challenge names both.
//
// [RFC 9474]: https://www.rfc-editor.org/rfc/rfc9474 [RFC 9577]: https://www.rfc-editor.org/rfc/rfc9577 [RFC 9578]:
// https://www.rfc-editor.org/rfc/rfc9578
package token

import (
	"bytes"
	"crypto"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha256"
	"crypto/sha512"
	"crypto/subtle"
	"encoding/base64"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/cloudflare/circl/blindsign/blindrsa"

	"github.com/doona-dp/doona/internal/invalid"
	"github.com/doona-dp/doona/wire/task"
)

// tokenType is the number that [RFC 9578] gives to blind RSA signatures with 2048 bits.
const tokenType = 0x0002

// Sizes of what parties send, in bytes.
const (
	modulusSize = 256
	nonceSize   = 32
	inputSize   = 2 + nonceSize + 32 + 32 // type ‖ nonce ‖ SHA-256(challenge) ‖ key id
	Size        = inputSize + modulusSize // a token: input ‖ signature
	RequestSize = 2 + 1 + modulusSize     // type ‖ last byte of the key id ‖ blinded message
	ReplySize   = modulusSize             // blind signature
)

// Media types of [RFC 9578].
const (
	RequestType   = "application/private-token-request"
	ReplyType     = "application/private-token-response"
	DirectoryType = "application/private-token-issuer-directory"
)

// pss holds the parameters of the scheme RSABSSA-SHA384-PSS-Deterministic.
var pss = &rsa.PSSOptions{Hash: crypto.SHA384, SaltLength: 48}

// Challenge returns the TokenChallenge ([RFC 9577] section 2.1) of a task's epoch:
//
//	be16(2) ‖ opaque16(issuer's host) ‖ opaque8(context) ‖ opaque16(first relay's host)
//	context = SHA-256("doona-v1 token" ‖ task id ‖ be64(epoch))
//
// The task must be valid and have clients with tokens.
func Challenge(t *task.Task, id task.ID, epoch uint64) []byte {
	context := sha256.New()
	fmt.Fprintf(context, "doona-v%d token", task.Version)
	context.Write(binary.BigEndian.AppendUint64(id[:], epoch))
	out := binary.BigEndian.AppendUint16(nil, tokenType)
	out = opaque16(out, host(t.Clients.Issuer.URL))
	out = context.Sum(append(out, sha256.Size))
	return opaque16(out, host(t.Relays[0].URL))
}

func opaque16(out []byte, s string) []byte {
	return append(binary.BigEndian.AppendUint16(out, uint16(len(s))), s...)
}

// host returns the host, with port, of a URL in a task: the part between "//" and the path.
func host(url string) string {
	_, rest, _ := strings.Cut(url, "//")
	authority, _, _ := strings.Cut(rest, "/")
	return authority
}

// Digest is the SHA-256 of a [Challenge]. Each token contains the digest of its challenge.
type Digest [32]byte

// NewDigest returns the digest of a challenge.
func NewDigest(challenge []byte) Digest { return sha256.Sum256(challenge) }

// Pending is a token that waits for its issuer's signature. It holds the secret that links the request to the token:
// discard it after Finalize.
type Pending struct {
	Request []byte // TokenRequest, to send to the issuer.

	input  []byte
	client blindrsa.Client
	state  blindrsa.State
}

// Blind begins a token for a challenge. key must be the key that the task names for the epoch ([FetchKey]).
func Blind(key *PublicKey, challenge []byte) (*Pending, error) {
	client, err := blindrsa.NewClient(blindrsa.SHA384PSSDeterministic, key.key)
	if err != nil {
		return nil, fmt.Errorf("couldn't blind a token: %w", err)
	}
	nonce, digest := make([]byte, nonceSize), NewDigest(challenge)
	rand.Read(nonce)
	p := &Pending{client: client, input: binary.BigEndian.AppendUint16(nil, tokenType)}
	p.input = slices.Concat(p.input, nonce, digest[:], key.id[:])
	var blinded []byte
	if blinded, p.state, err = client.Blind(rand.Reader, p.input); err != nil {
		return nil, fmt.Errorf("couldn't blind a token: %w", err)
	}
	p.Request = append(binary.BigEndian.AppendUint16(nil, tokenType), key.id[31])
	p.Request = append(p.Request, blinded...)
	return p, nil
}

// Finalize makes the token from the issuer's reply. It returns an error if the reply is not the key's signature for
// this request.
func (p *Pending) Finalize(reply []byte) ([]byte, error) {
	if len(reply) != ReplySize {
		return nil, invalid.Field("token reply", fmt.Sprintf("of %d bytes", len(reply)),
			fmt.Sprintf("%d bytes", ReplySize))
	}
	signature, err := p.client.Finalize(p.state, reply)
	if err != nil {
		return nil, fmt.Errorf("couldn't accept the issuer's reply: %w", err)
	}
	return append(bytes.Clone(p.input), signature...), nil
}

// BlindedMessage returns the message that a TokenRequest asks the key to sign.
func BlindedMessage(key *PublicKey, request []byte) ([]byte, error) {
	switch {
	case len(request) != RequestSize:
		return nil, invalid.Field("token request", fmt.Sprintf("of %d bytes", len(request)),
			fmt.Sprintf("%d bytes", RequestSize))
	case binary.BigEndian.Uint16(request) != tokenType:
		return nil, invalid.Field("token type", fmt.Sprint(binary.BigEndian.Uint16(request)), fmt.Sprint(tokenType))
	case request[2] != key.id[31]:
		return nil, invalid.Field("truncated key id", fmt.Sprint(request[2]),
			fmt.Sprintf("%d, of the epoch's key", key.id[31]))
	}
	return request[3:], nil
}

// Sign returns the issuer's reply to a TokenRequest. It gives equal replies to equal requests.
func Sign(private *rsa.PrivateKey, key *PublicKey, request []byte) ([]byte, error) {
	blinded, err := BlindedMessage(key, request)
	if err != nil {
		return nil, err
	}
	reply, err := blindrsa.NewSigner(private).BlindSign(blinded)
	if err != nil {
		return nil, invalid.Field("blinded message", "not below the modulus", "a blinded message")
	}
	return reply, nil
}

// ErrInvalid is the error for a token that does not belong to the challenge and the key.
var ErrInvalid = errors.New("not a token of this task, epoch and issuer")

// Verify returns [ErrInvalid] unless key signed the token for the challenge with this digest. It does not check whether
// the token has already been spent.
func Verify(key *PublicKey, digest Digest, token []byte) error {
	if len(token) != Size || binary.BigEndian.Uint16(token) != tokenType ||
		subtle.ConstantTimeCompare(token[34:66], digest[:]) != 1 ||
		subtle.ConstantTimeCompare(token[66:98], key.id[:]) != 1 {
		return ErrInvalid
	}
	hash := sha512.Sum384(token[:inputSize])
	if rsa.VerifyPSS(key.key, crypto.SHA384, hash[:], token[inputSize:], pss) != nil {
		return ErrInvalid
	}
	return nil
}

// Input returns the part of a token that its signature covers. To find double spending, compare inputs, not tokens:
// another signature of the same input is not another token.
func Input(token []byte) []byte { return token[:inputSize] }

const scheme = "PrivateToken"

// Header returns the value of an Authorization header that carries a token.
func Header(token []byte) string {
	return scheme + ` token="` + base64.URLEncoding.EncodeToString(token) + `"`
}

// ParseHeader returns the token in the value of an Authorization header. It accepts only what [Header] writes, with or
// without quotes. The token in it may still have a wrong size.
func ParseHeader(header string) ([]byte, error) {
	name, value, _ := strings.Cut(header, " ")
	value, ok := strings.CutPrefix(strings.TrimSpace(value), "token=")
	if !strings.EqualFold(name, scheme) || !ok {
		return nil, fmt.Errorf("invalid Authorization: want %s token=…", scheme)
	}
	if n := len(value); n >= 2 && value[0] == '"' && value[n-1] == '"' {
		value = value[1 : n-1]
	}
	out, err := base64.URLEncoding.Strict().DecodeString(value)
	if err != nil || base64.URLEncoding.EncodeToString(out) != value { // the decoder would skip line ends
		return nil, errors.New("invalid Authorization: want a token in padded base64url")
	}
	return out, nil
}

// ChallengeHeader returns the value of a WWW-Authenticate header that asks for a token. If key is not nil, the value
// contains it.
func ChallengeHeader(challenge []byte, key *PublicKey) string {
	out := scheme + ` challenge="` + base64.URLEncoding.EncodeToString(challenge) + `"`
	if key != nil {
		out += `, token-key="` + base64.URLEncoding.EncodeToString(key.spki) + `"`
	}
	return out
}
