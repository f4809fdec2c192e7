//go:build !amd64

package onion

// fastUnsealer leaves opening to crypto/hpke: circl's X25519 is faster on amd64 alone, and no code for a browser shall
// link it.
func fastUnsealer(*PrivateKey, []byte) (unsealer, error) { return nil, nil }
