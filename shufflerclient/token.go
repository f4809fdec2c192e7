package shufflerclient

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"sync"

	"github.com/doona-dp/doona/internal/invalid"
	"github.com/doona-dp/doona/wire/problem"
	"github.com/doona-dp/doona/wire/task"
	"github.com/doona-dp/doona/wire/token"
)

// TokenSource sends a TokenRequest to the issuer and returns the issuer's reply. uri is the issuer's URL for token
// requests of the epoch. The client may call it again with the same request; the issuer then sends the same reply and
// counts one token.
type TokenSource func(ctx context.Context, uri string, request []byte) (reply []byte, err error)

// Token gets a token for a report of the current or the next epoch. It fetches the issuer's key for the epoch, which
// must be the key that the task names. The issuer signs the token blindly, so it cannot tell which report the token is
// spent on. Keep the token secret until then: anybody who has it can spend it. It pays for one report.
//
// If the issuer has no more tokens for this person and epoch, the error is a [*problem.Problem] named [problem.Limit].
func (c *Client) Token(ctx context.Context, epoch uint64) ([]byte, error) {
	if c.open.Clients.Kind != task.ClientToken {
		return nil, invalid.Field("clients.kind", fmt.Sprintf("%q", c.open.Clients.Kind), "token")
	}
	key, err := c.issuerKey(ctx, epoch)
	if err != nil {
		return nil, err
	}
	pending, err := token.Blind(key, token.Challenge(c.open.Task, c.open.ID, epoch))
	if err != nil {
		return nil, err
	}
	var reply []byte
	err = c.retry(ctx, func() (err error) {
		reply, err = c.options.Tokens(ctx, c.open.TokenRequestURL(epoch), pending.Request)
		return err
	})
	if err != nil {
		return nil, err
	}
	return pending.Finalize(reply)
}

// issuerKey caches the issuer's key of one epoch, so that a program that sends many reports, such as an edge worker,
// fetches it once.
type issuerKey struct {
	mu    sync.Mutex // guards the fields below; never held during a request
	epoch uint64
	key   *token.PublicKey // nil before the first fetch
}

func (c *Client) issuerKey(ctx context.Context, epoch uint64) (key *token.PublicKey, err error) {
	c.issuer.mu.Lock()
	if c.issuer.epoch == epoch {
		key = c.issuer.key
	}
	c.issuer.mu.Unlock()
	if key != nil {
		return key, nil
	}
	var foreign error // a wrong key; a retry would not help
	err = c.retry(ctx, func() (err error) {
		key, err = token.FetchKey(ctx, c.options.HTTP, c.open, epoch)
		if errors.Is(err, token.ErrKey) {
			foreign, err = err, nil
		}
		return err
	})
	if err = errors.Join(err, foreign); err != nil {
		return nil, err
	}
	c.issuer.mu.Lock()
	defer c.issuer.mu.Unlock()
	c.issuer.epoch, c.issuer.key = epoch, key
	return key, nil
}

// IssuerTokens returns a source that posts the request to the issuer itself. header is added to each request: a backend
// sends "Authorization: Bearer …" and "Doona-Account".
func IssuerTokens(client HTTP, header http.Header) TokenSource {
	return func(ctx context.Context, uri string, request []byte) ([]byte, error) {
		req, err := http.NewRequestWithContext(ctx, http.MethodPost, uri, bytes.NewReader(request))
		if err != nil {
			return nil, fmt.Errorf("couldn't ask the issuer for a token: %w", err)
		}
		maps.Copy(req.Header, header)
		req.Header.Set("Content-Type", token.RequestType)
		resp, err := client.Do(req)
		if err != nil {
			return nil, fmt.Errorf("couldn't ask the issuer for a token: %w", err)
		}
		defer resp.Body.Close()
		if resp.StatusCode != http.StatusOK {
			return nil, problem.Read(resp)
		}
		reply, err := io.ReadAll(io.LimitReader(resp.Body, token.ReplySize+1))
		if err != nil {
			return nil, fmt.Errorf("couldn't ask the issuer for a token: %w", err)
		}
		return reply, nil
	}
}
