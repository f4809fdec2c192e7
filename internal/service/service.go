// Package service has the common parts of the servers: it reads configurations, limits connections, and serves and
// stops without revealing who the clients are.
package service

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"log/slog"
	"net"
	"net/http"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"time"
)

// Time limits of a [Server], which closes a connection that exceeds them. A handler of long bodies or answers may
// extend ReadTimeout and WriteTimeout by their size.
const (
	headerTimeout = 10 * time.Second // to read a request's headers
	ReadTimeout   = 15 * time.Second // to read the whole request
	WriteTimeout  = 30 * time.Second // from the request's headers to the end of the answer
	maxHeader     = 16 << 10         // bytes of all headers of a request
)

// Server is an HTTP server with its listener.
type Server struct {
	http.Server
	listener net.Listener

	mu      sync.Mutex        // guards the rest
	unused  map[net.Conn]bool // connections on which no request has come yet
	closing bool
}

// Endpoint is a handler with its address.
type Endpoint struct {
	Address  string       // "host:port"; "" if the endpoint is not served
	Listener net.Listener // used instead of Address, if not nil
	Handler  http.Handler
	Wrap     func(net.Listener) net.Listener // if not nil, its result replaces the listener
}

// Listen opens all endpoints that have an address or a listener. If one fails, it closes the others.
func Listen(log *slog.Logger, timing Timing, endpoints ...Endpoint) (servers []*Server, err error) {
	for _, e := range endpoints {
		if e.Listener == nil && e.Address != "" {
			if e.Listener, err = net.Listen("tcp", e.Address); err != nil {
				for _, s := range servers {
					s.listener.Close()
				}
				return nil, fmt.Errorf("couldn't listen: %w", err)
			}
		}
		if e.Listener == nil {
			continue
		}
		if e.Wrap != nil {
			e.Listener = e.Wrap(e.Listener)
		}
		server := newServer(e.Listener, e.Handler, log)
		server.IdleTimeout = timing.IdleTimeout
		servers = append(servers, server)
	}
	return servers, nil
}

// newServer returns a server that logs no addresses. It speaks only HTTP/1.1: a client sends one request per visit, so
// there is nothing to multiplex, and a connection costs little memory.
func newServer(l net.Listener, handler http.Handler, to *slog.Logger) *Server {
	s := &Server{listener: l, unused: map[net.Conn]bool{}}
	s.Handler, s.ErrorLog = guard(to, handler), log.New(io.Discard, "", 0)
	s.Protocols = new(http.Protocols)
	s.Protocols.SetHTTP1(true)
	s.ReadHeaderTimeout, s.ReadTimeout, s.WriteTimeout = headerTimeout, ReadTimeout, WriteTimeout
	s.MaxHeaderBytes = maxHeader
	s.ConnState = s.track
	s.RegisterOnShutdown(s.closeUnused)
	return s
}

// track records connections on which no request has come yet.
func (s *Server) track(conn net.Conn, state http.ConnState) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case state != http.StateNew:
		delete(s.unused, conn)
	case s.closing: // the listener accepted it just before it was closed
		conn.Close()
	default:
		s.unused[conn] = true
	}
}

// closeUnused closes connections on which no request has come; browsers open them in advance. A shutdown of net/http
// would wait 5 s for them, but answer no request on them.
func (s *Server) closeUnused() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closing = true
	for conn := range s.unused {
		conn.Close()
	}
}

// Serve serves until ctx ends, then returns nil. If a server fails earlier, it returns that error. Then the caller
// calls [Drain]. Serve tells a service manager such as systemd that the program is ready, running or stopping.
func Serve(ctx context.Context, servers []*Server) error {
	failed := make(chan error, len(servers))
	for _, s := range servers {
		go func() { failed <- s.Serve(s.listener) }()
	}
	collectLater()
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	notify("READY=1")
	go watchdog(ctx)
	defer notify("STOPPING=1")
	select {
	case <-ctx.Done():
		return nil
	case err := <-failed:
		return fmt.Errorf("couldn't serve: %w", err)
	}
}

// Ready returns an error while a program does not serve: before it starts, and while it drains.
func Ready(serving *atomic.Bool) error {
	if !serving.Load() {
		return errors.New("starting or draining")
	}
	return nil
}

// drainTimeout is how long [Drain] waits for requests that have begun.
const drainTimeout = 10 * time.Second

// Drain serves for [Timing.DrainDelay] more, while the program says that it is not ready. After an error of [Serve] it
// does not wait, because only a restart opens the failed server's address again. Then it lets the servers finish the
// requests that have begun. A request that takes longer than 10 seconds gets no answer, so its client must send it
// again.
func Drain(servers []*Server, timing Timing, failed error) {
	if failed == nil {
		time.Sleep(timing.DrainDelay)
	}
	ctx, cancel := context.WithTimeout(context.Background(), drainTimeout)
	defer cancel()
	for _, s := range servers {
		if s.Shutdown(ctx) != nil {
			s.Close()
		}
	}
}

// guard logs a handler's panic without the client's address. net/http would log the address, so the server discards the
// log of net/http.
func guard(log *slog.Logger, handler http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		defer func() {
			v := recover()
			if v == nil {
				return
			}
			if v != http.ErrAbortHandler {
				log.Error("panic", "type", fmt.Sprintf("%T", v), "stack", string(debug.Stack()))
			}
			panic(http.ErrAbortHandler)
		}()
		handler.ServeHTTP(w, req)
	})
}
