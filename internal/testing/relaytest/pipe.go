package relaytest

import (
	"net"
	"net/netip"
	"sync"
)

// PipeListener is a network inside a test: a [net.Listener] for connections made with Dial. They block as goroutines
// do, so that package testing/synctest can run servers and clients in virtual time. They have no buffer: a peer that
// does not read blocks the writer from the first byte on.
type PipeListener struct {
	conns  chan net.Conn
	closed chan struct{}
	once   sync.Once
}

// ListenPipe returns a new network's listener.
func ListenPipe() *PipeListener {
	return &PipeListener{conns: make(chan net.Conn), closed: make(chan struct{})}
}

// Dial connects from an address, "192.0.2.1:80", as the listener's side sees it. It waits until the connection is
// accepted; if the listener is closed, it returns a closed connection.
func (l *PipeListener) Dial(from string) net.Conn {
	client, server := net.Pipe()
	select {
	case l.conns <- conn{server, netip.MustParseAddrPort(from)}:
	case <-l.closed:
		server.Close()
	}
	return client
}

// Accept implements [net.Listener].
func (l *PipeListener) Accept() (net.Conn, error) {
	select {
	case c := <-l.conns:
		return c, nil
	case <-l.closed:
		return nil, net.ErrClosed
	}
}

// Close implements [net.Listener].
func (l *PipeListener) Close() error {
	l.once.Do(func() { close(l.closed) })
	return nil
}

// Addr returns a meaningless address.
func (l *PipeListener) Addr() net.Addr { return &net.TCPAddr{} }

// conn is a connection with a peer's address.
type conn struct {
	net.Conn
	from netip.AddrPort
}

func (c conn) RemoteAddr() net.Addr { return net.TCPAddrFromAddrPort(c.from) }
