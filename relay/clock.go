package relay

import (
	"time"

	"github.com/doona-dp/doona/internal/clock"
	"github.com/doona-dp/doona/internal/service"
	"github.com/doona-dp/doona/relay/internal/tasks"
	"github.com/doona-dp/doona/wire/problem"
)

// ClockFile returns the file that keeps what time has surely come, beside the secret.
func (c *Config) ClockFile() string { return c.Secret + ".clock" }

// guard returns the guard of this relay's time.
func (r *setup) guard() (*clock.Guard, error) {
	return clock.New(clock.Options{File: r.cfg.ClockFile(), Wall: r.cfg.Clock, Elapsed: r.cfg.Elapsed,
		Tolerance: clock.Tolerance(r.ShortestEpoch()), Ends: r.ManyEnd, Log: r.cfg.Log})
}

// now returns the time, or the problem that it is not known.
func (in *ingress) now() (time.Time, error) {
	read := in.clock.Read()
	if read.Doubt != "" {
		return read.Now, service.TryLater(problem.ClockInDoubt, "")
	}
	return read.Now, nil
}

// mayEnd says whether the signed end of an epoch may be taken. It is of the relay from which all comes
// that this one could open, so it is enough where this relay does not know the time; a clock that is
// not in doubt must say so, too.
func (mx *mixer) mayEnd(e tasks.Epoch) bool {
	_, end := e.Window()
	read := mx.clock.Read()
	if read.Doubt != "" {
		return !read.Latest.Before(end)
	}
	return !read.Now.Before(end) || read.Over(end)
}
