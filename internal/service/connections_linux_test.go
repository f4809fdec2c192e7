package service_test

import (
	"bufio"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/doona-dp/doona/internal/service"
)

// flooded is a server with limited connections. Clients connect to it from addresses in several loopback networks.
type flooded struct {
	t       *testing.T
	at      string
	bounds  *service.Connections
	refused atomic.Int64
}

func newFlooded(t *testing.T, most int, trusted ...netip.Prefix) *flooded {
	f := &flooded{t: t}
	f.bounds = service.NewConnections(most, service.Proxies{Trusted: trusted}, func() { f.refused.Add(1) })
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	f.at = l.Addr().String()
	t.Cleanup(serve(t, f.bounds.Limit(l), slog.New(slog.DiscardHandler),
		func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, "here") }, service.Timing{}))
	return f
}

// dial connects from an address, and reports whether the server accepted the connection.
func (f *flooded) dial(from string) (conn net.Conn, admitted bool) {
	f.t.Helper()
	before := f.bounds.Count()
	d := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(from)}}
	conn, err := d.Dial("tcp", f.at)
	require.NoError(f.t, err)
	f.t.Cleanup(func() { conn.Close() })
	for range 5000 {
		if f.bounds.Count() > before {
			return conn, true
		}
		conn.SetReadDeadline(time.Now().Add(time.Millisecond))
		if _, err := conn.Read(make([]byte, 1)); err != nil && !timeout(err) {
			return conn, false
		}
	}
	f.t.Fatal("the server did not accept")
	return nil, false
}

func timeout(err error) bool {
	e, ok := err.(net.Error)
	return ok && e.Timeout()
}

// fill opens silent connections from an address until the server refuses one. It returns how many are open.
func (f *flooded) fill(from string) (n int) {
	f.t.Helper()
	for ; ; n++ {
		if _, admitted := f.dial(from); !admitted {
			return n
		}
	}
}

// answered reports whether the server answers a request over the connection.
func (f *flooded) answered(conn net.Conn) bool {
	conn.SetDeadline(time.Now().Add(5 * time.Second))
	io.WriteString(conn, "GET / HTTP/1.1\r\nHost: x\r\n\r\n")
	resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
	return err == nil && resp.StatusCode == http.StatusOK
}

// TestEightNetworksLeaveCapacity: eight networks hold as many connections as they can, without sending requests. They
// must not keep further networks out.
func TestEightNetworksLeaveCapacity(t *testing.T) {
	f := newFlooded(t, 64)
	held := 0
	for i := range 8 {
		n := f.fill(fmt.Sprintf("127.0.%d.1", i+1))
		require.Positive(t, n)
		require.LessOrEqual(t, n, 8)
		held += n
	}
	require.LessOrEqual(t, held, 48, "a quarter is left")
	for i := range 12 {
		conn, admitted := f.dial(fmt.Sprintf("127.0.%d.1", i+100))
		require.True(t, admitted)
		require.True(t, f.answered(conn))
	}
	require.Positive(t, f.refused.Load())
}

// TestProxyIsNoNetwork: a trusted proxy may use all connections, because its connections carry many clients.
func TestProxyIsNoNetwork(t *testing.T) {
	f := newFlooded(t, 32, netip.MustParsePrefix("127.0.9.0/24"))
	for range 32 {
		_, admitted := f.dial("127.0.9.7")
		require.True(t, admitted)
	}
	_, admitted := f.dial("127.0.9.7")
	require.False(t, admitted, "no connection is free")
}

// TestProxysNeighbour: a trusted proxy's connections do not count for its network, neither open nor closed. Another
// relay may be in the same network.
func TestProxysNeighbour(t *testing.T) {
	f := newFlooded(t, 32, netip.MustParsePrefix("127.0.9.7/32"))
	var held []net.Conn
	for range 16 {
		conn, admitted := f.dial("127.0.9.7")
		require.True(t, admitted)
		held = append(held, conn)
	}
	_, admitted := f.dial("127.0.9.8")
	require.True(t, admitted, "a neighbour of the proxy")
	require.Equal(t, 1, f.fill("127.0.9.8"), "an eighth of the 16 free connections, as for every network")
	for _, conn := range held {
		conn.Close()
	}
	require.Eventually(t, func() bool { return f.bounds.Count() == 2 }, 5*time.Second, time.Millisecond)
	require.Equal(t, 2, f.fill("127.0.9.8"), "an eighth of 32, of which it has two")
}
