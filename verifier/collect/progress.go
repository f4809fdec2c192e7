package collect

import (
	"errors"
	"io/fs"
	"os"
	"sync"
	"time"

	"github.com/doona-dp/doona/verifier"
	"github.com/doona-dp/doona/wire/handover"
	"github.com/doona-dp/doona/wire/task"
)

// pullStatus is what a puller remembers for [Puller.Progress] and [Puller.Failing]. It is safe for concurrent use.
type pullStatus struct {
	mu      sync.Mutex // guards the rest
	contact verifier.Contact
	at      uint64          // Of the last answer, Unix seconds.
	ended   map[uint64]bool // By epoch.
	failing bool            // The last pull met an error of the file system.
	pending int             // Batches not yet confirmed.
}

// progress says how far the puller has come with a task's epochs by now, in Unix seconds. An epoch without its signed
// end is late from that long after its end on.
func (s *pullStatus) progress(epochs task.Epochs, now uint64, late time.Duration) verifier.Progress {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := verifier.Progress{Contact: s.contact, LastContact: s.at, Ended: uint64(len(s.ended)),
		Late: []uint64{}, Unconfirmed: uint64(s.pending)}
	if out.Ended == epochs.Count && out.Unconfirmed == 0 {
		out.Contact = verifier.ContactOver
	}
	if now >= epochs.Start {
		out.Epochs = min((now-epochs.Start)/epochs.Length+1, epochs.Count)
	}
	for epoch := range out.Epochs {
		if end := epochs.End(epoch); !s.ended[epoch] && now >= end && now-end >= uint64(late/time.Second) {
			out.Late = append(out.Late, epoch)
		}
	}
	return out
}

// noteContact takes the outcome of a pull. Who is asked and says that there is nothing yet has answered.
func (s *pullStatus) noteContact(err error, clock func() time.Time) {
	answered := err == nil || handover.Foreign(err) != nil || errors.As(err, new(*handover.Refused)) ||
		errors.Is(err, handover.ErrNotSealed) || errors.Is(err, handover.ErrEpochComplete) ||
		errors.Is(err, handover.ErrConfirmed) || errors.Is(err, errEnded) || errors.Is(err, errEquivocation)
	s.mu.Lock()
	defer s.mu.Unlock()
	if !answered {
		s.contact = verifier.ContactAway
		return
	}
	s.contact, s.at = verifier.ContactThere, uint64(max(clock().Unix(), 0))
}

func (s *pullStatus) noteEnded(epoch uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ended[epoch] = true
}

func (s *pullStatus) noteDisk(failing bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.failing = failing
}

func (s *pullStatus) isFailing() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.failing
}

func (s *pullStatus) notePending(batches int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.pending = batches
}

// isDiskError says whether an error is one of the file system.
func isDiskError(err error) bool {
	return errors.As(err, new(*fs.PathError)) || errors.As(err, new(*os.LinkError))
}

// Progress says how far the puller has come. It is safe for concurrent use.
func (p *Puller) Progress() verifier.Progress {
	return p.status.progress(p.open.Epochs, uint64(max(p.Clock().Unix(), 0)), p.Late)
}

// Failing says whether something could not be written down at the last pull: the disk is full, or broken.
func (p *Puller) Failing() bool { return p.status.isFailing() }

// notePending counts the batches that are not yet confirmed.
func (p *Puller) notePending() {
	n := 0
	for _, c := range p.cursors {
		n += len(c.pending)
	}
	p.status.notePending(n)
}
