package issuer_test

import (
	"io"
	"net"
	"net/http"
	"net/url"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/doona-dp/doona/internal/testing/relaytest"
)

// TestConnectionLimit opens many connections from one network. The network may hold at most an eighth of all
// connections, and clients of other networks must still connect. The metrics must count the refused connections.
func TestConnectionLimit(t *testing.T) {
	c := newCascade(t)
	cfg := accounts(t, c, 1)
	cfg.MaxConnections, cfg.TrustedProxies = 16, nil
	var err error
	cfg.AdminListener, err = net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	c.StartIssuer(t, cfg)
	target, err := url.Parse(c.Open.DirectoryURL(0))
	require.NoError(t, err)
	relaytest.RequireShare(t, target.Host, target.Path)
	resp, err := http.Get("http://" + cfg.AdminListener.Addr().String() + "/metrics")
	require.NoError(t, err)
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	require.NoError(t, err)
	require.NotContains(t, string(text), "\ndoona_issuer_connections_refused_total 0\n")
	require.Contains(t, string(text), "\ndoona_issuer_connections_refused_total ")
}
