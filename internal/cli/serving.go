package cli

import (
	"context"
	"os"
	"os/signal"
	"syscall"
)

// Serving returns a context that ends with SIGTERM or an interrupt. It ignores SIGHUP, which supervisors send for a
// reload and which would end the program without draining: certificates are read anew without it.
func Serving() (context.Context, context.CancelFunc) {
	Serves()
	signal.Ignore(syscall.SIGHUP)
	return signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
}
