package server

import (
	"bytes"
	"cmp"
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"time"

	"github.com/doona-dp/doona/internal/durable"
	"github.com/doona-dp/doona/verifier/report"
)

// Headers of a webhook's request.
const (
	headerTimestamp = "Doona-Timestamp" // when it was signed, in seconds since 1970
	headerSignature = "Doona-Signature" // see webhook.sign
	headerOnce      = "Idempotency-Key" // the result: a task's id, a hyphen and the epoch
)

// Limits of deliveries.
const (
	maxAttempts = 100       // of a result, then the webhook gives it up: some four days
	maxBackoff  = time.Hour // longest pause between two attempts
	maxAnswer   = 4 << 10   // bytes of an answer that are read, and ignored
)

// webhookTimeout limits each attempt, from resolving the name to the end of the answer.
var webhookTimeout = 30 * time.Second

// webhook posts each result when it is published, in their order. It keeps on disk what was delivered. A result may be
// delivered again after a crash, never skipped unless all attempts failed.
type webhook struct {
	server *Server
	url    *url.URL
	secret []byte
	client http.Client
	path   string

	mu     sync.Mutex // guards the rest
	state  webhookState
	failed error // of the last attempt; nil after a success
}

// webhookState is the content of the file "webhook" in the data folder.
type webhookState struct {
	Version   int    `json:"version"`
	Delivered int64  `json:"delivered"` // moment of the last result that was delivered or given up
	Attempts  int    `json:"attempts"`  // failed attempts to deliver the next result
	GivenUp   uint64 `json:"given_up"`  // results that were not delivered
}

const webhookVersion = 1

// newWebhook returns the webhook that the configuration asks for, or nil.
func (s *Server) newWebhook() (*webhook, error) {
	c := s.cfg.Webhook
	if c.URL == "" {
		return nil, nil
	}
	h := &webhook{server: s, path: filepath.Join(s.cfg.Data, "webhook")}
	var err error
	if h.url, err = url.Parse(c.URL); err != nil {
		return nil, err
	}
	if h.secret, err = loadWebhookSecret(c.SecretFile); err != nil {
		return nil, err
	}
	h.client = http.Client{Transport: s.webhookTransport(),
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	return h, nil
}

// load reads what was delivered. Without a file, the webhook begins with the next result.
func (h *webhook) load() error {
	raw, err := os.ReadFile(h.path)
	if errors.Is(err, fs.ErrNotExist) {
		h.state = webhookState{Version: webhookVersion, Delivered: h.server.published.last()}
		err = h.save(h.state)
	} else if err == nil {
		in := json.NewDecoder(bytes.NewReader(raw))
		in.DisallowUnknownFields()
		err = in.Decode(&h.state)
		if err == nil && (h.state.Version != webhookVersion || h.state.Delivered < 0 || h.state.Attempts < 0) {
			err = errors.New("it has another version, or negative numbers")
		}
	}
	if err != nil {
		return fmt.Errorf("couldn't read what the webhook delivered: %s: %w: restore it from a backup; without it, the "+
			"webhook begins with the next result", h.path, err)
	}
	h.server.published.floor = h.state.Delivered
	return nil
}

// webhookTransport returns a transport that makes one connection for each request. It uses no proxy of the environment,
// and connects only to public addresses unless the operator allows others.
func (s *Server) webhookTransport() *http.Transport {
	var dialer net.Dialer
	if !s.cfg.Webhook.AllowPrivate {
		dialer.ControlContext = refusePrivate
	}
	t := &http.Transport{DialContext: dialer.DialContext, DisableKeepAlives: true, DisableCompression: true,
		MaxResponseHeaderBytes: maxAnswer}
	if relays, ok := s.transport.(*http.Transport); ok { // the same authorities
		t.TLSClientConfig = relays.TLSClientConfig.Clone()
	}
	return t
}

// run delivers results until ctx ends.
func (h *webhook) run(ctx context.Context) {
	for ctx.Err() == nil {
		select {
		case <-ctx.Done():
		case <-time.After(h.deliverNext(ctx)):
		}
	}
}

// deliverNext tries to deliver the earliest waiting result. It returns how long to wait before the next call.
func (h *webhook) deliverNext(ctx context.Context) time.Duration {
	state := h.now()
	waiting := h.server.published.after(time.UnixMilli(state.Delivered))
	if len(waiting) == 0 {
		return h.server.cfg.PullInterval
	}
	next := waiting[0]
	err := h.deliver(ctx, next)
	if err != nil && ctx.Err() != nil {
		return 0 // the verifier stops
	}
	if err == nil {
		state.Delivered, state.Attempts = next.Moment, 0
	} else if state.Attempts++; state.Attempts >= maxAttempts {
		state.Delivered, state.Attempts, state.GivenUp = next.Moment, 0, state.GivenUp+1
		h.server.cfg.Log.Error("webhook gave a result up", "task", next.Task[:8], "epoch", next.Epoch, "error", err)
	} else {
		h.server.cfg.Log.Warn("webhook failed", "task", next.Task[:8], "epoch", next.Epoch, "error", err)
	}
	if failed := h.save(state); failed != nil {
		h.server.cfg.Log.Error("couldn't write down what the webhook delivered", "error", failed)
		err = cmp.Or(err, failed)
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.state, h.failed = state, err
	if err == nil || state.Attempts == 0 {
		return 0
	}
	return min(maxBackoff, h.server.cfg.PullInterval<<min(state.Attempts-1, 20))
}

func (h *webhook) now() webhookState {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.state
}

func (h *webhook) save(state webhookState) error {
	raw, err := json.Marshal(state)
	if err != nil {
		return err
	}
	return durable.WriteFile(h.path, raw, 0o600)
}

// deliver posts a result once. Its errors do not have the URL, which may hold a token.
func (h *webhook) deliver(ctx context.Context, one publication) error {
	r, err := h.server.published.result(one)
	if err != nil || r == nil { // nil: the task was removed, so nobody can ask for the result either
		return err
	}
	body, err := r.JSON()
	if err != nil {
		return err
	}
	ctx, stop := context.WithTimeout(ctx, webhookTimeout)
	defer stop()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, h.url.String(), bytes.NewReader(body))
	if err != nil {
		return err
	}
	timestamp := strconv.FormatInt(h.server.cfg.Clock().Unix(), 10)
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("User-Agent", "doona-verifier")
	req.Header.Set(headerTimestamp, timestamp)
	req.Header.Set(headerSignature, h.sign(timestamp, body))
	req.Header.Set(headerOnce, one.Task+"-"+strconv.FormatUint(one.Epoch, 10))
	resp, err := h.client.Do(req)
	if err != nil {
		if at := (*url.Error)(nil); errors.As(err, &at) {
			err = at.Err
		}
		return err
	}
	defer resp.Body.Close()
	switch {
	case resp.StatusCode >= 300 && resp.StatusCode < 400:
		return fmt.Errorf("status %d: redirects are not followed", resp.StatusCode)
	case resp.StatusCode < 200 || resp.StatusCode >= 300:
		return fmt.Errorf("status %d: want 200 to 299", resp.StatusCode)
	}
	_, err = io.Copy(io.Discard, io.LimitReader(resp.Body, maxAnswer))
	return err
}

// sign returns "v1=" and the HMAC-SHA256 of the timestamp, a dot and the body, in hex.
func (h *webhook) sign(timestamp string, body []byte) string {
	mac := hmac.New(sha256.New, h.secret)
	mac.Write([]byte(timestamp + "."))
	mac.Write(body)
	return "v1=" + hex.EncodeToString(mac.Sum(nil))
}

// WebhookStatus is the state of the webhook.
type WebhookStatus struct {
	Host           string         `json:"host"`
	Delivered      *report.Moment `json:"delivered"`       // Of the last result delivered or given up; null before.
	Waiting        int            `json:"waiting"`         // Results to deliver.
	FailedAttempts int            `json:"failed_attempts"` // To deliver the first of these.
	GivenUp        uint64         `json:"given_up"`        // Results that were not delivered.
	Error          string         `json:"error,omitempty"` // Of the last attempt.
}

// status returns the state of the webhook; nil without one.
func (h *webhook) status() *WebhookStatus {
	if h == nil {
		return nil
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	delivered := time.UnixMilli(h.state.Delivered)
	out := &WebhookStatus{Host: h.url.Host, Waiting: len(h.server.published.after(delivered)),
		FailedAttempts: h.state.Attempts, GivenUp: h.state.GivenUp}
	if h.state.Delivered > 0 {
		moment := report.Moment(delivered)
		out.Delivered = &moment
	}
	if h.failed != nil {
		out.Error = h.failed.Error()
	}
	return out
}
