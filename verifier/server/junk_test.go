package server_test

import (
	"testing"
	"time"

	"github.com/doona-dp/doona/internal/testing/relaytest"
)

// TestJunkStreams: a relay that answers with junk of the maximum size must not cost the verifier much memory.
func TestJunkStreams(t *testing.T) {
	c := newCascade(t, 1, 1, relaytest.InStream())
	cfg := streamConfig(t, c, t.TempDir())
	cfg.PullInterval = 10 * time.Millisecond
	c.FeedJunk(t, 16<<20, func() { serve(t, cfg) })
}
