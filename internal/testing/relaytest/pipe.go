package relaytest

import (
	"net"
	"net/netip"
	"sync"
)

// PipeListener is a network in memory: a [net.Listener] for connections made with Dial. A blocked connection blocks
// only a goroutine, so package testing/synctest can run servers and clients in virtual time. Connections have no
// buffer: a writer waits until its peer reads.
type PipeListener struct {
	conns  chan net.Conn
	closed chan struct{}
	once   sync.Once
}

// ListenPipe returns the listener of a new network.
func ListenPipe() *PipeListener {
	return &PipeListener{conns: make(chan net.Conn), closed: make(chan struct{})}
}

// Dial connects to the listener. The listener sees from, such as "192.0.2.1:80", as the peer's address. Dial waits
// until the connection is accepted. If the listener is closed, it returns a closed connection.
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

// Addr returns an empty address, as a network in memory has none.
func (l *PipeListener) Addr() net.Addr { return &net.TCPAddr{} }

// conn is a connection that reports the peer's address given to Dial.
type conn struct {
	net.Conn
	from netip.AddrPort
}

func (c conn) RemoteAddr() net.Addr { return net.TCPAddrFromAddrPort(c.from) }
