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

// temporary reports whether a relay may accept the same bytes later. An answer without a problem name comes from a
// proxy in between, not from a relay.
func temporary(p *problem.Problem) bool {
	return p.Name == "" || p.Name == problem.Overloaded || p.Name == problem.SlowDown ||
		p.Status >= http.StatusInternalServerError
}

// Limits of retries: the number of retries after temporary failures, and the longest Retry-After that the client waits
// for.
const (
	retries  = 8
	patience = time.Minute
)

// Submit posts a report to the first relay. After a lost connection or a temporary refusal it retries with the same
// bytes, which the relay stores once. If the relay already has the bytes from another network, Submit succeeds: the
// client may have moved between two attempts. Any other refusal is a [*problem.Problem]. A refusal whose RetryAfter
// exceeds a minute, or the time left in ctx, is also returned: keep the report until then. If the network's quota is
// used up ([problem.Limit], in a task without tokens), retry later in the epoch, at most twice: other clients of the
// network may have used the quota. A program sends no Origin header, so it may report to a task that lists origins.
//
// In a task with tokens, Submit gets a token for a report without one, and stores it in the report. It is better to get
// the token earlier with [Client.Token] and to keep it with the report. The relay treats a retry with another token as
// another client, and the time of issue should not reveal the time of use.
func (c *Client) Submit(ctx context.Context, r *Report) error {
	if c.open.Clients.Kind == task.ClientToken && r.Token == nil {
		var err error
		if r.Token, err = c.Token(ctx, r.Epoch); err != nil {
			return err
		}
	}
	return c.retry(ctx, func() error { return c.postTo(ctx, c.open.ReportsURL(r.Epoch), r) })
}

// retry calls do until it succeeds or another attempt is useless.
func (c *Client) retry(ctx context.Context, do func() error) error {
	wait := 100 * time.Millisecond
	for try := 0; ; try++ {
		err := do()
		var refusal *problem.Problem
		refused := errors.As(err, &refusal)
		if err == nil || ctx.Err() != nil || try == retries || refused && !temporary(refusal) {
			return err
		}
		pause := wait/2 + rand.N(wait) // random, so that refused clients do not all return at once
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

func (c *Client) postTo(ctx context.Context, url string, r *Report) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, url, bytes.NewReader(r.Body))
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
	if resp.StatusCode == http.StatusCreated { // another 2xx is a proxy's: no relay stored the report
		return nil
	}
	if p := problem.Read(resp); p.Name != problem.Replayed {
		return compared(p, time.Now())
	}
	return nil
}

// compared describes in a refusal by how many minutes the two parties' clocks differ, if that may be the cause.
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
