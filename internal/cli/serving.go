package cli

import (
	"context"
	"os"
	"os/signal"
	"syscall"
)

// Serving returns a context that ends with SIGTERM or an interrupt. It ignores SIGHUP, which supervisors send for a
// reload and which would end the program without draining: certificates are read anew without it. [Hangups] is for
// programs that reload more.
func Serving() (context.Context, context.CancelFunc) {
	Serves()
	signal.Ignore(syscall.SIGHUP)
	return signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
}

// Hangups returns a channel that has a value after SIGHUP. Call it before the program reads what it reads again after
// the signal, so that no change is missed. Several signals may give one value.
func Hangups() <-chan os.Signal {
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, syscall.SIGHUP)
	return signals
}
