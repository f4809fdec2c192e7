package issuer

import (
	"cmp"
	"errors"
	"net/http"
	"time"

	"github.com/doona-dp/doona/internal/clock"
	"github.com/doona-dp/doona/internal/service"
	"github.com/doona-dp/doona/wire/handover"
	"github.com/doona-dp/doona/wire/keyfile"
	"github.com/doona-dp/doona/wire/task"
	"github.com/doona-dp/doona/wire/taskfile"
)

// ClockFile returns the path of the file beside the store that records the latest time that has surely passed.
func (c *Config) ClockFile() string { return storePath(c.Store) + ".clock" }

// loadClock creates the guard of the issuer's clock. It also loads the keys with which the issuer signs its time, and
// the certificates for asking relays for their time.
func (i *Issuer) loadClock() (err error) {
	if i.cfg.SignKey != "" {
		if i.signers, err = keyfile.LoadSigners(i.cfg.SignKey, i.cfg.OldSignKeys); err != nil {
			return err
		}
		for _, s := range i.hosted().order {
			if err := i.checkTimeKey(s.Open); err != nil {
				return err
			}
		}
	}
	transport, err := handover.LoadTransport(i.cfg.CA)
	if err != nil {
		return err
	}
	i.relays = handover.NewRequester(nil, transport) // requests for the time are not signed
	shortest := i.hosted().order[0].Epochs.Length.Shortest()
	for _, s := range i.hosted().order {
		shortest = min(shortest, s.Epochs.Length.Shortest())
	}
	i.clock, err = clock.New(clock.Options{File: i.cfg.ClockFile(), Wall: i.cfg.Clock, Elapsed: i.cfg.Elapsed,
		Tolerance: clock.Tolerance(shortest), Ends: i.severalEpochsEnd, Log: i.cfg.Log})
	return err
}

// checkTimeKey returns an error if the issuer signs its time, but lacks the signing key that the task names.
func (i *Issuer) checkTimeKey(open *taskfile.Open) error {
	if i.signers == nil {
		return nil
	}
	return i.signers.Check(open.ID, "the issuer", open.Clients.Issuer.SignKey)
}

// setClockPeers makes the clock guard compare with the clocks of the relays of all served tasks.
func (i *Issuer) setClockPeers() {
	var tasks []*taskfile.Open
	var own []task.SignKey
	for _, s := range i.hosted().order {
		tasks, own = append(tasks, s.Open), append(own, s.Clients.Issuer.SignKey)
	}
	i.clock.SetPeers(i.relays, own, tasks...)
}

// severalEpochsEnd reports whether, in one task, more than one epoch whose key still exists ends in (from, to].
func (i *Issuer) severalEpochsEnd(from, to time.Time) bool {
	for _, s := range i.hosted().order {
		ends := 0
		for _, epoch := range s.keys.Epochs() {
			if _, end := i.window(s, epoch); end.After(from) && !end.After(to) {
				ends++
			}
		}
		if ends > 1 {
			return true
		}
	}
	return false
}

// isReady returns why the issuer issues no tokens, or nil if it does. Reasons: it has not started, is draining, doubts
// its clock, or cannot write to a disk.
func (i *Issuer) isReady() error {
	if doubt := i.clock.Read().Doubt; doubt != "" {
		return errors.New(string(doubt))
	}
	return cmp.Or(i.canWrite(), service.Ready(&i.ready))
}

func (i *Issuer) handleTime(w http.ResponseWriter, req *http.Request) error {
	s, err := service.PathTask(req, i.hosted().tasks)
	if err != nil {
		return err
	}
	return service.WriteTime(w, req, i.signers.Of(s.Clients.Issuer.SignKey), s.ID, s.VerifierHop()+1,
		i.clock.Read().Now)
}
