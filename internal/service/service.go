// Package service is what the long-running programs have in common: how they read their
// configuration, and how they serve and stop without saying who their clients are.
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

// Limits of a [Server]: a client that dawdles loses its connection. ReadTimeout and WriteTimeout may be
// put off for long bodies and answers, by their size.
const (
	headerTimeout = 10 * time.Second // for the headers of a request
	ReadTimeout   = 15 * time.Second // for the whole request
	WriteTimeout  = 30 * time.Second // from its headers to the end of the answer
	idleTimeout   = time.Minute      // between an answer and the next request
	maxHeader     = 16 << 10         // bytes
)

// Server is an HTTP server with its listener.
type Server struct {
	http.Server
	listener net.Listener

	mu      sync.Mutex // guards the rest
	fresh   map[net.Conn]bool
	closing bool
}

// Endpoint is what is served at an address.
type Endpoint struct {
	Address  string       // "host:port"; "" for none
	Listener net.Listener // in place of Address, or nil
	Handler  http.Handler
	Wrap     func(net.Listener) net.Listener // of the listener, or nil
}

// Listen opens those endpoints that have an address or a listener, all or none.
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

// newServer returns a server that logs no addresses. It speaks HTTP/1.1 only: a client sends one
// request a visit, so there is nothing to multiplex, and what a connection may take stays small.
func newServer(l net.Listener, handler http.Handler, to *slog.Logger) *Server {
	s := &Server{listener: l, fresh: map[net.Conn]bool{}}
	s.Handler, s.ErrorLog = guard(to, handler), log.New(io.Discard, "", 0)
	s.Protocols = new(http.Protocols)
	s.Protocols.SetHTTP1(true)
	s.ReadHeaderTimeout, s.ReadTimeout, s.WriteTimeout, s.IdleTimeout = headerTimeout, ReadTimeout, WriteTimeout,
		idleTimeout
	s.MaxHeaderBytes = maxHeader
	s.ConnState = s.follow
	s.RegisterOnShutdown(s.closeFresh)
	return s
}

// follow notes the connections that have brought no request yet.
func (s *Server) follow(conn net.Conn, state http.ConnState) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case state != http.StateNew:
		delete(s.fresh, conn)
	case s.closing: // accepted just before the listener was closed
		conn.Close()
	default:
		s.fresh[conn] = true
	}
}

// closeFresh closes them: net/http answers no request that comes while it shuts down, and yet would wait
// 5 s for those connections. Browsers open some in advance.
func (s *Server) closeFresh() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closing = true
	for conn := range s.fresh {
		conn.Close()
	}
}

// Serve returns when ctx ends, with nil, or when a server fails. [Drain] is for the caller to call. A service
// manager such as systemd is told that the program serves, that it runs, and that it stops.
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

// Ready is an error while a program does not serve: before its start, or while it drains.
func Ready(serving *atomic.Bool) error {
	if !serving.Load() {
		return errors.New("starting or draining")
	}
	return nil
}

// DrainTimeout bounds [Drain].
const DrainTimeout = 10 * time.Second

// Drain lets servers answer what has begun. Who takes longer than [DrainTimeout] gets no answer, and so
// knows that the request must be sent again.
func Drain(servers []*Server) {
	ctx, cancel := context.WithTimeout(context.Background(), DrainTimeout)
	defer cancel()
	for _, s := range servers {
		if s.Shutdown(ctx) != nil {
			s.Close()
		}
	}
}

// guard logs a handler's panic without the client's address, which net/http would put there. What
// net/http logs besides is discarded for the same reason.
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
