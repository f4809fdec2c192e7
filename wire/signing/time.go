package signing

import (
	"crypto/ed25519"
	"errors"
	"fmt"

	"github.com/doona-dp/doona/wire/codec"
	"github.com/doona-dp/doona/wire/task"
)

// maxUnix is the limit for times, in Unix seconds. OpenTime refuses a time of maxUnix or later.
const maxUnix = 1 << 53

// timeLabel is the first field of every signed time.
const timeLabel = "doona-time"

// Nonce is a random value in each request. The signed answer repeats it, so the answer is valid for no other request.
type Nonce [16]byte

// clockTime is what a relay or an issuer signs about its clock when somebody asks with a fresh nonce. It proves that
// the clock showed this time after the requester drew the nonce.
type clockTime struct {
	Label   string
	Version uint64
	TaskID  []byte // 32 bytes.
	Hop     uint64 // Hop of the relay; the issuer has the verifier's hop plus one.
	Nonce   []byte // 16 bytes, drawn by the requester.
	Unix    uint64 // Unix seconds.
}

type signedTime struct {
	Time      []byte
	Signature []byte
}

// NewTime signs a time of a party's clock, in Unix seconds. It returns msgpack [time, signature].
func NewTime(key ed25519.PrivateKey, id task.ID, hop int, nonce Nonce, unix uint64) ([]byte, error) {
	body, err := codec.Marshal(&clockTime{timeLabel, task.Version, id[:], uint64(hop), nonce[:], unix})
	if err != nil {
		return nil, err
	}
	return codec.Marshal(&signedTime{body, Sign(key, Time, body)})
}

// OpenTime parses and checks a signed time. The party at hop must have signed it for this nonce: a relay, or the
// issuer, whose hop is the verifier's plus one. It returns Unix seconds.
func OpenTime(t *task.Task, id task.ID, hop int, nonce Nonce, in []byte) (uint64, error) {
	fail := func(err error) (uint64, error) {
		return 0, fmt.Errorf("couldn't accept the time of hop %d: %w", hop, err)
	}
	var s signedTime
	if err := codec.Unmarshal(in, &s); err != nil {
		return fail(err)
	}
	if !Verify(timeKey(t, hop), Time, s.Time, s.Signature) {
		return fail(ErrSigner)
	}
	var v clockTime
	if err := codec.Unmarshal(s.Time, &v); err != nil {
		return fail(err)
	}
	switch {
	case v.Label != timeLabel || v.Version != task.Version:
		return fail(errors.New("not a time of this version"))
	case string(v.TaskID) != string(id[:]) || v.Hop != uint64(hop):
		return fail(errors.New("signed for another task or hop"))
	case string(v.Nonce) != string(nonce[:]):
		return fail(errors.New("signed for another nonce"))
	case v.Unix >= maxUnix:
		return fail(fmt.Errorf("signed at %d seconds of Unix time: want below 2^53", v.Unix))
	}
	return v.Unix, nil
}

// timeKey returns the public signing key of the relay or issuer at a hop, or nil if the party there signs no times.
func timeKey(t *task.Task, hop int) ed25519.PublicKey {
	switch {
	case hop >= 0 && hop < len(t.Relays):
		return t.Relays[hop].SignKey[:]
	case hop == t.VerifierHop()+1 && t.Clients.Kind == task.ClientToken:
		return t.Clients.Issuer.SignKey[:]
	}
	return nil
}
