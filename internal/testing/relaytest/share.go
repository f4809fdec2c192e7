package relaytest

import (
	"bufio"
	"fmt"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// RequireShare checks that a server accepts two connections from one network, refuses a third, and accepts another when
// one has ended. Its results: dial connects from an IP address of this machine, and served reports whether the server
// answers a request for path on a connection.
func RequireShare(t *testing.T, host, path string) (dial func(from string) net.Conn, served func(net.Conn) bool) {
	t.Helper()
	dial = func(from string) net.Conn {
		d := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(from)}}
		conn, err := d.Dial("tcp", host)
		require.NoError(t, err)
		t.Cleanup(func() { conn.Close() })
		return conn
	}
	served = func(conn net.Conn) bool {
		conn.SetDeadline(time.Now().Add(10 * time.Second))
		if _, err := fmt.Fprintf(conn, "GET %s HTTP/1.1\r\nHost: x\r\n\r\n", path); err != nil {
			return false
		}
		line, err := bufio.NewReader(conn).ReadString('\n')
		return err == nil && strings.Contains(line, "200")
	}
	a, b := dial("127.0.1.1"), dial("127.0.1.2")
	require.True(t, served(a) && served(b))
	require.False(t, served(dial("127.0.1.3")), "the server served a third connection from one network")
	require.True(t, served(dial("127.0.2.1")))
	a.Close()
	require.Eventually(t, func() bool { return served(dial("127.0.1.3")) }, Patience, 10*time.Millisecond)
	return dial, served
}
