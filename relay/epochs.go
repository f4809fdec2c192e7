package relay

import (
	"context"
	"errors"
	"iter"
	"slices"
	"sync"
	"time"

	"github.com/doona-dp/doona/relay/internal/monitor"
	"github.com/doona-dp/doona/relay/internal/spill"
	"github.com/doona-dp/doona/relay/internal/store"
	"github.com/doona-dp/doona/wire/codec"
	"github.com/doona-dp/doona/wire/onion"
)

// epochLoop seals batches as they fill, and sees to the ends of epochs. It ends with ctx; what it
// leaves undone it finds again when the relay starts.
func (r *Relay) epochLoop(ctx context.Context) {
	tick := time.NewTicker(r.beat())
	defer tick.Stop()
	r.unscrubbed.Store(true) // what a crash left
	for {
		if r.store.SetBack() == nil {
			r.turn(ctx)
		} else if _, err := r.store.Follow(ctx); !errors.As(err, new(*store.SetBack)) {
			r.monitor.Logged(ctx, "couldn't look at the store", err)
		}
		select {
		case <-ctx.Done():
			return
		case <-r.wake:
		case <-tick.C:
		}
	}
}

// stir has epochLoop take its next turn at once.
func (r *Relay) stir() {
	select {
	case r.wake <- struct{}{}:
	default:
	}
}

// beat is how often the store is followed.
func (r *Relay) beat() time.Duration { return min(r.cfg.PullInterval, time.Second) }

// beating calls do, which may take minutes, and settles meanwhile: the other processes on the store go on without one
// that they do not hear of.
func (r *Relay) beating(ctx context.Context, do func() error) error {
	done := make(chan struct{})
	var beats sync.WaitGroup
	beats.Go(func() {
		tick := time.NewTicker(r.beat())
		defer tick.Stop()
		for {
			select {
			case <-done:
				return
			case <-tick.C:
				r.monitor.Logged(ctx, "couldn't destroy keys", r.settle(ctx))
			}
		}
	})
	defer beats.Wait()
	defer close(done)
	return do()
}

// look is when epochLoop looked at all of the store.
type look struct {
	version uint64 // of the store then; 0: what was found could not all be done
	at      time.Time
}

// lookAgain is after how long all of the store is looked at again, where it is as it was: that reads every epoch of
// every task, which is most of what a relay of a thousand idle tasks would do.
const lookAgain = 30 * time.Second

// turn is one turn of epochLoop.
func (r *Relay) turn(ctx context.Context) {
	if r.unscrubbed.Load() || r.monitor.Reserve.Short() != nil { // the log, too, takes room
		r.scrub(ctx)
	}
	version := r.store.Version()
	changed := version == 0 || version != r.looked.version || time.Since(r.looked.at) > lookAgain
	var settled error
	if changed {
		settled = r.settle(ctx) // first: what was set back is not sealed again
		r.monitor.Logged(ctx, "couldn't destroy keys", settled)
	}
	r.endEpochs(ctx) // before full batches are sealed, which may take longer than this process lives
	if changed {
		sealed := r.sealFull(ctx)
		r.monitor.Logged(ctx, "couldn't seal", sealed)
		if r.looked = (look{version, time.Now()}); settled != nil || sealed != nil {
			r.looked.version = 0
		}
	}
	r.dropExpired(ctx)
	r.followOwners(ctx)
	r.followStreams(ctx) // last: no owner's folder keeps others' epochs from ending
}

// settle follows the store, which other processes change too: it takes note of how far epochs have
// come, keeps the tallies of those that are over, and destroys this process's keys of all that is over.
// A crash between a batch's sealing or confirmation and the end of its key is made good here, when the
// relay starts. Many who confirm at the same time share it.
func (r *Relay) settle(ctx context.Context) error {
	return r.settling.Do(func([]struct{}) error { return r.settleAll(ctx) })
}

func (r *Relay) settleAll(ctx context.Context) error {
	r.dropDropped(ctx)
	all, err := r.store.Follow(ctx)
	if err != nil {
		return err
	}
	r.reached(all)
	if err := r.loadBehind(ctx); err != nil {
		return err
	}
	over := map[store.EpochID]bool{}
	for _, p := range all {
		over[p.ID] = p.State >= store.StateClosed
	}
	failed := r.keepTallies(ctx, func(id store.EpochID) bool { return over[id] })
	for _, s := range r.hosted().order {
		failed = errors.Join(failed, r.monitor.WithReserve(s.eraseKeys))
	}
	return errors.Join(failed, r.vault.Settle(all))
}

// keepTallies moves the tallies of the wanted epochs to the store. That is done when an epoch is over
// and when the relay stops, and not in between: a count that moves on the disk, as on a screen, would
// tell when a report came and how it fared.
func (r *Relay) keepTallies(ctx context.Context, want func(store.EpochID) bool) (failed error) {
	for id, refused := range r.monitor.TakeTallies(want) {
		if err := r.store.Tally(ctx, id, refused); err != nil {
			r.monitor.AddTallies(id, refused)
			failed = errors.Join(failed, err)
		}
	}
	return failed
}

// scrubSoon has epochLoop scrub.
func (r *Relay) scrubSoon() {
	r.unscrubbed.Store(true)
	r.stir()
}

// scrub deletes what is left of batches, and empties the store's log. Where that fails, as while a batch is being
// read, or takes too long, epochLoop does it later.
func (r *Relay) scrub(ctx context.Context) {
	r.unscrubbed.Store(false) // what others delete meanwhile is for the next time
	err := r.beating(ctx, func() error { return r.store.Sweep(ctx) })
	if err == nil {
		err = r.store.Scrub(ctx)
	}
	if err != nil {
		r.unscrubbed.Store(true)
		if ctx.Err() == nil {
			r.cfg.Log.Warn("couldn't scrub yet", "error", err)
		}
	}
}

// sealFull seals every batch that has its n submissions.
func (r *Relay) sealFull(ctx context.Context) error {
	return r.sealSome(ctx, func(s *hostedTask, b store.OpenBatch) bool { return b.Submissions >= s.Batch.Size })
}

// sealSome seals the batches that are wanted, and then destroys the keys of their rows: at once, as
// that writes the whole secret. A batch that fails keeps none of the others.
func (r *Relay) sealSome(ctx context.Context, want func(*hostedTask, store.OpenBatch) bool) error {
	all, err := r.store.Progress(ctx)
	if err != nil {
		return err
	}
	tried := false
	for _, p := range all {
		for _, b := range p.Open {
			s := r.hosted().tasks[b.Task]
			if s == nil || !want(s, b) || s.Epoch(b.Epoch).RolledBack() {
				continue
			}
			seal := r.store.Seal
			if s.withholds(b) {
				seal = r.store.SealWithheld
			} else if short := r.monitor.Reserve.Short(); short != nil {
				err = errors.Join(err, short)
				continue
			}
			tried = true
			sealErr := r.beating(ctx, func() error { return r.seal(ctx, s.Epoch(b.Epoch).Ref(b.Seq), seal) })
			if sealErr != nil && !errors.Is(sealErr, store.ErrNoBatch) {
				err = errors.Join(err, sealErr)
			}
		}
	}
	if tried {
		err = errors.Join(err, r.settle(ctx))
		r.scrub(ctx)
	}
	return err
}

// withholds says whether an open batch, as it is, will be destroyed: that takes no room, and makes some.
func (s *hostedTask) withholds(b store.OpenBatch) bool {
	in := slices.Repeat([]uint64{b.Submissions * s.Slots.PerLane}, int(s.Slots.Lanes))
	return onion.CheckCounts(s.Task, b.Submissions, in) != nil
}

// seal permutes an open batch and signs it. One with fewer than n submissions is destroyed: its
// manifest says how many there were, and nothing leaves. do is the store's Seal or SealWithheld.
func (r *Relay) seal(
	ctx context.Context, b batchRef, do func(context.Context, store.BatchID, store.SealFunc) error,
) error {
	begun := time.Now()
	destroyed := false
	dummies, err := b.DrawDummies()
	if err != nil {
		return err
	}
	err = do(ctx, b.BatchID(), func(submissions uint64, rows iter.Seq2[store.Row, error], put store.Put) (
		*store.Made, error) {
		slots, in, err := r.collect(b.hostedTask, submissions, rows)
		if err != nil {
			return nil, err
		}
		defer slots.Close()
		m := &batchDraft{batchRef: b, submissions: submissions, in: in, dummies: uint64(len(dummies))}
		if destroyed = onion.CheckCounts(b.Task, submissions, in) != nil; destroyed {
			return r.destroy(m)
		}
		for _, dummy := range dummies {
			if err := slots.Add(0, dummy); err != nil {
				return nil, err
			}
		}
		w := onion.NewBatchWriter(len(in), put)
		if err := slots.Each(w.Add); err != nil {
			return nil, err
		}
		return r.signBatch(m, w)
	})
	if err != nil {
		return err
	}
	r.monitor.Since(monitor.Seal, begun)
	r.countBatch(b.hostedTask, destroyed)
	r.cfg.Log.Info("sealed", "task", b.name(), "epoch", b.Number, "batch", b.Seq, "destroyed", destroyed)
	return nil
}

// collect gives the rows of an open batch to a shuffle, and counts them by lane. The caller closes the shuffle.
func (r *Relay) collect(s *hostedTask, submissions uint64, rows iter.Seq2[store.Row, error]) (
	slots *spill.Shuffle, in []uint64, err error) {
	in = make([]uint64, s.Slots.Lanes)
	expect := slices.Repeat([]uint64{submissions * s.Slots.PerLane}, len(in))
	if slots, err = r.shuffle(s.layout.SlotSize(1), expect); err != nil {
		return nil, nil, err
	}
	for row, err := range rows {
		if err == nil {
			in[row.Lane]++
			err = slots.Add(row.Lane, row.Slot)
		}
		if err != nil {
			return nil, nil, errors.Join(err, slots.Close())
		}
	}
	return slots, in, nil
}

// due is an epoch that is over.
type due struct {
	hostedEpoch
	end time.Time
}

// endEpochs ends what is over, the epochs of many tasks side by side, as they may all end at one midnight: what costs
// as much for one as for many is done once for up to 32. These are closed first, so that their keys go; the oldest are
// completed first, so that a relay with more to seal than it has time for comes to their ends. Of a place with more
// than one, most wait for a later turn: see [backlog]. At the first relay an
// epoch is over by the time that has surely come; at a mix, by what the relay before it says: see pullBatch. An epoch
// that fails keeps no other.
func (r *Relay) endEpochs(ctx context.Context) {
	closing, complete, behind, expired := r.over()
	closing, complete, expired = r.backlog.ofTurn(closing), r.backlog.ofTurn(complete), r.backlog.ofTurn(expired)
	r.each(ctx, behind, func(e due) error { return r.endBehind(ctx, e.hostedEpoch, e.end) })
	r.each(ctx, expired, func(e due) error { return r.expireEpoch(ctx, e.hostedEpoch) })
	closed := r.each(ctx, closing, func(e due) error { return r.closeEpoch(ctx, e.hostedEpoch) })
	erase := func(e due) error { return r.eraseEpoch(ctx, e.hostedEpoch) }
	r.each(ctx, complete, erase)
	slices.SortFunc(closed, func(a, b due) int { return a.end.Compare(b.end) })
	for some := range slices.Chunk(closed, 32) {
		ids := map[store.EpochID]bool{}
		for _, e := range some {
			ids[e.ID()] = true
		}
		err := r.sealSome(ctx, func(_ *hostedTask, b store.OpenBatch) bool { return ids[b.EpochID] })
		r.monitor.Logged(ctx, "couldn't seal", err)
		r.each(ctx, r.each(ctx, some, func(e due) error { return r.complete(ctx, e.hostedEpoch, nil) }), erase)
	}
	if r.unscrubbed.Load() {
		r.scrub(ctx)
	}
}

// each ends some epochs, a few at a time, and returns those of which that came off: what they take is their disks'
// time, not a processor's.
func (r *Relay) each(ctx context.Context, all []due, end func(due) error) (done []due) {
	const most = 128
	queue := make(chan due)
	var working sync.WaitGroup
	var mu sync.Mutex // guards done
	for range min(most, len(all)) {
		working.Go(func() {
			for e := range queue {
				err := end(e)
				r.monitor.Logged(ctx, "couldn't end an epoch", err)
				if err == nil {
					mu.Lock()
					done = append(done, e)
					mu.Unlock()
				}
			}
		})
	}
	for _, e := range all {
		queue <- e
	}
	close(queue)
	working.Wait()
	r.backlog.tried(all, done)
	return done
}

// over lists the epochs that are to be ended: those that this relay is the first of, those that are complete, those
// that are behind, and those whose retention is over.
func (r *Relay) over() (closing, complete, behind, expired []due) {
	read := r.clock.Read()
	for _, s := range r.hosted().order {
		for epoch := range s.EachEpoch() {
			_, end := epoch.Window()
			if read.Latest.Before(end) {
				break
			}
			e := due{epoch, end}
			switch st := e.State(); {
			case e.RolledBack() && st < store.StateExpired:
				behind = append(behind, e)
			case st == store.StateComplete && (s.hop > 0 || read.Over(end)):
				complete = append(complete, e)
			case st < store.StateComplete && s.hop == 0 && read.Over(end):
				closing = append(closing, e)
			case st == store.StateErased && read.Over(end.Add(r.cfg.Retention)):
				expired = append(expired, e)
			}
		}
	}
	return closing, complete, behind, expired
}

// expireEpoch deletes what is left of an epoch. Batches that the next hop has not taken in all
// that time go too: a ciphertext that nobody fetches is only a risk.
func (r *Relay) expireEpoch(ctx context.Context, e hostedEpoch) error {
	if err := r.advance(ctx, e, store.StateExpired); err != nil {
		return err
	}
	e.made.forget(e.Number)
	r.unscrubbed.Store(true)
	r.cfg.Log.Info("epoch expired", "task", e.name(), "epoch", e.Number)
	return nil
}

// closeEpoch stops an epoch's submissions. Every step may be repeated. The keys go before what is left is sealed, which
// the store may keep from succeeding for as long as it likes.
func (r *Relay) closeEpoch(ctx context.Context, e hostedEpoch) error {
	if e.State() == store.StateOpen {
		if err := r.advance(ctx, e, store.StateClosed); err != nil {
			return err
		}
	}
	return r.forget(e)
}

// complete signs the end of an epoch that has no further batch from here. source is the end of the
// relay before, nil at the first relay, and where it never came.
func (r *Relay) complete(ctx context.Context, e hostedEpoch, source *onion.SignedEnd) error {
	made, err := r.manifests(ctx, e)
	if err != nil {
		return err
	}
	end, err := onion.NewEnd(e.sign, e.Task, e.Context(), made, source)
	if err != nil {
		return err
	}
	raw, err := end.Bytes()
	if err != nil {
		return err
	}
	if err := r.store.Complete(ctx, e.ID(), raw); err != nil {
		return err
	}
	e.Reached(store.StateComplete)
	e.taken.forget(e.Number) // nothing more is pulled
	r.stir()                 // it can be erased
	return nil
}

// manifests returns those of all batches that were made of an epoch, without their sources: there may be
// [task.MaxBatches].
func (r *Relay) manifests(ctx context.Context, e hostedEpoch) ([]onion.Manifest, error) {
	id := e.ID()
	next, err := r.store.Next(ctx, id)
	if err != nil {
		return nil, err
	}
	made := make([]onion.Manifest, next)
	for seq := range made {
		raw, _, err := r.store.Manifest(ctx, id.Batch(uint64(seq)))
		if err != nil {
			return nil, err
		}
		if err := codec.Unmarshal(raw, &made[seq]); err != nil {
			return nil, err
		}
		made[seq].Source = nil
	}
	return made, nil
}

// forget destroys the keys that open an epoch's ciphertexts and name its clients, when nothing more
// will be opened. The HPKE key goes first, so that there is never one without the replay set of what
// it has opened.
func (r *Relay) forget(e hostedEpoch) error {
	if err := r.monitor.WithReserve(e.EraseKey); err != nil {
		return err
	}
	return r.vault.DestroyEpochKey(e.ID())
}

// eraseEpoch forgets all that is kept about an epoch but its sealed batches, which need none of it:
// no further one can come.
func (r *Relay) eraseEpoch(ctx context.Context, e hostedEpoch) error {
	if err := r.forget(e); err != nil {
		return err
	}
	id := e.ID()
	if err := r.vault.DestroyRows(id); err != nil {
		return err
	}
	if err := r.keepTallies(ctx, func(of store.EpochID) bool { return of == id }); err != nil {
		return err
	}
	if err := r.advance(ctx, e, store.StateErased); err != nil {
		return err
	}
	r.unscrubbed.Store(true)
	r.cfg.Log.Info("epoch erased", "task", e.name(), "epoch", e.Number)
	return nil
}
