package onion

import "github.com/doona-dp/doona/wire/codec"

// Exported for tests.
var (
	OpenWith          = openWith
	SealFor           = seal
	HashLanes         = hashLanes
	MarshalSubmission = func(sealed []byte) ([]byte, error) { return codec.Marshal(&submission{1, sealed}) }
	AAD               = aad
)

// Info returns the HPKE info string of a context.
func (c Context) Info(keyID KeyID) []byte { return c.info(keyID) }
