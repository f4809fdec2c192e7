// Package service is what the long-running programs have in common: how they read their
// configuration, and how they serve and stop without saying who their clients are.
package service

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"runtime/debug"
	"time"
)

// DrainTimeout bounds [Drain].
const DrainTimeout = 10 * time.Second

// Drain lets servers ([http.Server]) answer what has begun. Who takes longer than [DrainTimeout] gets
// no answer, and so knows that the request must be sent again.
func Drain[S interface {
	Shutdown(context.Context) error
	Close() error
}](servers []S) {
	ctx, cancel := context.WithTimeout(context.Background(), DrainTimeout)
	defer cancel()
	for _, s := range servers {
		if s.Shutdown(ctx) != nil {
			s.Close()
		}
	}
}

// Guard logs a handler's panic without the client's address, which net/http would put there. What
// net/http logs besides must be discarded for the same reason.
func Guard(log *slog.Logger, handler http.Handler) http.Handler {
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
