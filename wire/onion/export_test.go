package onion

import "github.com/doona-dp/doona/wire/codec"

// Internal functions that tests in package onion_test use.
var (
	SealFor           = seal
	HashLanes         = hashLanes
	MarshalSubmission = func(sealed []byte) ([]byte, error) {
		return codec.Marshal(&struct {
			Version  uint64
			Envelope []byte
		}{1, sealed})
	}
	AAD = aad
)

// Info returns the HPKE info string of a context.
func (c Context) Info(keyID KeyID) []byte { return c.info(keyID) }

// OpenWith opens enc ‖ ciphertext with a key, an info string and associated data.
func OpenWith(key *PrivateKey, info, aad, sealed []byte) ([]byte, error) {
	return newUnsealer(key, info).open(aad, sealed)
}

// Kind is [kind].
type Kind = kind

// The kinds of ciphertext.
const (
	KindSlot     = kindSlot
	KindEnvelope = kindEnvelope
	KindSet      = kindSet
)
