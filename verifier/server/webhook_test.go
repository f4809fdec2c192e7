package server_test

import (
	"bytes"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/doona-dp/doona/internal/testing/relaytest"
	"github.com/doona-dp/doona/verifier/server"
)

// hook is a TLS server that receives a webhook's requests. It answers with each of its statuses once, then with 204.
type hook struct {
	*httptest.Server
	authority string // file with the certificate

	mu       sync.Mutex // guards the rest
	statuses []int
	tried    int
	paths    []string
	got      []posted // requests that were answered with 204
}

// posted is a request to a hook.
type posted struct {
	header http.Header
	body   string
}

func newHook(t *testing.T) *hook {
	t.Helper()
	h := &hook{}
	h.Server = httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		body, _ := io.ReadAll(req.Body)
		h.mu.Lock()
		h.tried++
		h.paths = append(h.paths, req.Method+" "+req.URL.Path)
		status := http.StatusNoContent
		if len(h.statuses) > 0 {
			status, h.statuses = h.statuses[0], h.statuses[1:]
		}
		if status == http.StatusNoContent {
			h.got = append(h.got, posted{req.Header.Clone(), string(body)})
		}
		h.mu.Unlock()
		if status == 0 { // hang
			<-req.Context().Done()
			return
		}
		if status/100 == 3 {
			w.Header().Set("Location", "/elsewhere")
		}
		w.WriteHeader(status)
	}))
	t.Cleanup(h.Close)
	h.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, 0)
	h.authority = filepath.Join(t.TempDir(), "ca.pem")
	require.NoError(t, os.WriteFile(h.authority, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE",
		Bytes: h.Certificate().Raw}), 0o600))
	return h
}

// answer sets the next statuses: 0 is an answer that never comes.
func (h *hook) answer(statuses ...int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.statuses = statuses
}

func (h *hook) tries() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.tried
}

func (h *hook) requests() []posted {
	h.mu.Lock()
	defer h.mu.Unlock()
	return slices.Clone(h.got)
}

// wait waits until n requests were answered with 204.
func (h *hook) wait(t *testing.T, n int) []posted {
	t.Helper()
	require.Eventually(t, func() bool { return len(h.requests()) >= n }, relaytest.Patience, 5*time.Millisecond)
	got := h.requests()
	require.Len(t, got, n)
	return got
}

const hookSecret = "a secret of thirty-two bytes, at least"

// webhookTo returns the configuration of a webhook to a URL.
func webhookTo(t *testing.T, url string) server.WebhookConfig {
	t.Helper()
	path := filepath.Join(t.TempDir(), "webhook.secret")
	require.NoError(t, os.WriteFile(path, []byte(hookSecret+"\n"), 0o600))
	return server.WebhookConfig{URL: url, SecretFile: path, AllowPrivate: true}
}

// webhookStatus returns the webhook's part of /status. It must agree with the metrics, and the verifier must be ready.
func (r *running) webhookStatus(t *testing.T) (out server.WebhookStatus) {
	t.Helper()
	var status struct {
		Webhook struct {
			Host, Error, Delivered string
			Waiting                int
			FailedAttempts         int    `json:"failed_attempts"`
			GivenUp                uint64 `json:"given_up"`
		}
	}
	_, body := fetch(t, r.admin+"/status")
	require.NoError(t, json.Unmarshal([]byte(body), &status))
	ready, _ := fetch(t, r.admin+"/readyz")
	require.Equal(t, http.StatusNoContent, ready)
	w := status.Webhook
	return server.WebhookStatus{Host: w.Host, Error: w.Error, Waiting: w.Waiting, FailedAttempts: w.FailedAttempts,
		GivenUp: w.GivenUp}
}

// TestWebhook: each result that is published after the webhook's first start is posted once, in order, signed, in the
// form of the list of results. After failures it is posted again; redirects are not followed, and an answer that never
// comes ends. A restart neither loses nor repeats one.
func TestWebhook(t *testing.T) {
	server.ShortenWebhook(t, time.Second)
	c, rogue := resultsCascade(t)
	rogue.End(0)
	cfg := config(t, c, filepath.Join(t.TempDir(), "data"), 0)
	r := serve(t, cfg)
	r.wait(t, c.Open, batches(3))
	earlier := r.waitForResults(t, "", 1)
	r.stop()

	h := newHook(t)
	cfg.CA, cfg.Webhook = h.authority, webhookTo(t, h.URL+"/hook?token=abc")
	h.answer(500, 302, 0)
	var log bytes.Buffer
	cfg.Log = slog.New(slog.NewTextHandler(&log, nil))
	r = serve(t, cfg)
	rogue.End(1)
	second := r.waitForResults(t, earlier.Next, 1)
	got := h.wait(t, 1)[0]
	require.Equal(t, 4, h.tries())
	require.Equal(t, slices.Repeat([]string{"POST /hook"}, 4), h.paths)
	_, body := fetch(t, r.pages+"/api/results?since="+earlier.Next)
	var list struct{ Results []json.RawMessage }
	require.NoError(t, json.Unmarshal([]byte(body), &list))
	require.Equal(t, string(list.Results[0]), got.body)
	require.Equal(t, c.Open.ID.String()+"-1", got.header.Get("Idempotency-Key"))
	require.Equal(t, "application/json", got.header.Get("Content-Type"))
	seconds, err := strconv.ParseInt(got.header.Get("Doona-Timestamp"), 10, 64)
	require.NoError(t, err)
	require.WithinDuration(t, time.Now(), time.Unix(seconds, 0), time.Minute)
	mac := hmac.New(sha256.New, []byte(hookSecret))
	fmt.Fprintf(mac, "%s.%s", got.header.Get("Doona-Timestamp"), got.body)
	require.Equal(t, "v1="+hex.EncodeToString(mac.Sum(nil)), got.header.Get("Doona-Signature"))
	require.Eventually(t, func() bool { return r.webhookStatus(t).Waiting == 0 }, relaytest.Patience, time.Millisecond)
	require.Equal(t, server.WebhookStatus{Host: strings.TrimPrefix(h.URL, "https://")}, r.webhookStatus(t))

	h.answer(slices.Repeat([]int{503}, 1000)...)
	rogue.End(2)
	third := r.waitForResults(t, second.Next, 1)
	var failing server.WebhookStatus
	require.Eventually(t, func() bool {
		failing = r.webhookStatus(t)
		return failing.FailedAttempts >= 2
	}, relaytest.Patience, time.Millisecond)
	require.Equal(t, 1, failing.Waiting)
	require.Equal(t, "status 503: want 200 to 299", failing.Error)
	_, metrics := fetch(t, r.admin+"/metrics")
	require.Contains(t, metrics, "doona_verifier_webhook_waiting 1\n")
	require.NotContains(t, metrics, "doona_verifier_webhook_failed_attempts 0\n")
	r.stop()
	require.NotContains(t, log.String(), "token=abc")
	require.NotContains(t, log.String(), hookSecret)
	h.answer()
	r = serve(t, cfg)
	require.GreaterOrEqual(t, r.webhookStatus(t).FailedAttempts+len(h.requests()), 2)
	got = h.wait(t, 2)[1]
	require.Equal(t, c.Open.ID.String()+"-2", got.header.Get("Idempotency-Key"))
	require.Contains(t, got.body, `"published":"`+third.Next+`"`)
	r.stop()
	r = serve(t, cfg)
	r.waitForResults(t, "", 3)
	require.Equal(t, 0, r.webhookStatus(t).Waiting)
	require.Len(t, h.requests(), 2)
	r.stop()

	// The list of results was lost: new moments are after what was delivered, even if that was by a clock far ahead.
	require.NoError(t, os.Remove(filepath.Join(cfg.Data, "published")))
	setWebhookState(t, cfg, func(state map[string]int64) { state["delivered"] += int64(48 * time.Hour / time.Millisecond) })
	r = serve(t, cfg)
	require.Equal(t, "-0", h.wait(t, 5)[2].header.Get("Idempotency-Key")[64:])
}

// setWebhookState changes the file in which the webhook keeps what it delivered.
func setWebhookState(t *testing.T, cfg server.Config, change func(state map[string]int64)) {
	t.Helper()
	path := filepath.Join(cfg.Data, "webhook")
	raw, err := os.ReadFile(path)
	require.NoError(t, err)
	var state map[string]int64
	require.NoError(t, json.Unmarshal(raw, &state))
	change(state)
	raw, err = json.Marshal(state)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(path, raw, 0o600))
}

// TestWebhookGivesUp: after the last attempt the webhook goes on with the next result, and says so.
func TestWebhookGivesUp(t *testing.T) {
	c, rogue := resultsCascade(t)
	cfg := config(t, c, filepath.Join(t.TempDir(), "data"), 0)
	h := newHook(t)
	cfg.CA, cfg.Webhook = h.authority, webhookTo(t, h.URL)
	r := serve(t, cfg)
	r.wait(t, c.Open, batches(3))
	r.stop()
	setWebhookState(t, cfg, func(state map[string]int64) { state["attempts"] = server.MaxAttempts - 1 })
	h.answer(500)
	rogue.End(0)
	rogue.End(1)
	r = serve(t, cfg)
	require.Equal(t, "-1", h.wait(t, 1)[0].header.Get("Idempotency-Key")[64:])
	require.Eventually(t, func() bool { return r.webhookStatus(t).Waiting == 0 }, relaytest.Patience, time.Millisecond)
	require.EqualValues(t, 1, r.webhookStatus(t).GivenUp)
	_, metrics := fetch(t, r.admin+"/metrics")
	require.Contains(t, metrics, "doona_verifier_webhook_given_up 1\n")
	r.stop()

	path := filepath.Join(cfg.Data, "webhook")
	for _, text := range []string{"", "{}", `{"version":1,"delivered":-1}`, `{"version":1,"other":1}`} {
		require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
		_, err := server.New(cfg)
		require.ErrorContains(t, err, "restore it from a backup", text)
	}
}

// TestWebhookRefusesPrivateAddresses: the address is checked after the name was resolved, at the moment of connecting.
func TestWebhookRefusesPrivateAddresses(t *testing.T) {
	c, rogue := resultsCascade(t)
	cfg := config(t, c, filepath.Join(t.TempDir(), "data"), 0)
	h := newHook(t)
	cfg.CA, cfg.Webhook = h.authority, webhookTo(t, strings.Replace(h.URL, "127.0.0.1", "localhost", 1))
	cfg.Webhook.AllowPrivate = false
	r := serve(t, cfg)
	r.wait(t, c.Open, batches(3))
	rogue.End(0)
	require.Eventually(t, func() bool { return r.webhookStatus(t).FailedAttempts >= 2 }, relaytest.Patience,
		time.Millisecond)
	require.Contains(t, r.webhookStatus(t).Error, "is no public address (webhook: allow_private: true allows it)")
	require.Zero(t, h.tries())
}

// TestPublicAddresses: only addresses of the public internet are public.
func TestPublicAddresses(t *testing.T) {
	for _, text := range []string{"8.8.8.8", "1.1.1.1", "100.63.255.255", "100.128.0.0", "172.15.0.1", "172.32.0.1",
		"2606:4700:4700::1111", "2a00::1"} {
		require.True(t, server.IsPublic(netip.MustParseAddr(text)), text)
	}
	for _, text := range []string{"0.0.0.0", "0.1.2.3", "10.0.0.1", "100.64.0.1", "100.127.255.255", "127.0.0.1",
		"127.255.255.255", "169.254.169.254", "172.16.0.1", "172.31.255.255", "192.0.0.1", "192.0.2.1", "192.168.1.1",
		"198.18.0.1", "198.51.100.1", "203.0.113.1", "224.0.0.1", "239.1.1.1", "240.0.0.1", "255.255.255.255", "::", "::1",
		"::ffff:10.0.0.1", "::ffff:8.8.8.8", "::8.8.8.8", "64:ff9b::a00:1", "64:ff9b:1::1", "100::1", "2001::1",
		"2001:db8::1", "2002:a00:1::", "3fff::1", "5f00::1", "fc00::1", "fd12::1", "fe80::1", "fe80::1%eth0", "fec0::1",
		"ff02::1", "2606:4700::1%eth0"} {
		require.False(t, server.IsPublic(netip.MustParseAddr(text)), text)
	}
}

// TestWebhookSettings: settings are refused with the field's name and what it may be, and without the URL.
func TestWebhookSettings(t *testing.T) {
	good := webhookTo(t, "https://hook.example/token")
	with := func(change func(*server.WebhookConfig)) server.WebhookConfig {
		c := good
		change(&c)
		return c
	}
	secret := func(text string, mode os.FileMode) server.WebhookConfig {
		path := filepath.Join(t.TempDir(), "secret")
		require.NoError(t, os.WriteFile(path, []byte(text), mode))
		return server.WebhookConfig{URL: good.URL, SecretFile: path}
	}
	url := func(text string) server.WebhookConfig {
		return server.WebhookConfig{URL: text, SecretFile: good.SecretFile}
	}
	for _, one := range []struct {
		want   string
		config server.WebhookConfig
	}{
		{"invalid webhook.url another text: want an https URL", url("http://hook.example/token")},
		{"invalid webhook.url another text", url("https://user:token@hook.example/")},
		{"invalid webhook.url another text", url("https:///token")},
		{"invalid webhook.url another text", url("token")},
		{"invalid webhook.url another text", url("https://hook.example/%zztoken")},
		{"invalid webhook.url another text", url("https://hook.example/#token")},
		{"invalid webhook.url another text", url("https://hook.example/" + strings.Repeat("x", 2048))},
		{"invalid webhook.url the address 127.0.0.1: want a public address", url("https://127.0.0.1/token")},
		{"invalid webhook.url the address ::ffff:10.0.0.1", url("https://[::ffff:10.0.0.1]/token")},
		{"invalid webhook.url none", with(func(c *server.WebhookConfig) { c.URL = "" })},
		{"invalid webhook.secret_file none", with(func(c *server.WebhookConfig) { c.SecretFile = "" })},
		{"no such file", with(func(c *server.WebhookConfig) { c.SecretFile += ".none" })},
		{"invalid webhook.secret_file 5 bytes: want one line of 32 to 1024 bytes", secret("short\n", 0o600)},
		{"invalid webhook.secret_file 2000 bytes", secret(strings.Repeat("x", 2000), 0o600)},
		{"invalid webhook.secret_file", secret(strings.Repeat("x\n", 40), 0o600)},
		{"is open to others", secret(hookSecret, 0o644)},
	} {
		cfg, _ := guarded(t)
		cfg.Webhook = one.config
		_, err := server.New(cfg)
		require.ErrorContains(t, err, one.want)
		require.NotContains(t, err.Error(), "token")
	}
	cfg, _ := guarded(t)
	cfg.Webhook = good
	s, err := server.New(cfg)
	require.NoError(t, err)
	require.Nil(t, server.WebhookTransport(s).Proxy)
	require.NoError(t, s.Close())
}
