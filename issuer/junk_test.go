package issuer_test

import (
	"testing"
	"time"

	"github.com/doona-dp/doona/internal/testing/relaytest"
)

// TestJunkStreams lets a relay answer an issuer with junk of the largest size. The issuer must not use much memory for
// it.
func TestJunkStreams(t *testing.T) {
	inStream := relaytest.InStream()
	c := relaytest.New(t, relaytest.Options{Hops: 1, Task: relaytest.Mean(10, inStream, relaytest.WithTokens)})
	cfg := c.IssuerConfig()
	cfg.FollowInterval = 10 * time.Millisecond
	c.FeedJunk(t, 16<<20, func() { c.StartIssuer(t, cfg) })
}
