package relay

import (
	"context"
	"errors"
	"time"

	"github.com/doona-dp/doona/relay/internal/store"
	"github.com/doona-dp/doona/wire/handover"
	"github.com/doona-dp/doona/wire/problem"
)

// The next hop's memory shows what nothing here can: that the store, the secret and the keys were set back
// together, to one moment. The number that it asks for is signed, and it asks for one only when it has had
// the batches before. If one of these was not begun here, or is still open, this relay has forgotten them, and with
// them who has reported; or the next hop lies, which can stop the epoch whatever it says. The request also has a
// hash of all manifests before, so that it shows, too, where a number is there again and is another batch. So
// nothing more is taken, made or handed out in that epoch, until the operator has put back what is newer, or ended
// the epochs.

// findBehind is kept on such an epoch.
const findBehind Reason = "the next hop has had a batch that is not here: everything was set back"

// errBehind is the problem of such an epoch.
func errBehind() error { return problem.New(problem.SetBack, "%s", findBehind).Retry(setBackRetry) }

// checkBehind is errBehind in an epoch of which the next hop knows more than the store, as its pull of a
// number tells. An epoch that has not begun here has nothing to be behind.
func (r *Relay) checkBehind(ctx context.Context, s *served, epoch, seq uint64) error {
	if err := s.judged(epoch); err != nil {
		return err
	}
	start, _ := r.window(s, epoch)
	if r.clock.Read().Latest.Before(start) {
		return nil
	}
	sealed, err := r.store.SealedBelow(ctx, s.epochID(epoch), seq)
	if err != nil || sealed {
		return err
	}
	return r.nowBehind(ctx, s, epoch, seq)
}

// checkBefore is errBehind in an epoch that is behind, or where the next hop has had another batch of a number
// before this one, or one that is not made yet.
func (r *Relay) checkBefore(ctx context.Context, s *served, epoch, seq uint64, before handover.Before) error {
	if err := s.judged(epoch); err != nil {
		return err
	}
	if seq == 0 || before == (handover.Before{}) {
		return nil
	}
	had, err := s.made.below(epoch, seq, func(seq uint64) ([]byte, error) {
		manifest, _, err := r.store.Manifest(ctx, s.epochID(epoch), seq)
		return manifest, err
	})
	if errors.Is(err, store.ErrNoBatch) {
		return r.checkBehind(ctx, s, epoch, seq) // nil where it has expired
	}
	if err != nil || had.Agrees(before) {
		return err
	}
	return r.nowBehind(ctx, s, epoch, seq)
}

func (r *Relay) nowBehind(ctx context.Context, s *served, epoch, seq uint64) error {
	s.fallBehind(epoch)
	return errors.Join(errBehind(), r.note(ctx, s, epoch, seq, findBehind))
}

// loadBehind takes note of what this process, or another one on the store, has found before.
func (r *Relay) loadBehind(ctx context.Context) error {
	all, err := r.store.Findings(ctx)
	for _, f := range all {
		if s := r.lineup().tasks[f.ID.Task]; s != nil && f.Reason == findBehind {
			s.fallBehind(f.ID.Epoch)
		}
	}
	return err
}

// endBehind ends what must not be kept of such an epoch: its keys, when it is over, and the rest when its
// retention is.
func (r *Relay) endBehind(ctx context.Context, s *served, epoch uint64, end time.Time) error {
	read := r.clock.Read()
	if !read.Over(end) {
		return nil
	}
	if err := r.forget(s, epoch); err != nil || !read.Over(end.Add(r.cfg.Retention)) {
		return err
	}
	return r.expireEpoch(ctx, s, epoch)
}

// judged is the problem of an epoch of which nothing is to be looked up: it is behind, or the operator has ended it,
// which forgets its batches on purpose.
func (s *served) judged(epoch uint64) error {
	switch {
	case s.state(epoch) == store.StateEnded:
		return ended()
	case s.isBehind(epoch):
		return errBehind()
	}
	return nil
}

func (s *served) isBehind(epoch uint64) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.behind[epoch]
}

func (s *served) fallBehind(epoch uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.behind[epoch] = true
}
