package server

import (
	"net/http"
	"net/netip"
	"testing"
	"time"
)

// IsPublic exports isPublic for tests.
func IsPublic(a netip.Addr) bool { return isPublic(a) }

// WebhookTransport exports webhookTransport for tests.
func WebhookTransport(s *Server) *http.Transport { return s.webhookTransport() }

// MaxAttempts exports maxAttempts for tests.
const MaxAttempts = maxAttempts

// ShortenWebhook sets the time limit of an attempt until the test ends.
func ShortenWebhook(t *testing.T, to time.Duration) {
	before := webhookTimeout
	webhookTimeout = to
	t.Cleanup(func() { webhookTimeout = before })
}
