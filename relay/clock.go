package relay

import (
	"time"

	"github.com/doona-dp/doona/internal/clock"
	"github.com/doona-dp/doona/internal/service"
	"github.com/doona-dp/doona/relay/internal/store"
	"github.com/doona-dp/doona/wire/problem"
	"github.com/doona-dp/doona/wire/taskfile"
)

// ClockFile returns the file that keeps what time has surely come, beside the secret.
func (c *Config) ClockFile() string { return c.Secret + ".clock" }

// guard returns the guard of this relay's time.
func (r *setup) guard() (*clock.Guard, error) {
	shortest := uint64(1<<32 - 1)
	for _, s := range r.hosted().order {
		shortest = min(shortest, s.Epochs.Length)
	}
	for _, l := range r.hosted().streams { // also those that this relay is about to join
		shortest = min(shortest, l.root.Epochs.Length)
	}
	return clock.New(clock.Options{File: r.cfg.ClockFile(), Wall: r.cfg.Clock, Elapsed: r.cfg.Elapsed,
		Tolerance: clock.Tolerance(shortest), Ends: r.manyEnd, Log: r.cfg.Log})
}

// setClockPeers has the guard ask the other relays of this one's tasks, and their issuers, for their clocks. Whom an
// approved owner names is not asked: its operator has not looked at them, and two of them could end other owners'
// epochs early.
func (h *host) setClockPeers() {
	var tasks []*taskfile.Open
	for _, s := range h.hosted().order {
		if s.owner == nil {
			tasks = append(tasks, s.Open)
		}
	}
	h.clock.Meet(h.client(), h.signers.Public(), tasks...)
}

// manyEnd says whether more than one epoch of a task that is open here ends between two moments.
func (r *setup) manyEnd(from, to time.Time) bool {
	for _, s := range r.hosted().order {
		ends := 0
		for e := range s.EachEpoch() {
			_, end := e.Window()
			if end.After(to) {
				break
			}
			if end.After(from) && e.State() < store.StateComplete {
				ends++
			}
		}
		if ends > 1 {
			return true
		}
	}
	return false
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
func (mx *mixer) mayEnd(e hostedEpoch) bool {
	_, end := e.Window()
	read := mx.clock.Read()
	if read.Doubt != "" {
		return !read.Latest.Before(end)
	}
	return !read.Now.Before(end) || read.Over(end)
}
