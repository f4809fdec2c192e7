package ingress

import (
	"context"
	"errors"
	"net/http"
	"time"

	"github.com/doona-dp/doona/internal/service"
	"github.com/doona-dp/doona/relay/internal/tasks"
	"github.com/doona-dp/doona/wire/problem"
	"github.com/doona-dp/doona/wire/token"
)

// checkToken returns the token that a report carries. It first compares bytes, and verifies signatures only of tokens
// for the right epoch and key.
func (in *Ingress) checkToken(w http.ResponseWriter, req *http.Request, e tasks.Epoch) ([]byte, error) {
	at := e.TokenKey()
	if at == nil {
		return nil, service.TryLater(problem.Overloaded, "the relay does not have the issuer's key yet; try again")
	}
	header := req.Header.Get("Authorization")
	name := problem.TokenMissing
	if header != "" {
		name = problem.TokenInvalid
		if t, err := token.ParseHeader(header); err == nil && token.Verify(at.Key, at.Digest, t) == nil {
			return t, nil
		}
	}
	w.Header().Set("WWW-Authenticate", token.ChallengeHeader(at.Challenge, at.Key))
	return nil, problem.New(name, "")
}

// tokenKeyPause is the time between attempts to fetch an issuer's key, unless Config.KeyInterval is shorter.
const tokenKeyPause = 5 * time.Second

// fetchTimeout limits one attempt to fetch a key.
const fetchTimeout = 20 * time.Second

// TokenKeyLoop fetches the issuer's keys of the epochs that are open or next, in advance and once each, so that the
// issuer cannot tell who reports.
func (in *Ingress) TokenKeyLoop(ctx context.Context, s *tasks.Hosted) {
	client := &http.Client{Transport: in.cfg.Outgoing, Timeout: fetchTimeout,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	for failed := false; ; {
		err := in.fetchTokenKeys(ctx, client, s)
		if err != nil && !failed && ctx.Err() == nil {
			in.monitor.Log.Error("couldn't fetch the issuer's key; trying again", "task", s.ShortID(), "error", err)
		}
		failed = err != nil
		select {
		case <-ctx.Done():
			return
		case <-time.After(min(tokenKeyPause, in.cfg.KeyInterval)):
		}
	}
}

func (in *Ingress) fetchTokenKeys(ctx context.Context, client *http.Client, s *tasks.Hosted) error {
	var errs []error
	now := in.Clock.Read().Now
	for e := range s.EachEpoch() {
		start, end := e.Window()
		begin := int64(s.Epochs.Begin(e.Number))
		early := time.Duration(begin-s.Epochs.Length.Add(begin, -1)) * time.Second // one epoch
		if now.Before(start.Add(-early)) {
			break
		}
		if now.After(end) || e.TokenKey() != nil {
			continue
		}
		key, err := token.FetchKey(ctx, client, s.Open, e.Number)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		e.SetTokenKey(key)
	}
	return errors.Join(errs...)
}
