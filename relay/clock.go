package relay

import (
	"github.com/doona-dp/doona/internal/clock"
)

// ClockFile returns the file that records the latest time known to have passed, beside the secret.
func (c *Config) ClockFile() string { return c.Secret + ".clock" }

// guard returns the guard of this relay's time.
func (r *setup) guard() (*clock.Guard, error) {
	return clock.New(clock.Options{File: r.cfg.ClockFile(), Wall: r.cfg.Clock, Elapsed: r.cfg.Elapsed,
		Tolerance: clock.Tolerance(r.ShortestEpoch()), Ends: r.ManyEnd, Log: r.cfg.Log})
}
