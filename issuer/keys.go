package issuer

import (
	"crypto/ed25519"
	"fmt"
	"os"

	"github.com/doona-dp/doona/wire/endpoint"
	"github.com/doona-dp/doona/wire/keyfile"
	"github.com/doona-dp/doona/wire/onion"
	"github.com/doona-dp/doona/wire/token"
)

// Suffixes of the files that NewKeys writes beside the private keys.
const (
	listSuffix      = ".pub"       // the signed list of key IDs, for the task owner
	directorySuffix = ".directory" // the public keys, for relays that cannot fetch them
)

// NewKeys makes an issuer's keys for a task of the given number of epochs. It writes the private keys to path, which
// must not exist. It writes the signed list of key IDs to path.pub, and the public keys to path.directory. Each key
// takes about 0.2 s of one core. NewKeys calls progress, if not nil, after each key.
func NewKeys(path string, epochs uint64, sign ed25519.PrivateKey, progress func()) (*onion.SignedKeyList, error) {
	rsaKeys, err := keyfile.NewRSA(path, epochs, progress)
	if err != nil {
		return nil, err
	}
	public := make([]*token.PublicKey, len(rsaKeys))
	var ids []byte
	for i, key := range rsaKeys {
		if public[i], err = token.NewPublicKey(key); err != nil {
			return nil, err
		}
		id := public[i].ID()
		ids = append(ids, id[:]...)
	}
	list, err := onion.ListOf(onion.TokenKEM, ids, sign)
	if err != nil {
		return nil, err
	}
	raw, err := list.Bytes()
	if err != nil {
		return nil, err
	}
	directory, err := token.Directory(endpoint.TokenRequest, public...)
	if err != nil {
		return nil, err
	}
	for suffix, content := range map[string][]byte{listSuffix: raw, directorySuffix: append(directory, '\n')} {
		if err := os.WriteFile(path+suffix, content, 0o644); err != nil {
			return nil, fmt.Errorf("couldn't write the public keys: %w", err)
		}
	}
	return list, nil
}
