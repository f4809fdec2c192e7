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

// RequireShare requires that the server at a host and port lets one network have two connections at a time, and opens
// another when one has ended. It returns a function that opens further connections, from an address of this machine,
// and one that reports whether such a connection answers a request for path.
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
	require.False(t, served(dial("127.0.1.3")), "a third of one network")
	require.True(t, served(dial("127.0.2.1")))
	a.Close()
	require.Eventually(t, func() bool { return served(dial("127.0.1.3")) }, Patience, 10*time.Millisecond)
	return dial, served
}
