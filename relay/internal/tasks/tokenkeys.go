package tasks

import (
	"fmt"
	"os"

	"github.com/doona-dp/doona/internal/invalid"
	"github.com/doona-dp/doona/relay/internal/store"
	"github.com/doona-dp/doona/wire/task"
	"github.com/doona-dp/doona/wire/token"
)

// TokenKey holds what the relay needs to check the tokens of an epoch.
type TokenKey struct {
	Key       *token.PublicKey
	Challenge []byte
	Digest    token.Digest // of Challenge
}

// WithTokens reports whether clients send this relay their reports of the task, and each needs a token.
func (s *Hosted) WithTokens() bool { return s.Hop == 0 && s.Clients.Kind == task.ClientToken }

// SetTokenKey makes the relay accept the epoch's tokens, unless the epoch is over.
func (e Epoch) SetTokenKey(key *token.PublicKey) {
	challenge := token.Challenge(e.Task, e.Hosted.ID, e.Number)
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.states[e.Number] < store.StateErased {
		e.tokens[e.Number] = &TokenKey{key, challenge, token.NewDigest(challenge)}
	}
}

// TokenKey returns the epoch's token key, or nil while the relay does not have the issuer's key.
func (e Epoch) TokenKey() *TokenKey {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.tokens[e.Number]
}

// loadIssuerKeys reads the issuer's public keys from a file, so that the relay need not ask the issuer. The file may
// also hold other tasks' keys: the key ids in this task decide which keys belong to it.
func (s *Hosted) loadIssuerKeys(path string) error {
	if path == "" {
		return nil
	}
	if !s.WithTokens() {
		return invalid.Field("issuer_keys", path, "none unless this relay is the first of a task with tokens")
	}
	in, err := os.ReadFile(path)
	if err != nil {
		return fmt.Errorf("couldn't read the issuer's keys: %w", err)
	}
	keys, err := token.ParseDirectory(in)
	if err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	for epoch, id := range s.TokenKeys {
		if keys[id] == nil {
			return invalid.Field("issuer_keys", path,
				fmt.Sprintf("a file with the issuer's keys for all %d epochs (epoch %d is missing)",
					s.Epochs.Count, epoch))
		}
		s.Epoch(uint64(epoch)).SetTokenKey(keys[id])
	}
	return nil
}
