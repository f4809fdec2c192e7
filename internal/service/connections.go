package service

import (
	"net"
	"net/http"
	"net/netip"
	"sync"
)

// Connections bounds the open connections of a listener: all together, and for one network, trusted proxies apart, an
// eighth of the places that are free. So the places that some networks hold, by sending nothing until they are timed
// out or by reading slowly, are never all: k of them that take what they can leave (8/9)^k, and what they hold on time
// out cannot be taken again while it is more than that eighth. One too many is closed at once: without a place for
// it there is nobody to answer. It is safe for concurrent use.
type Connections struct {
	most    int
	proxies Proxies

	mu       sync.Mutex // guards the rest
	open     int
	networks map[netip.Prefix]int
	refused  func()
}

// NewConnections bounds connections to most at a time; refused is called for each one too many.
func NewConnections(most int, p Proxies, refused func()) *Connections {
	return &Connections{most: most, proxies: p, networks: map[netip.Prefix]int{}, refused: refused}
}

// take takes a place and says whether there was one.
func (c *Connections) take(from netip.Prefix, proxy bool) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	free := c.most - c.open
	if free == 0 || !proxy && c.networks[from] >= (free+7)/8 {
		return false
	}
	c.open++
	if !proxy { // whose network others may be in
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

// Sparing has connections closed after their answer while more than half of all are open: else
// clients that are done would hold the places of others until they are idle for long enough.
func (c *Connections) Sparing(handler http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		if c.Count() > c.most/2 {
			w.Header().Set("Connection", "close")
		}
		handler.ServeHTTP(w, req)
	})
}

// Bound returns a listener within the bounds.
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

// boundConn gives its place back when it is closed.
type boundConn struct {
	net.Conn
	leave func()
}

func (c *boundConn) Close() error {
	c.leave() // first: who sees that the connection is closed finds its place free
	return c.Conn.Close()
}
