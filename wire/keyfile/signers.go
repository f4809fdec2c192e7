package keyfile

import (
	"crypto/ed25519"

	"github.com/doona-dp/doona/internal/invalid"
	"github.com/doona-dp/doona/wire/task"
)

// Signers are a party's signing keys: the one that it has now, and those that it had before, with which it signs for
// tasks that name them.
type Signers struct {
	Newest ed25519.PrivateKey
	all    map[task.SignKey]ed25519.PrivateKey
}

// LoadSigners reads the file of the newest key and those of older ones.
func LoadSigners(newest string, old []string) (*Signers, error) {
	s := &Signers{all: map[task.SignKey]ed25519.PrivateKey{}}
	for _, file := range append([]string{newest}, old...) {
		key, err := LoadSign(file)
		if err != nil {
			return nil, err
		}
		public := task.SignKey(key.Public().(ed25519.PublicKey))
		if s.all[public] != nil {
			return nil, invalid.Field("old_sign_keys", file, "each key once, without that of sign_key")
		}
		if s.all[public] = key; s.Newest == nil {
			s.Newest = key
		}
	}
	return s, nil
}

// Of returns the private key of a public one, nil if the party does not have it.
func (s *Signers) Of(key task.SignKey) ed25519.PrivateKey { return s.all[key] }

// Public returns all public keys, the newest first.
func (s *Signers) Public() []task.SignKey {
	public := []task.SignKey{task.SignKey(s.Newest.Public().(ed25519.PublicKey))}
	for key := range s.all {
		if key != public[0] {
			public = append(public, key)
		}
	}
	return public
}
