package relay

import (
	"context"
	"errors"
	"math/bits"
	"time"

	"github.com/doona-dp/doona/relay/internal/store"
	"github.com/doona-dp/doona/wire/codec"
	"github.com/doona-dp/doona/wire/handover"
	"github.com/doona-dp/doona/wire/onion"
	"github.com/doona-dp/doona/wire/problem"
	"github.com/doona-dp/doona/wire/task"
)

// The findings a mix keeps about the relay before it, besides the faults of [handover.Foreign],
// which do not use up a batch's number: the mix asks again until a good one comes or it gives up
// on the epoch. None of them releases anything.
const (
	// Signed by the relay before and wrong in itself: refused for good, by a destroyed batch.
	findInconsistent Reason = "inconsistent manifest"

	// Right, but with too few submissions or valid slots to be released: destroyed.
	findTooFew Reason = "too few valid slots"

	// Signed by the relay before, with other numbers than those of its batches: not believed.
	findEnd Reason = "an end of the epoch that is not that of its batches"

	// Its manifests are kept: [Status]. The number is not used, and the epoch ends here: whoever signs so
	// was set back or lies, and who has reported, and how often, is not known there any more.
	findEquivocation Reason = "two manifests of one number"

	// Signed by the relay before: a number beyond the task's most, or after a last batch. Nothing is made of it,
	// and the epoch ends here: a first relay must not have the others do more work than its clients are worth.
	findTooMany Reason = "a batch after the last one of the epoch"

	// More were destroyed than [onion.Spoilt] allows. The epoch ends here: else whoever signs batches without slots
	// would have this relay keep a manifest for each of them.
	findSpoilt Reason = "too many batches of the epoch were destroyed"

	findLost   Reason = "confirmed from here and not held here: the store was set back"
	findNoKey  Reason = "no key for the epoch"
	findOver   Reason = "the relay before was set back, and its operator has ended the epoch"
	findGiveUp Reason = "gave up waiting for the end of the epoch"
)

// reasons are all findings that there are.
var reasons = []Reason{findInconsistent, findTooFew, findEnd, findEquivocation, findTooMany, findSpoilt, findLost,
	findNoKey, findOver, findGiveUp, findBehind, findEnded, Reason(handover.ErrStranger.Error()),
	Reason(handover.ErrOther.Error()), Reason(handover.ErrAltered.Error())}

// batchesPerTurn is how many batches of an epoch are taken before the other epochs, and what else there is to
// do, have their turn: a relay before that has batches without end stops nothing.
const batchesPerTurn = 16

// pullLoop pulls a task's batches from the relay before, epoch by epoch, until ctx ends. So many tasks of one relay
// before as there are lines to it do so at a time.
func (r *Relay) pullLoop(ctx context.Context, s *served, lines chan struct{}) {
	for {
		select {
		case <-ctx.Done():
			return
		case lines <- struct{}{}:
		}
		more := r.pullTurn(ctx, s)
		<-lines
		if more && ctx.Err() == nil {
			continue
		}
		select {
		case <-ctx.Done():
			return
		case <-s.wake:
		}
	}
}

// pullTurn pulls from every epoch that has begun and is not complete, and says whether one may have more now.
func (r *Relay) pullTurn(ctx context.Context, s *served) (more bool) {
	latest := r.clock.Read().Latest // asking too early does no harm
	asked := false
	for epoch := range s.Epochs.Count {
		start, _ := r.window(s, epoch)
		if r.store.SetBack() != nil || latest.Before(start) {
			break
		}
		if s.state(epoch) >= store.StateComplete || s.isBehind(epoch) {
			continue
		}
		if r.isSpared(s, epoch) {
			r.logged(ctx, "couldn't give up", r.giveUp(ctx, s, epoch))
			continue
		}
		asked = true
		left, err := r.pullEpoch(ctx, s, epoch)
		r.logged(ctx, "couldn't pull", err)
		more = more || left
	}
	if !asked {
		r.metrics.Set(metricPulled, float64(time.Now().Unix()), s.name())
	}
	return more
}

// pullEpoch takes batches of an epoch that are sealed, and ends the epoch when its time is up. It says whether
// there may be more now.
func (r *Relay) pullEpoch(ctx context.Context, s *served, epoch uint64) (more bool, err error) {
	more, err = r.pullSealed(ctx, s, epoch)
	return more, errors.Join(err, r.giveUp(ctx, s, epoch))
}

// pullSealed takes batches until there is none, or those of a turn. The cursor is the number of batches that
// this relay has made of the epoch, so it moves in the transaction that stores one.
func (r *Relay) pullSealed(ctx context.Context, s *served, epoch uint64) (more bool, err error) {
	if err := r.confirmPulled(ctx, s, epoch); err != nil {
		return false, err
	}
	seq, err := r.store.Next(ctx, s.epochID(epoch))
	for range batchesPerTurn {
		if err != nil || r.stopsPulling(s, epoch) {
			return false, err
		}
		if spoilt, err := r.isSpoilt(ctx, s, epoch, seq); spoilt || err != nil {
			return false, err
		}
		done, err := r.pullBatch(ctx, s, epoch, seq)
		if done || err != nil {
			return false, err
		}
		seq++
	}
	return true, nil
}

// stopsPulling says whether nothing more is to be taken of an epoch, whatever the relay before has.
func (r *Relay) stopsPulling(s *served, epoch uint64) bool {
	return r.store.SetBack() != nil || s.isBehind(epoch) || r.clock.Read().Over(r.giveUpAt(s, epoch))
}

// isSpoilt says whether too many of the batches below a number were destroyed, and ends the epoch then.
func (r *Relay) isSpoilt(ctx context.Context, s *served, epoch, seq uint64) (bool, error) {
	destroyed, err := r.store.Destroyed(ctx, s.epochID(epoch))
	if err != nil || !onion.Spoilt(seq-min(seq, destroyed), destroyed) {
		return false, err
	}
	return true, errors.Join(r.note(ctx, s, epoch, seq, findSpoilt), r.complete(ctx, s, epoch, nil))
}

// giveUpAt is when this relay stops waiting for the end of an epoch.
func (r *Relay) giveUpAt(s *served, epoch uint64) time.Time {
	return time.Unix(int64(s.Epochs.End(epoch)), 0).Add(r.cfg.GiveUp)
}

// pullBatch takes one batch and says whether the epoch has no further one now.
func (r *Relay) pullBatch(ctx context.Context, s *served, epoch, seq uint64) (done bool, err error) {
	begun, told := time.Now(), s.told.Load()
	before, err := r.before(ctx, s, epoch, seq)
	if err != nil {
		return false, err
	}
	o, err := r.newOpening(s, epoch)
	if err != nil {
		return false, err
	}
	defer o.close()
	signed, err := s.upstream.PullEach(ctx, s.Open, s.hop-1, epoch, seq, before,
		func(signed *onion.SignedManifest) error {
			err := r.spare(func() error { return r.store.Witness(ctx, s.epochID(epoch), seq, signed) })
			if err != nil {
				return err
			}
			if o.manifest, err = signed.Open(s.Task, s.hop-1); err != nil {
				return err
			}
			if short := r.reserve.Short(); short != nil && !o.manifest.Destroyed() {
				return short // a destroyed one takes next to no room, and lets the epoch end
			}
			return r.mayFollow(ctx, s, epoch, seq)
		}, o.take)
	if answered := new(problem.Problem); err == nil || errors.As(err, &answered) && answered.Name != "" {
		r.metrics.Set(metricPulled, float64(time.Now().Unix()), s.name())
	}
	switch {
	case errors.Is(err, handover.ErrNotSealed):
		s.waitsFor(epoch, seq, told)
		return true, nil
	case errors.Is(err, handover.ErrEpochComplete):
		// Only after its end: the word of another cannot end an epoch early and erase its key.
		if !r.mayEnd(s, epoch) {
			return true, nil
		}
		return true, r.takeEnd(ctx, s, epoch)
	case errors.Is(err, problem.New(problem.EpochEnded, "")):
		return true, r.note(ctx, s, epoch, seq, findOver)
	case errors.Is(err, handover.ErrConfirmed):
		return r.lost(ctx, s, epoch, seq)
	case errors.Is(err, store.ErrEquivocation):
		return true, errors.Join(r.note(ctx, s, epoch, seq, findEquivocation), r.complete(ctx, s, epoch, nil))
	case errors.Is(err, errTooMany):
		return true, errors.Join(r.note(ctx, s, epoch, seq, findTooMany), r.complete(ctx, s, epoch, nil))
	}
	if fault := handover.Foreign(err); fault != nil {
		return true, r.note(ctx, s, epoch, seq, Reason(fault.Error()))
	}
	refused := new(handover.Refused)
	switch {
	case errors.As(err, &refused):
		err = r.refuse(ctx, s, refused.Signed, findInconsistent, "error", refused)
	case err == nil:
		r.metrics.Since(metricPull, begun)
		err = r.mixBatch(ctx, s, signed, o)
	}
	if err != nil && !errors.Is(err, store.ErrMade) && !errors.Is(err, store.ErrOver) {
		return true, err
	}
	return errors.Is(err, store.ErrOver), r.confirmPulled(ctx, s, epoch)
}

var errTooMany = errors.New(string(findTooMany))

// mayFollow is errTooMany where an epoch has no batch of this number: the task has no so many, or the batch before
// was the first relay's last. It is asked before the first slot is read, so a first relay that makes many small
// batches costs the others a manifest. Of a batch that was refused nobody knows what the first relay had.
func (r *Relay) mayFollow(ctx context.Context, s *served, epoch, seq uint64) error {
	if !s.HasBatch(seq) {
		return errTooMany
	}
	if seq == 0 {
		return nil
	}
	source, err := r.sourceOf(ctx, s, epoch, seq-1)
	if errors.Is(err, store.ErrNoBatch) { // the epoch is over
		return nil
	}
	if err != nil {
		return err
	}
	chain, err := source.Check(s.Task, onion.Context{TaskID: s.ID, Epoch: epoch, Hop: s.hop - 1}, seq-1)
	if err == nil && chain[0].Last(s.Task) {
		return errTooMany
	}
	return nil
}

// takeEnd ends an epoch by the signed word of the relay before: only with all batches that it tells of,
// if these gave out what came in here, and if it has signed no further one. Else the epoch waits for them,
// or until it is given up.
func (r *Relay) takeEnd(ctx context.Context, s *served, epoch uint64) error {
	source, chain, err := s.upstream.End(ctx, s.Open, s.hop-1, epoch)
	if errors.Is(err, handover.ErrNotSealed) {
		return nil
	}
	if err != nil {
		return err
	}
	made, err := r.manifests(ctx, s, epoch)
	if err != nil {
		return err
	}
	signed, err := r.store.Witnessed(ctx, s.epochID(epoch))
	if err != nil {
		return err
	}
	end := &chain[len(chain)-1]
	switch taken := uint64(len(made)); {
	case end.Batches > taken:
		return nil
	case end.Batches < signed || !end.Gave(made):
		return r.note(ctx, s, epoch, taken, findEnd)
	}
	return r.complete(ctx, s, epoch, source)
}

// lost notes that a batch was confirmed from here and is not held here, unless another process on the
// same store has made it since this one looked. It is pullBatch for the rest.
func (r *Relay) lost(ctx context.Context, s *served, epoch, seq uint64) (done bool, err error) {
	next, err := r.store.Next(ctx, s.epochID(epoch))
	if err != nil || next > seq {
		return err != nil, err
	}
	return true, r.note(ctx, s, epoch, seq, findLost)
}

// giveUp ends an epoch whose end the relay before does not tell.
func (r *Relay) giveUp(ctx context.Context, s *served, epoch uint64) error {
	if s.state(epoch) >= store.StateComplete || !r.clock.Read().Over(r.giveUpAt(s, epoch)) {
		return nil
	}
	seq, err := r.store.Next(ctx, s.epochID(epoch))
	if err != nil {
		return err
	}
	return errors.Join(r.note(ctx, s, epoch, seq, findGiveUp), r.complete(ctx, s, epoch, nil))
}

// note keeps a finding, and logs it the first time, and then each time that it was found of twice as many numbers: a
// neighbour fills no log.
func (r *Relay) note(ctx context.Context, s *served, epoch, seq uint64, why Reason, details ...any) error {
	times := uint64(0)
	err := r.spare(func() (err error) {
		times, err = r.store.Note(ctx, s.epochID(epoch), seq, why)
		return err
	})
	if bits.OnesCount64(times) == 1 {
		r.cfg.Log.Warn("finding", append([]any{"task", s.name(), "epoch", epoch, "batch", seq, "reason", why, "batches",
			times}, details...)...)
	}
	return err
}

// mixBatch makes this relay's batch out of the one before, which has been checked, and stores it with
// the replay entries.
func (r *Relay) mixBatch(ctx context.Context, s *served, signed *onion.SignedManifest, o *opening) error {
	if o.opener == nil {
		return r.refuse(ctx, s, signed, findNoKey)
	}
	if err := o.begin(); err != nil { // it has no slots
		return err
	}
	begun, m := time.Now(), o.manifest
	mine := &making{seq: m.Seq, submissions: m.Submissions, in: counts(m, s.Task), source: signed}
	opened, repeats := len(o.tags), 0
	if !m.Destroyed() { // else a manifest without slots would buy the work of a draw
		if err := o.dilute(mine); err != nil {
			return err
		}
	}
	var tooFew error
	id := s.epochID(m.Epoch)
	build := func(fresh *store.Fresh, put store.Put) (*store.Made, error) {
		w := onion.NewBatchWriter(len(mine.in), put)
		valid, repeated, err := o.write(fresh, w)
		if err != nil {
			return nil, err
		}
		repeats = repeated
		if tooFew = onion.CheckCounts(s.Task, m.Submissions, valid); m.Destroyed() && tooFew == nil {
			tooFew = errDestroyed // Dummies alone are no batch.
		}
		if tooFew != nil {
			return r.destroy(s, m.Epoch, mine)
		}
		return r.signBatch(s, m.Epoch, mine, w)
	}
	mix := func() error { return r.store.Mix(ctx, id, m.Seq, o.tags, build) }
	var err error
	if m.Destroyed() {
		err = r.spare(mix)
	} else if err = r.reserve.Short(); err == nil {
		err = mix()
	}
	if err != nil {
		return err
	}
	r.metrics.Since(metricSeal, begun)
	r.metrics.tally(id, "slot replayed", repeats)
	r.metrics.tally(id, "slot does not open", total(mine.in)-opened)
	r.metrics.made(s, tooFew != nil)
	r.scrubSoon()
	r.cfg.Log.Info("mixed", "task", s.name(), "epoch", m.Epoch, "batch", m.Seq, "destroyed", tooFew != nil)
	if tooFew != nil && !m.Destroyed() {
		return r.note(ctx, s, m.Epoch, m.Seq, findTooFew)
	}
	return nil
}

// dilute adds the relay's dummies.
func (o *opening) dilute(m *making) error {
	dummies, err := o.s.dilute(o.manifest.Epoch)
	if err != nil {
		return err
	}
	for _, slot := range dummies {
		if err := o.add(isDummy, 0, store.Short{}, slot); err != nil {
			return err
		}
	}
	m.dummies = uint64(len(dummies))
	return nil
}

var errDestroyed = errors.New("the relay before destroyed the batch")

// refuse stores a destroyed batch of the number that a signed manifest claims, and why.
func (r *Relay) refuse(ctx context.Context, s *served, source *onion.SignedManifest, why Reason,
	details ...any) error {
	m, err := source.Open(s.Task, s.hop-1)
	if err != nil {
		return err
	}
	none := &making{seq: m.Seq, submissions: m.Submissions, in: counts(m, s.Task), source: source}
	err = r.spare(func() error {
		return r.store.Mix(ctx, s.epochID(m.Epoch), m.Seq, nil, func(*store.Fresh, store.Put) (*store.Made, error) {
			return r.destroy(s, m.Epoch, none)
		})
	})
	return errors.Join(err, r.note(ctx, s, m.Epoch, m.Seq, why, details...))
}

// counts returns how many slots a manifest says came out of the relay before, per lane.
func counts(m *onion.Manifest, t *task.Task) []uint64 {
	in := make([]uint64, t.Slots.Lanes)
	for lane := range min(len(in), len(m.Lanes)) {
		in[lane] = m.Lanes[lane].Out
	}
	return in
}

func total(counts []uint64) (sum int) {
	for _, n := range counts {
		sum += int(n)
	}
	return sum
}

// confirmPulled tells the relay before which of its batches are safe here.
func (r *Relay) confirmPulled(ctx context.Context, s *served, epoch uint64) error {
	id := s.epochID(epoch)
	untold, err := r.store.Untold(ctx, id)
	if err != nil {
		return err
	}
	for _, seq := range untold {
		if err := r.confirmOne(ctx, s, epoch, seq); err != nil {
			return err
		}
		if err := r.spare(func() error { return r.store.Told(ctx, id, seq) }); err != nil {
			return err
		}
	}
	return nil
}

// confirmOne confirms the batch that this relay's own was made from; its manifest is in there.
func (r *Relay) confirmOne(ctx context.Context, s *served, epoch, seq uint64) error {
	source, err := r.sourceOf(ctx, s, epoch, seq)
	if err != nil {
		return err
	}
	err = s.upstream.Confirm(ctx, s.Open, s.hop-1, epoch, seq, source.Manifest)
	if errors.Is(err, problem.New(problem.Unauthorized, "")) {
		// It signed two batches of this number, or was set back: it has nothing of ours to delete.
		return r.note(ctx, s, epoch, seq, Reason(handover.ErrOther.Error()))
	}
	return err
}

// before returns what this relay has had of the numbers before one.
func (r *Relay) before(ctx context.Context, s *served, epoch, seq uint64) (b handover.Before, err error) {
	had, err := s.taken.below(epoch, seq, func(seq uint64) ([]byte, error) {
		source, err := r.sourceOf(ctx, s, epoch, seq)
		if err != nil {
			return nil, err
		}
		return source.Manifest, nil
	})
	if errors.Is(err, store.ErrNoBatch) { // the epoch is over
		return b, nil
	}
	return had.Before(), err
}

// sourceOf returns the manifest that a batch here was made from.
func (r *Relay) sourceOf(ctx context.Context, s *served, epoch, seq uint64) (*onion.SignedManifest, error) {
	manifest, _, err := r.store.Manifest(ctx, s.epochID(epoch), seq)
	if err != nil {
		return nil, err
	}
	var m onion.Manifest
	if err := codec.Unmarshal(manifest, &m); err != nil {
		return nil, err
	}
	return onion.ParseSigned(m.Source)
}
