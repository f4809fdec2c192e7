package service

import (
	"net"
	"net/http"
	"net/netip"
	"sync"
)

// Connections limits the open connections of a listener: in total, and per network to an eighth of those still free.
// The limit per network does not apply to trusted proxies. Networks may hold connections, by sending nothing until they
// time out or by reading slowly, but never all: if k networks open as many as they can, (8/9)^k stay free. When its
// connections time out, a network cannot open new ones while it exceeds its eighth. A connection beyond a limit is
// closed at once, because there is no capacity to answer it. Connections is safe for concurrent use.
type Connections struct {
	limit   int
	proxies Proxies

	mu       sync.Mutex // guards the rest
	open     int
	networks map[netip.Prefix]int
	refused  func()
}

// NewConnections limits the number of open connections. It calls refused for each connection that it closes for this.
func NewConnections(limit int, p Proxies, refused func()) *Connections {
	return &Connections{limit: limit, proxies: p, networks: map[netip.Prefix]int{}, refused: refused}
}

// admit counts a connection, or returns false if it is beyond the limit.
func (c *Connections) admit(from netip.Prefix, proxy bool) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	free := c.limit - c.open
	if free == 0 || !proxy && c.networks[from] >= (free+7)/8 {
		return false
	}
	c.open++
	if !proxy { // other clients may share a proxy's network
		c.networks[from]++
	}
	return true
}

func (c *Connections) release(from netip.Prefix, proxy bool) {
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

// CloseWhenBusy closes each connection after its answer while more than half of the limit are open. Otherwise idle
// clients would keep others out until their connections time out.
func (c *Connections) CloseWhenBusy(handler http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		if c.Count() > c.limit/2 {
			w.Header().Set("Connection", "close")
		}
		handler.ServeHTTP(w, req)
	})
}

// Limit wraps a listener so that it enforces the limits.
func (c *Connections) Limit(l net.Listener) net.Listener { return &limitedListener{l, c} }

type limitedListener struct {
	net.Listener
	connections *Connections
}

func (l *limitedListener) Accept() (net.Conn, error) {
	for {
		conn, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		at, _ := ParseAddress(conn.RemoteAddr().String())
		from, proxy := Network(at), l.connections.proxies.Trusts(at)
		if l.connections.admit(from, proxy) {
			return &limitedConn{Conn: conn, release: sync.OnceFunc(func() { l.connections.release(from, proxy) })}, nil
		}
		conn.Close()
		l.connections.refused()
	}
}

// limitedConn lowers the count of open connections when it is closed.
type limitedConn struct {
	net.Conn
	release func()
}

func (c *limitedConn) Close() error {
	c.release() // first, so that a peer that sees the connection closed can open a new one
	return c.Conn.Close()
}
