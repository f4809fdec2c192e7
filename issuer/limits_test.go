package issuer_test

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/doona-dp/doona/internal/relaytest"
)

// TestConnectionLimit: one network holds at most an eighth of the connections; whoever comes from elsewhere finds a
// place, and the metrics count who did not.
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
	dial := func(from string) net.Conn {
		d := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(from)}}
		conn, err := d.Dial("tcp", target.Host)
		require.NoError(t, err)
		t.Cleanup(func() { conn.Close() })
		return conn
	}
	served := func(conn net.Conn) bool {
		conn.SetDeadline(time.Now().Add(10 * time.Second))
		if _, err := fmt.Fprintf(conn, "GET %s HTTP/1.1\r\nHost: x\r\n\r\n", target.Path); err != nil {
			return false
		}
		line, err := bufio.NewReader(conn).ReadString('\n')
		return err == nil && strings.Contains(line, "200")
	}
	a, b := dial("127.0.1.1"), dial("127.0.1.2")
	require.True(t, served(a) && served(b))
	require.False(t, served(dial("127.0.1.3")), "a third of one network")
	require.True(t, served(dial("127.0.2.1")))
	a.Close()
	require.Eventually(t, func() bool { return served(dial("127.0.1.3")) }, relaytest.Patience, 10*time.Millisecond)
	resp, err := http.Get("http://" + cfg.AdminListener.Addr().String() + "/metrics")
	require.NoError(t, err)
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	require.NoError(t, err)
	require.NotContains(t, string(text), "\ndoona_issuer_connections_refused_total 0\n")
	require.Contains(t, string(text), "\ndoona_issuer_connections_refused_total ")
}
