package shufflerclient

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/http"
	"time"

	"github.com/doona-dp/doona/wire/problem"
	"github.com/doona-dp/doona/wire/task"
	"github.com/doona-dp/doona/wire/token"
)

// temporary says whether the same bytes may be accepted later. An answer without a name is not of
// a relay but of a proxy on the way.
func temporary(p *problem.Problem) bool {
	return p.Name == "" || p.Name == problem.Overloaded || p.Name == problem.SlowDown ||
		p.Status >= http.StatusInternalServerError
}

// The bounds of Submit: how often it tries again after a temporary failure, and the longest
// Retry-After it waits for.
const (
	retries  = 8
	patience = time.Minute
)

// Submit posts a report to the first relay. A lost connection or a temporary refusal is retried
// with the same bytes, which the relay stores once; that it has them from another network, as
// after a move between two attempts, is success. Any other refusal is a [*problem.Problem], and so
// is one whose RetryAfter is longer than a minute, or than ctx lasts: keep the report till then. Where the network's
// quota is used up ([problem.Limit], without tokens), try again later in the epoch, at most twice: neighbours may have
// used it. A program sends no origin, and may report to a task that lists any.
//
// In a task with tokens, a report without one gets one first, and keeps it. Better get it earlier,
// with [Client.Token], and keep it with the report: a retry with another token is another client's
// to the relay, and the time at which a token is issued should tell nothing of when it is spent.
func (c *Client) Submit(ctx context.Context, r *Report) error {
	if c.open.Clients.Kind == task.ClientToken && r.Token == nil {
		var err error
		if r.Token, err = c.Token(ctx, r.Epoch); err != nil {
			return err
		}
	}
	return c.retry(ctx, func() error { return c.post(ctx, r) })
}

// retry does what may be done again, until it succeeds or trying again is of no use.
func (c *Client) retry(ctx context.Context, do func() error) error {
	wait := 100 * time.Millisecond
	for try := 0; ; try++ {
		err := do()
		var refusal *problem.Problem
		refused := errors.As(err, &refusal)
		if err == nil || ctx.Err() != nil || try == retries || refused && !temporary(refusal) {
			return err
		}
		pause := wait/2 + rand.N(wait) // jitter, so that clients a relay turned away do not return together
		if refused && refusal.RetryAfter > pause {
			pause = refusal.RetryAfter + rand.N(wait)
		}
		if end, bounded := ctx.Deadline(); pause > patience+wait || bounded && time.Until(end) < pause {
			return err
		}
		if c.options.Pause(ctx, pause) != nil {
			return err
		}
		wait = min(2*wait, 10*time.Second)
	}
}

func (c *Client) post(ctx context.Context, r *Report) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, c.open.ReportsURL(r.Epoch), bytes.NewReader(r.Body))
	if err != nil {
		return fmt.Errorf("couldn't submit: %w", err)
	}
	maps.Copy(req.Header, c.options.Header)
	req.Header.Set("Content-Type", "application/msgpack")
	if r.Token != nil {
		req.Header.Set("Authorization", token.Header(r.Token))
	}
	resp, err := c.options.HTTP.Do(req)
	if err != nil {
		return fmt.Errorf("couldn't submit: %w", err)
	}
	defer resp.Body.Close()
	if resp.StatusCode/100 == 2 {
		return nil
	}
	if p := problem.Read(resp); p.Name != problem.Replayed {
		return compared(p, time.Now())
	}
	return nil
}

// compared adds to a refusal by how much the clock here and the other party's differ, where that may be why.
func compared(p *problem.Problem, now time.Time) *problem.Problem {
	if p.Now.IsZero() {
		return p
	}
	switch ahead := now.Sub(p.Now.Add(time.Minute/2)).Round(time.Minute) / time.Minute; {
	case ahead >= 2:
		p.Detail = fmt.Sprintf("this clock is about %d minutes ahead of the relay's", int(ahead))
	case ahead <= -2:
		p.Detail = fmt.Sprintf("this clock is about %d minutes behind the relay's", int(-ahead))
	}
	return p
}
