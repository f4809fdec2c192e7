package relay

import (
	"github.com/doona-dp/doona/internal/clock"
)

// ClockFile returns the path of the file, beside the secret, that stores the latest time known to have passed.
func (c *Config) ClockFile() string { return c.Secret + ".clock" }

// guard returns the clock guard, which checks this relay's clock.
func (r *setup) guard() (*clock.Guard, error) {
	return clock.New(clock.Options{File: r.cfg.ClockFile(), Wall: r.cfg.Clock, Elapsed: r.cfg.Elapsed,
		Tolerance: clock.Tolerance(r.ShortestEpoch()), Ends: r.ManyEnd, Log: r.cfg.Log})
}
