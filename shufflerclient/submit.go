package shufflerclient

import (
	"bytes"
	"context"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"net/http"
	"strconv"
	"time"
)

// Problem is a relay's refusal (RFC 9457).
type Problem struct {
	Type       string        `json:"type"`
	Title      string        `json:"title"`
	Detail     string        `json:"detail"`
	Status     int           `json:"status"`
	RetryAfter time.Duration `json:"-"` // What the relay asked for; 0 where it did not.
}

// Error returns the refusal in words.
func (p *Problem) Error() string {
	text := p.Title
	if p.Detail != "" {
		text += ": " + p.Detail
	}
	return fmt.Sprintf("the relay refused (%d): %s", p.Status, text)
}

// temporary says whether the same bytes may be accepted later.
func (p *Problem) temporary() bool { return p.Status == http.StatusTooManyRequests || p.Status >= 500 }

func problemOf(resp *http.Response, body []byte) *Problem {
	p := &Problem{}
	if json.Unmarshal(body, p) != nil || p.Title == "" {
		p.Title = http.StatusText(resp.StatusCode)
	}
	p.Status = resp.StatusCode
	if seconds, err := strconv.Atoi(resp.Header.Get("Retry-After")); err == nil && seconds >= 0 {
		p.RetryAfter = time.Duration(seconds) * time.Second
	}
	return p
}

// retries is how often Submit tries again after a temporary failure.
const retries = 8

// Submit posts a report to the first relay. A lost connection or a temporary refusal is retried
// with the same bytes, which the relay stores once. Any other refusal is a [*Problem].
func (c *Client) Submit(ctx context.Context, r *Report) error {
	wait := 100 * time.Millisecond
	for try := 0; ; try++ {
		err := c.post(ctx, r)
		var problem *Problem
		refused := errors.As(err, &problem)
		if err == nil || ctx.Err() != nil || try == retries || refused && !problem.temporary() {
			return err
		}
		pause := wait/2 + rand.N(wait) // jitter, so that clients a relay turned away do not return together
		if refused {
			pause = max(pause, problem.RetryAfter)
		}
		select {
		case <-ctx.Done():
			return err
		case <-time.After(pause):
		}
		wait = min(2*wait, 10*time.Second)
	}
}

func (c *Client) post(ctx context.Context, r *Report) error {
	url := fmt.Sprintf("%s/v1/tasks/%s/epochs/%d/reports", c.open.Relays[0].URL, hex.EncodeToString(c.open.ID[:]), r.Epoch)
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, url, bytes.NewReader(r.Body))
	if err != nil {
		return fmt.Errorf("couldn't submit: %w", err)
	}
	maps.Copy(req.Header, c.options.Header)
	req.Header.Set("Content-Type", "application/msgpack")
	resp, err := c.options.HTTP.Do(req)
	if err != nil {
		return fmt.Errorf("couldn't submit: %w", err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(io.LimitReader(resp.Body, 1<<16))
	if err != nil {
		return fmt.Errorf("couldn't submit: %w", err)
	}
	if resp.StatusCode/100 != 2 {
		return problemOf(resp, body)
	}
	return nil
}
