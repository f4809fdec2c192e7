package relay

import (
	"github.com/doona-dp/doona/internal/clock"
)

// ClockFile returns the path of the file that stores the latest time this relay knows to have passed. It lies beside
// the secret file.
func (c *Config) ClockFile() string { return c.Secret + ".clock" }

// guard returns the clock guard: it decides how far this relay trusts its own clock.
func (r *setup) guard() (*clock.Guard, error) {
	return clock.New(clock.Options{File: r.cfg.ClockFile(), Wall: r.cfg.Clock, Elapsed: r.cfg.Elapsed,
		Tolerance: clock.Tolerance(r.ShortestEpoch()), Ends: r.ManyEnd, Log: r.cfg.Log})
}
