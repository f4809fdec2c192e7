// Package service has the common parts of the servers. It reads configurations. It serves and stops without revealing
// who the clients are.
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

// Limits of a [Server]. A client that exceeds them loses its connection. For long bodies and answers a handler may
// extend ReadTimeout and WriteTimeout by their size.
const (
	headerTimeout = 10 * time.Second // to read a request's headers
	ReadTimeout   = 15 * time.Second // to read the whole request
	WriteTimeout  = 30 * time.Second // from the request's headers to the end of the answer
	idleTimeout   = time.Minute      // between an answer and the next request
	maxHeader     = 16 << 10         // bytes
)

// Server is an HTTP server with its listener.
type Server struct {
	http.Server
	listener net.Listener

	mu      sync.Mutex        // guards the rest
	unused  map[net.Conn]bool // connections without a request
	closing bool
}

// Endpoint is a handler with its address.
type Endpoint struct {
	Address  string       // "host:port"; "" for none
	Listener net.Listener // replaces Address, if not nil
	Handler  http.Handler
	Wrap     func(net.Listener) net.Listener // wraps the listener, if not nil
}

// Listen opens the endpoints that have an address or a listener, either all or none.
func Listen(log *slog.Logger, endpoints ...Endpoint) (servers []*Server, err error) {
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
		servers = append(servers, newServer(e.Listener, e.Handler, log))
	}
	return servers, nil
}

// newServer returns a server that logs no addresses. It speaks HTTP/1.1 only: a client sends one request per visit, so
// there is nothing to multiplex, and a connection's cost stays small.
func newServer(l net.Listener, handler http.Handler, to *slog.Logger) *Server {
	s := &Server{listener: l, unused: map[net.Conn]bool{}}
	s.Handler, s.ErrorLog = guard(to, handler), log.New(io.Discard, "", 0)
	s.Protocols = new(http.Protocols)
	s.Protocols.SetHTTP1(true)
	s.ReadHeaderTimeout, s.ReadTimeout, s.WriteTimeout, s.IdleTimeout = headerTimeout, ReadTimeout, WriteTimeout,
		idleTimeout
	s.MaxHeaderBytes = maxHeader
	s.ConnState = s.track
	s.RegisterOnShutdown(s.closeUnused)
	return s
}

// track records the connections without a request.
func (s *Server) track(conn net.Conn, state http.ConnState) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case state != http.StateNew:
		delete(s.unused, conn)
	case s.closing: // accepted just before the listener was closed
		conn.Close()
	default:
		s.unused[conn] = true
	}
}

// closeUnused closes connections without a request, which browsers open in advance. During a shutdown, net/http would
// wait 5 s for them, but answer no request that comes.
func (s *Server) closeUnused() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closing = true
	for conn := range s.unused {
		conn.Close()
	}
}

// Serve serves until ctx ends, then returns nil, or until a server fails, then returns its error. The caller then calls
// [Drain]. Serve tells a service manager such as systemd that the program is ready, runs or stops.
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

// Ready returns an error while a program does not serve: before its start, or while it drains.
func Ready(serving *atomic.Bool) error {
	if !serving.Load() {
		return errors.New("starting or draining")
	}
	return nil
}

// DrainTimeout is the maximum duration of [Drain].
const DrainTimeout = 10 * time.Second

// Drain lets servers finish requests that have begun. A request that takes longer than [DrainTimeout] gets no answer,
// so its client sends it again.
func Drain(servers []*Server) {
	ctx, cancel := context.WithTimeout(context.Background(), DrainTimeout)
	defer cancel()
	for _, s := range servers {
		if s.Shutdown(ctx) != nil {
			s.Close()
		}
	}
}

// guard logs a handler's panic without the client's address, which net/http would log. For the same reason the server
// discards the rest of net/http's log.
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
