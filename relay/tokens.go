package relay

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"time"

	"github.com/doona-dp/doona/internal/invalid"
	"github.com/doona-dp/doona/internal/service"
	"github.com/doona-dp/doona/relay/internal/store"
	"github.com/doona-dp/doona/wire/problem"
	"github.com/doona-dp/doona/wire/task"
	"github.com/doona-dp/doona/wire/token"
)

// tokenEpoch is what checks the tokens of an epoch.
type tokenEpoch struct {
	key       *token.PublicKey
	challenge []byte
	digest    token.Digest // of challenge
}

// withTokens says whether this relay takes reports of the task, and takes them with tokens.
func (s *served) withTokens() bool { return s.hop == 0 && s.Clients.Kind == task.ClientToken }

// setTokenKey begins to accept the tokens of an epoch, unless the epoch is over.
func (s *served) setTokenKey(epoch uint64, key *token.PublicKey) {
	challenge := token.Challenge(s.Task, s.ID, epoch)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.states[epoch] < store.StateErased {
		s.tokens[epoch] = &tokenEpoch{key, challenge, token.NewDigest(challenge)}
	}
}

// tokenEpoch returns what checks the tokens of an epoch, nil as long as the issuer's key is missing.
func (s *served) tokenEpoch(epoch uint64) *tokenEpoch {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.tokens[epoch]
}

// loadIssuerKeys takes the issuer's public keys from a file instead of from the issuer. The file may
// hold keys of other tasks; nothing but the ids that the task names decides which are its own.
func (s *served) loadIssuerKeys(path string) error {
	if path == "" {
		return nil
	}
	if !s.withTokens() {
		return invalid.Field("issuer_keys", path, "none, unless this relay is the first of a task with tokens")
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
				fmt.Sprintf("a file with the issuer's keys of all %d epochs; that of epoch %d is missing",
					s.Epochs.Count, epoch))
		}
		s.setTokenKey(uint64(epoch), keys[id])
	}
	return nil
}

// checkToken returns the token that a report carries. It costs no more than comparing bytes, until a
// token of the right epoch and key has its signature checked.
func (r *Relay) checkToken(w http.ResponseWriter, req *http.Request, s *served, epoch uint64) ([]byte, error) {
	at := s.tokenEpoch(epoch)
	if at == nil {
		return nil, service.TryLater(problem.Overloaded, "the issuer's key is not here yet")
	}
	header := req.Header.Get("Authorization")
	name := problem.TokenMissing
	if header != "" {
		name = problem.TokenInvalid
		if t, err := token.ParseHeader(header); err == nil && token.Verify(at.key, at.digest, t) == nil {
			return t, nil
		}
	}
	w.Header().Set("WWW-Authenticate", token.ChallengeHeader(at.challenge, at.key))
	return nil, problem.New(name, "")
}

// tokenKeyPause is how long to wait between attempts to fetch an issuer's key.
const tokenKeyPause = 5 * time.Second

// fetchTimeout bounds one attempt.
const fetchTimeout = 20 * time.Second

// tokenKeyLoop fetches the issuer's keys of the epochs that are open or next, ahead of the reports
// and once each: what the issuer sees does not depend on who reports.
func (r *Relay) tokenKeyLoop(ctx context.Context, s *served) {
	client := &http.Client{Transport: r.outgoing, Timeout: fetchTimeout,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	for failed := false; ; {
		err := r.fetchTokenKeys(ctx, client, s)
		if err != nil && !failed && ctx.Err() == nil {
			r.cfg.Log.Error("couldn't get the issuer's key; trying again", "task", s.name(), "error", err)
		}
		failed = err != nil
		select {
		case <-ctx.Done():
			return
		case <-time.After(min(tokenKeyPause, r.cfg.PullInterval)):
		}
	}
}

// fetchTokenKeys fetches the keys that are missing.
func (r *Relay) fetchTokenKeys(ctx context.Context, client *http.Client, s *served) error {
	var errs []error
	now := r.clock.Read().Now
	for epoch := range s.Epochs.Count {
		start, end := r.window(s, epoch)
		next := start.Add(-time.Duration(s.Epochs.Length) * time.Second)
		if now.Before(next) {
			break
		}
		if now.After(end) || s.tokenEpoch(epoch) != nil {
			continue
		}
		key, err := token.FetchKey(ctx, client, s.Open, epoch)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		s.setTokenKey(epoch, key)
	}
	return errors.Join(errs...)
}
