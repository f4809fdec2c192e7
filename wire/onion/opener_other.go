//go:build !amd64

package onion

import (
	"crypto/hpke"

	"github.com/doona-dp/doona/wire/task"
)

// fastOpener returns the key itself: circl's X25519 is faster on amd64 alone, and no code for a browser
// shall link it.
func fastOpener(_ task.KEM, key hpke.PrivateKey) (hpke.PrivateKey, error) { return key, nil }
