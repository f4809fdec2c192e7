package service

import (
	"net"
	"net/http"
	"net/netip"
	"sync"
)

// Connections limits the open connections of a listener: in total, and for one network, except trusted proxies, to an
// eighth of the free ones. Networks that hold connections, by sending nothing until they time out or by reading slowly,
// therefore never hold all: k networks that take as many as they can leave (8/9)^k free. When their connections time
// out, they cannot take them again while they exceed that eighth. A connection beyond the limit is closed at once:
// there is no capacity to answer it. Connections is safe for concurrent use.
type Connections struct {
	most    int
	proxies Proxies

	mu       sync.Mutex // guards the rest
	open     int
	networks map[netip.Prefix]int
	refused  func()
}

// NewConnections limits open connections to most. It calls refused for each connection beyond the limit.
func NewConnections(most int, p Proxies, refused func()) *Connections {
	return &Connections{most: most, proxies: p, networks: map[netip.Prefix]int{}, refused: refused}
}

// take admits a connection, or returns false.
func (c *Connections) take(from netip.Prefix, proxy bool) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	free := c.most - c.open
	if free == 0 || !proxy && c.networks[from] >= (free+7)/8 {
		return false
	}
	c.open++
	if !proxy { // other clients may share a proxy's network
		c.networks[from]++
	}
	return true
}

func (c *Connections) leave(from netip.Prefix, proxy bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.open--
	if proxy {
		return
	}
	if c.networks[from]--; c.networks[from] == 0 {
		delete(c.networks, from)
	}
}

// Count returns how many connections are open.
func (c *Connections) Count() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.open
}

// Sparing closes connections after their answer while more than half of all are open: otherwise clients that are done
// would keep others out until their idle timeout.
func (c *Connections) Sparing(handler http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		if c.Count() > c.most/2 {
			w.Header().Set("Connection", "close")
		}
		handler.ServeHTTP(w, req)
	})
}

// Bound returns a listener that enforces the limits.
func (c *Connections) Bound(l net.Listener) net.Listener { return &boundListener{l, c} }

type boundListener struct {
	net.Listener
	connections *Connections
}

func (l *boundListener) Accept() (net.Conn, error) {
	for {
		conn, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		at, _ := ParseAddress(conn.RemoteAddr().String())
		from, proxy := Network(at), l.connections.proxies.Trusts(at)
		if l.connections.take(from, proxy) {
			return &boundConn{Conn: conn, leave: sync.OnceFunc(func() { l.connections.leave(from, proxy) })}, nil
		}
		conn.Close()
		l.connections.refused()
	}
}

// boundConn releases its capacity when it is closed.
type boundConn struct {
	net.Conn
	leave func()
}

func (c *boundConn) Close() error {
	c.leave() // first: a peer that sees the connection closed finds capacity free
	return c.Conn.Close()
}
