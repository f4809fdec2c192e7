package keyfile

import (
	"crypto/ed25519"

	"github.com/doona-dp/doona/internal/invalid"
	"github.com/doona-dp/doona/wire/task"
	"github.com/doona-dp/doona/wire/taskfile"
)

// Signers are a party's signing keys: the one that it has now, and those that it had before, with which it signs for
// tasks that name them.
type Signers struct {
	Newest ed25519.PrivateKey
	file   string // of the newest
	all    map[task.SignKey]ed25519.PrivateKey
}

// LoadSigners reads the file of the newest key and those of older ones.
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

// Check is an error, for who writes the party's configuration, unless the party has the key that a task names for it:
// "the verifier", say.
func (s *Signers) Check(t task.ID, party string, key task.SignKey) error {
	if s.Of(key) != nil {
		return nil
	}
	return invalid.Field("sign_key", s.file+" ("+taskfile.FormatKey(s.Public()[0])+")", "the key of "+party+
		" that task "+t.String()+" names, "+taskfile.FormatKey(key)+
		", or that one's file among old_sign_keys if a newer key has replaced it")
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

// Close clears all keys. Nothing may be signed with them any more.
func (s *Signers) Close() {
	for _, key := range s.all {
		clear(key)
	}
}
