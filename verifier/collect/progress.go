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

// pullStatus is the state behind [Puller.Progress] and [Puller.Failing]. It is safe for concurrent use.
type pullStatus struct {
	mu      sync.Mutex // guards the rest
	contact verifier.Contact
	at      uint64          // Time of the relay's last answer, in Unix seconds.
	ended   map[uint64]bool // Epochs whose signed end was received.
	failing bool            // Whether the last pull had a file system error.
	pending int             // Number of stored batches not yet confirmed to the relay.
}

// progress returns the progress of a task at time now, in Unix seconds. An epoch without a signed end is late from the
// duration late after its end.
func (s *pullStatus) progress(epochs task.Epochs, now uint64, late time.Duration) verifier.Progress {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := verifier.Progress{Contact: s.contact, LastContact: s.at, Ended: uint64(len(s.ended)),
		Late: []uint64{}, Unconfirmed: uint64(s.pending)}
	if out.Ended == epochs.Count && out.Unconfirmed == 0 {
		out.Contact = verifier.ContactOver
	}
	if now >= epochs.Start {
		epoch, _ := epochs.At(now)
		out.Epochs = min(epoch+1, epochs.Count)
	}
	for epoch := range out.Epochs {
		if end := epochs.End(epoch); !s.ended[epoch] && now >= end && now-end >= uint64(late/time.Second) {
			out.Late = append(out.Late, epoch)
		}
	}
	return out
}

// noteContact records whether the relay answered a pull. An answer that nothing is ready counts as an answer.
func (s *pullStatus) noteContact(err error, clock func() time.Time) {
	answered := err == nil || handover.Foreign(err) != nil || errors.As(err, new(*handover.InvalidBatchError)) ||
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

// isDiskError reports whether an error comes from the file system.
func isDiskError(err error) bool {
	return errors.As(err, new(*fs.PathError)) || errors.As(err, new(*os.LinkError))
}

// Progress returns how much the puller has received so far. It is safe for concurrent use.
func (p *Puller) Progress() verifier.Progress {
	return p.status.progress(p.open.Epochs, uint64(max(p.Clock().Unix(), 0)), p.Late)
}

// Failing reports whether the last pull could not write a file, because the disk is full or broken.
func (p *Puller) Failing() bool { return p.status.isFailing() }

// notePending counts the stored but unconfirmed batches.
func (p *Puller) notePending() {
	n := 0
	for _, c := range p.cursors {
		n += len(c.pending)
	}
	p.status.notePending(n)
}
