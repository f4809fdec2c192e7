package keyfile

import (
	"crypto/ed25519"

	"github.com/doona-dp/doona/internal/invalid"
	"github.com/doona-dp/doona/wire/task"
	"github.com/doona-dp/doona/wire/taskfile"
)

// Signers holds a party's signing keys: the current one, and earlier ones that still sign for tasks that name them.
type Signers struct {
	Newest ed25519.PrivateKey
	file   string // path of the newest key's file
	all    map[task.SignKey]ed25519.PrivateKey
}

// LoadSigners reads the file of the newest key and the files of older keys.
func LoadSigners(newest string, old []string) (*Signers, error) {
	s := &Signers{file: newest, all: map[task.SignKey]ed25519.PrivateKey{}}
	for _, file := range append([]string{newest}, old...) {
		key, err := LoadSign(file)
		if err != nil {
			s.Close()
			return nil, err
		}
		public := publicOf(key)
		if s.all[public] != nil {
			clear(key)
			s.Close()
			return nil, invalid.Field("old_sign_keys", file, "each key once, and not the key of sign_key")
		}
		if s.all[public] = key; s.Newest == nil {
			s.Newest = key
		}
	}
	return s, nil
}

// Of returns the private key that belongs to a public key, or nil if the party does not have it.
func (s *Signers) Of(key task.SignKey) ed25519.PrivateKey { return s.all[key] }

// Check returns an error unless the party has the signing key that a task names for it. The error is for the author of
// the configuration. The argument party is the party's name in the error, such as "the verifier".
func (s *Signers) Check(t task.ID, party string, key task.SignKey) error {
	if s.Of(key) != nil {
		return nil
	}
	return invalid.Field("sign_key", s.file+" ("+taskfile.FormatKey(s.Public()[0])+")", "the key of "+party+
		" that task "+t.String()+" names, "+taskfile.FormatKey(key)+
		", or the file of that key in old_sign_keys if a newer key has replaced it")
}

// Public returns all public keys, the newest first.
func (s *Signers) Public() []task.SignKey {
	public := []task.SignKey{publicOf(s.Newest)}
	for key := range s.all {
		if key != public[0] {
			public = append(public, key)
		}
	}
	return public
}

// Close clears all keys. The party can sign nothing afterwards.
func (s *Signers) Close() {
	for _, key := range s.all {
		clear(key)
	}
}
