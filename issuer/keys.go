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

// Suffixes of the files beside a file of private keys.
const (
	listSuffix      = ".pub"       // the signed list of key ids, for the task's owner
	directorySuffix = ".directory" // the public keys, for relays that cannot fetch them
)

// NewKeys writes an issuer's keys for a task: one for each epoch to path, which must not exist; the
// list of their ids, signed, to path.pub; the public keys to path.directory. It takes about a fifth
// of a second of one core for each; progress, if not nil, is called after each one.
func NewKeys(path string, epochs uint64, sign ed25519.PrivateKey, progress func()) (*onion.SignedKeyList, error) {
	rsaKeys, err := keyfile.NewRSA(path, epochs, progress)
	if err != nil {
		return nil, err
	}
	public := make([]*token.PublicKey, len(rsaKeys))
	ids := make([]onion.KeyID, len(rsaKeys))
	for i, key := range rsaKeys {
		if public[i], err = token.NewPublicKey(key); err != nil {
			return nil, err
		}
		ids[i] = public[i].ID()
	}
	list, err := onion.NewIssuerKeyList(ids, sign)
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
