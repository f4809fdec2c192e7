// Package epochs runs the [Lifecycle] of a relay's epochs. It seals full batches. It closes, completes, erases and
// expires epochs that are over, and destroys their keys.
//
// Package relay runs it. The mixer and the handout call it to store a finding, complete an epoch, destroy keys after a
// confirmation and scrub. It destroys the keys of an epoch before it seals the rest, and the epoch's HPKE key before
// its replay set. After a crash, the next start finishes what was interrupted.
package epochs

import (
	"context"
	"errors"
	"math/bits"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/doona-dp/doona/internal/clock"
	"github.com/doona-dp/doona/internal/durable"
	"github.com/doona-dp/doona/relay/internal/mixing"
	"github.com/doona-dp/doona/relay/internal/monitor"
	"github.com/doona-dp/doona/relay/internal/store"
	"github.com/doona-dp/doona/relay/internal/tasks"
	"github.com/doona-dp/doona/wire/codec"
	"github.com/doona-dp/doona/wire/onion"
)

// Config says when epochs end. The fields are those of relay.Config.
type Config struct {
	Beat      time.Duration // Interval between scans of the store.
	Retention time.Duration
}

// Lifecycle seals full batches and ends epochs: it closes, completes, erases and expires them, and destroys their keys.
type Lifecycle struct {
	*tasks.Registry
	Store Store
	Whole WholeStore
	Clock *clock.Guard

	cfg     Config
	vault   *store.Vault
	monitor *monitor.Monitor
	maker   *mixing.Maker
	host    *tasks.Host

	wake        chan struct{} // wakes Loop: see Wake
	reconciling durable.Coalescer[struct{}]
	scanned     lastScan // of Loop
	backlog     backlog  // of Loop
	reshuffles  reshuffles
	unscrubbed  atomic.Bool            // the store's log may hold deleted rows
	scrubFailed atomic.Pointer[string] // see Unscrubbed
}

// New returns the lifecycle of a host's epochs. The caller sets Store, Whole and Clock.
func New(host *tasks.Host, cfg Config, vault *store.Vault, monitor *monitor.Monitor,
	maker *mixing.Maker) *Lifecycle {
	return &Lifecycle{Registry: host.Registry, cfg: cfg, vault: vault, monitor: monitor, maker: maker, host: host,
		wake: make(chan struct{}, 1)}
}

// Store keeps the state of each epoch.
type Store interface {
	Advance(ctx context.Context, id store.EpochID, to store.State) error
	Complete(ctx context.Context, id store.EpochID, end []byte) error
	Next(ctx context.Context, id store.EpochID) (uint64, error)
	Manifest(ctx context.Context, b store.BatchID) (manifest []byte, confirmed bool, err error)
	Note(ctx context.Context, b store.BatchID, why store.Reason) (times uint64, err error)
	Tally(ctx context.Context, id store.EpochID, refused map[string]uint64) error
	Findings(ctx context.Context) ([]store.Finding, error)
}

// WholeStore has the methods that scan, sweep, scrub and permute the whole store.
type WholeStore interface {
	Reconcile(ctx context.Context) ([]store.Progress, error)
	Progress(ctx context.Context) ([]store.Progress, error)
	Version() uint64
	Sweep(ctx context.Context) error
	Reshuffle(ctx context.Context, b store.BatchID, size uint64) error
	Scrub(ctx context.Context) error
	StateRollback() *store.StateRollbackError
}

// Loop seals full batches and ends epochs until ctx ends. The next start continues what it leaves unfinished.
func (ep *Lifecycle) Loop(ctx context.Context) {
	tick := time.NewTicker(ep.cfg.Beat)
	defer tick.Stop()
	ep.unscrubbed.Store(true) // a crash may have left deleted rows
	for {
		if ep.Whole.StateRollback() == nil {
			ep.runEpochTick(ctx)
		} else if _, err := ep.Whole.Reconcile(ctx); !errors.As(err, new(*store.StateRollbackError)) {
			ep.monitor.Logged(ctx, "couldn't scan the store", err)
		}
		select {
		case <-ctx.Done():
			return
		case <-ep.wake:
		case <-tick.C:
		}
	}
}

// Wake makes Loop run its next tick at once.
func (ep *Lifecycle) Wake() {
	select {
	case ep.wake <- struct{}{}:
	default:
	}
}

// Heartbeat calls Reconcile during long store operations: see [store.Process].
func (ep *Lifecycle) Heartbeat(ctx context.Context) {
	ep.monitor.Logged(ctx, "couldn't destroy keys", ep.Reconcile(ctx))
}

// lastScan records when and at which version Loop last scanned the whole store.
type lastScan struct {
	version uint64 // the store's version then; 0 if some work failed
	at      time.Time
}

// rescanAfter is how often Loop rescans an unchanged store. A scan reads every epoch of every task, which would be most
// of the work of a relay with a thousand idle tasks.
const rescanAfter = 5 * time.Minute

// runEpochTick runs one tick of Loop.
func (ep *Lifecycle) runEpochTick(ctx context.Context) {
	if ep.unscrubbed.Load() || ep.monitor.Reserve.Short() != nil { // the store's log takes disk space, too
		ep.scrub(ctx)
	}
	version := ep.Whole.Version()
	changed := version == 0 || version != ep.scanned.version || time.Since(ep.scanned.at) > rescanAfter
	var reconciled error
	if changed {
		reconciled = ep.Reconcile(ctx) // first, so that sealing stops if the store was rolled back
		ep.monitor.Logged(ctx, "couldn't destroy keys", reconciled)
	}
	ep.endEpochs(ctx) // before sealing, which may take longer than this process lives
	if changed {
		sealed := ep.sealFull(ctx)
		ep.monitor.Logged(ctx, "couldn't seal batches", sealed)
		if ep.scanned = (lastScan{version, time.Now()}); reconciled != nil || sealed != nil {
			ep.scanned.version = 0
		}
	}
	ep.host.KeepUp(ctx) // last, so that an owner's folder does not delay others' epochs
}

// Reconcile updates this process from the store, which other processes change too. It reads the state of all epochs,
// stores the tallies of those that are over, and destroys this process's keys that are no longer needed, also those
// that a crash left after a sealing or confirmation. Concurrent callers share one run.
func (ep *Lifecycle) Reconcile(ctx context.Context) error {
	return ep.reconciling.Do(func([]struct{}) error { return ep.reconcile(ctx) })
}

func (ep *Lifecycle) reconcile(ctx context.Context) error {
	ep.host.DropDropped(ctx)
	all, err := ep.Whole.Reconcile(ctx)
	if err != nil {
		return err
	}
	ep.Reached(all)
	if err := ep.LoadRolledBack(ctx); err != nil {
		return err
	}
	over := map[store.EpochID]bool{}
	for _, p := range all {
		over[p.ID] = p.State >= store.StateClosed
	}
	failed := ep.KeepTallies(ctx, func(id store.EpochID) bool { return over[id] })
	for _, s := range ep.Hosted().Order {
		failed = errors.Join(failed, ep.monitor.WithReserve(s.EraseKeys))
	}
	return errors.Join(failed, ep.vault.DestroyUnneeded(all))
}

// KeepTallies moves tallies (counts of refused reports) of the wanted epochs to the store. Call it only when an epoch
// is over or the relay stops: a count that changes on disk would reveal when a report came and why it was refused.
func (ep *Lifecycle) KeepTallies(ctx context.Context, want func(store.EpochID) bool) (failed error) {
	for id, refused := range ep.monitor.TakeTallies(want) {
		if err := ep.Store.Tally(ctx, id, refused); err != nil {
			ep.monitor.AddTallies(id, refused)
			failed = errors.Join(failed, err)
		}
	}
	return failed
}

// ScrubSoon makes Loop scrub the store at its next tick.
func (ep *Lifecycle) ScrubSoon() {
	ep.unscrubbed.Store(true)
	ep.Wake()
}

// scrub deletes what finished batches left and empties the store's log. If it fails, for example while a batch is being
// read, Loop repeats it later.
func (ep *Lifecycle) scrub(ctx context.Context) {
	ep.unscrubbed.Store(false) // before the work, so that concurrent deletions are scrubbed next time
	err := ep.Whole.Sweep(ctx)
	if err == nil {
		err = ep.Whole.Scrub(ctx)
	}
	if err == nil {
		ep.scrubFailed.Store(nil)
		return
	}
	ep.unscrubbed.Store(true)
	if ctx.Err() == nil {
		why := err.Error()
		ep.scrubFailed.Store(&why)
		ep.monitor.Log.Warn("couldn't scrub the store; trying again", "error", err)
	}
}

// Unscrubbed returns why the store's log still holds deleted rows and the order of writes, if the last attempt to empty
// it failed. Otherwise it returns "".
func (ep *Lifecycle) Unscrubbed() string {
	if why := ep.scrubFailed.Load(); why != nil {
		return *why
	}
	return ""
}

func (ep *Lifecycle) sealFull(ctx context.Context) error {
	return ep.sealSome(ctx, func(s *tasks.Hosted, b store.OpenBatch) bool { return b.Submissions >= s.Batch.Size })
}

// sealSome seals the wanted batches. Then it destroys the keys of their slots together, because that rewrites the whole
// secret file. A batch that fails does not stop the others.
func (ep *Lifecycle) sealSome(ctx context.Context, want func(*tasks.Hosted, store.OpenBatch) bool) error {
	all, err := ep.Whole.Progress(ctx)
	if err != nil {
		return err
	}
	tried := false
	for _, p := range all {
		for _, b := range p.Open {
			s := ep.Hosted().ByID[b.Task]
			if s == nil || !want(s, b) || s.Epoch(b.Epoch).RolledBack() {
				continue
			}
			seal := ep.maker.Seal
			if mixing.Withholds(s, b) {
				seal = ep.maker.SealWithheld
			} else if short := ep.monitor.Reserve.Short(); short != nil {
				err = errors.Join(err, short)
				continue
			}
			tried = true
			sealErr := seal(ctx, s.Epoch(b.Epoch).Ref(b.Seq))
			if sealErr != nil && !errors.Is(sealErr, store.ErrNoBatch) {
				err = errors.Join(err, sealErr)
			}
		}
	}
	if tried {
		err = errors.Join(err, ep.Reconcile(ctx))
		ep.scrub(ctx)
	}
	return err
}

// due is an epoch that is over, and when it ended.
type due struct {
	tasks.Epoch
	end time.Time
}

// endEpochs ends the epochs that are over. Those of many tasks may end at one midnight, so it works on them
// concurrently, and does work of fixed cost once for up to 32. It closes all first, which destroys their keys, then
// completes the oldest first, so that even an overloaded relay makes progress. If a task or stream has several, most
// wait for a later tick: see [backlog]. At a first relay, the guarded clock says when an epoch is over; at later relays
// the upstream relay does: see pullBatch. An epoch that fails does not stop the others.
func (ep *Lifecycle) endEpochs(ctx context.Context) {
	closing, complete, rolledBack, expired := ep.over()
	ep.each(ctx, ep.backlog.ofTick(ep.neverBegin()), func(e due) error { return ep.closeEpoch(ctx, e.Epoch) })
	closing, complete, expired = ep.backlog.ofTick(closing), ep.backlog.ofTick(complete), ep.backlog.ofTick(expired)
	ep.each(ctx, rolledBack, func(e due) error { return ep.endRolledBack(ctx, e.Epoch, e.end) })
	ep.each(ctx, expired, func(e due) error { return ep.expireEpoch(ctx, e.Epoch) })
	days, others := ep.days(closing)
	end := func(e due) error { return ep.closeEpoch(ctx, e.Epoch) }
	closed := append(ep.each(ctx, days, end), ep.each(ctx, others, end)...)
	erase := func(e due) error { return ep.eraseEpoch(ctx, e.Epoch) }
	ep.each(ctx, complete, erase)
	slices.SortFunc(closed, func(a, b due) int { return a.end.Compare(b.end) })
	for some := range slices.Chunk(closed, 32) {
		ids := map[store.EpochID]bool{}
		for _, e := range some {
			ids[e.ID()] = true
		}
		err := ep.sealSome(ctx, func(_ *tasks.Hosted, b store.OpenBatch) bool { return ids[b.EpochID] })
		ep.monitor.Logged(ctx, "couldn't seal batches", err)
		ep.each(ctx, ep.each(ctx, some, func(e due) error { return ep.Complete(ctx, e.Epoch, nil) }), erase)
	}
	for _, e := range closed {
		if s := ep.Hosted().SetWith(e.Hosted.ID); s != nil && s.First() == e.Hosted {
			ep.reshuffles.add(s)
		}
	}
	ep.reshuffle(ctx)
	if ep.unscrubbed.Load() {
		ep.scrub(ctx)
	}
}

// each ends epochs, up to 128 at a time because they wait for disks rather than processors. It returns those that
// succeeded.
func (ep *Lifecycle) each(ctx context.Context, all []due, end func(due) error) (done []due) {
	const most = 128
	queue := make(chan due)
	var working sync.WaitGroup
	var mu sync.Mutex // guards done
	for range min(most, len(all)) {
		working.Go(func() {
			for e := range queue {
				err := end(e)
				ep.monitor.Logged(ctx, "couldn't end an epoch", err)
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
	ep.backlog.tried(all, done)
	return done
}

// days returns those epochs that are days of a set, and the others. Days close first: otherwise a submission could be
// stored whose slot for another table comes too late.
func (ep *Lifecycle) days(all []due) (days, others []due) {
	for _, e := range all {
		if s := ep.Hosted().SetWith(e.Hosted.ID); s != nil && s.First() == e.Hosted {
			days = append(days, e)
		} else {
			others = append(others, e)
		}
	}
	return days, others
}

// over lists the epochs to end: those to close at a first relay, complete ones to erase, rolled back ones, and those
// that expire because their retention is over.
func (ep *Lifecycle) over() (closing, complete, rolledBack, expired []due) {
	read := ep.Clock.Read()
	for _, s := range ep.Due(read.Latest) {
		for epoch := range s.EachEpoch() {
			_, end := epoch.Window()
			if read.Latest.Before(end) {
				break
			}
			e := due{epoch, end}
			switch st := e.State(); {
			case e.RolledBack() && st < store.StateExpired:
				rolledBack = append(rolledBack, e)
			case st == store.StateComplete && (s.Hop > 0 || read.Over(end)):
				complete = append(complete, e)
			case st < store.StateComplete && s.Hop == 0 && read.Over(end):
				closing = append(closing, e)
			case st == store.StateErased && read.Over(end.Add(ep.cfg.Retention)):
				expired = append(expired, e)
			}
		}
	}
	return closing, complete, rolledBack, expired
}

// neverBegin lists the epochs at a later relay whose keys it can erase before the upstream relay ends them: the owner
// has withdrawn the task before they began.
func (ep *Lifecycle) neverBegin() (all []due) {
	for _, s := range ep.Hosted().Order {
		if s.Hop == 0 || !s.IsWithdrawn() {
			continue
		}
		for e := range s.EachEpoch() {
			if e.State() < store.StateClosed && e.NeverBegins() {
				_, end := e.Window()
				all = append(all, due{e, end})
			}
		}
	}
	return all
}

// Note stores a finding. It logs the first one, and then each time the count has doubled, so that another relay cannot
// fill the log.
func (ep *Lifecycle) Note(ctx context.Context, b tasks.BatchRef, why store.Reason, details ...any) error {
	times, err := ep.Store.Note(ctx, b.BatchID(), why)
	if bits.OnesCount64(times) == 1 {
		ep.monitor.Log.Warn("finding", append([]any{"task", b.ShortID(), "epoch", b.Number, "batch", b.Seq, "reason", why,
			"batches", times}, details...)...)
	}
	return err
}

func (ep *Lifecycle) advance(ctx context.Context, e tasks.Epoch, to store.State) error {
	if err := ep.Store.Advance(ctx, e.ID(), to); err != nil {
		return err
	}
	e.Reached(to)
	return nil
}

// LoadRolledBack tells this process in which epochs any process on this store has found a state rollback.
func (ep *Lifecycle) LoadRolledBack(ctx context.Context) error {
	all, err := ep.Store.Findings(ctx)
	for _, f := range all {
		if s := ep.Hosted().ByID[f.ID.Task]; s != nil && f.Reason == tasks.FindRolledBack {
			s.Epoch(f.ID.Epoch).SetRolledBack()
		}
	}
	return err
}

// endRolledBack destroys the keys of a rolled back epoch when the epoch is over, and its other data when its retention
// is over.
func (ep *Lifecycle) endRolledBack(ctx context.Context, e tasks.Epoch, end time.Time) error {
	read := ep.Clock.Read()
	if !read.Over(end) {
		return nil
	}
	if err := ep.forget(e); err != nil || !read.Over(end.Add(ep.cfg.Retention)) {
		return err
	}
	return ep.expireEpoch(ctx, e)
}

// expireEpoch deletes the rest of an epoch. This includes batches that the next hop has never fetched: ciphertexts that
// nobody fetches are only a risk.
func (ep *Lifecycle) expireEpoch(ctx context.Context, e tasks.Epoch) error {
	if err := ep.advance(ctx, e, store.StateExpired); err != nil {
		return err
	}
	e.Made.Forget(e.Number)
	ep.unscrubbed.Store(true)
	ep.monitor.Log.Info("epoch expired", "task", e.ShortID(), "epoch", e.Number)
	return nil
}

// closeEpoch makes an epoch accept no more reports. It may be repeated. It destroys the keys before the last batches
// are sealed, because a failing store can delay sealing indefinitely.
func (ep *Lifecycle) closeEpoch(ctx context.Context, e tasks.Epoch) error {
	if e.State() == store.StateOpen {
		if err := ep.advance(ctx, e, store.StateClosed); err != nil {
			return err
		}
	}
	return ep.forget(e)
}

// Complete signs and stores the end of an epoch in which this relay makes no further batch. source is the upstream
// relay's signed end; nil at a first relay, or if none came.
func (ep *Lifecycle) Complete(ctx context.Context, e tasks.Epoch, source *onion.SignedEnd) error {
	made, err := ep.Manifests(ctx, e)
	if err != nil {
		return err
	}
	end, err := onion.NewEnd(e.Sign, e.Task, e.Context(), made, source)
	if err != nil {
		return err
	}
	raw, err := end.Bytes()
	if err != nil {
		return err
	}
	if err := ep.Store.Complete(ctx, e.ID(), raw); err != nil {
		return err
	}
	e.Reached(store.StateComplete)
	e.Taken.Forget(e.Number) // the relay pulls nothing more
	ep.Wake()                // Loop can erase the epoch
	return nil
}

// Manifests returns the manifests of all batches of an epoch, up to [task.Task.MostBatches]. It omits the upstream
// manifest that each contains.
func (ep *Lifecycle) Manifests(ctx context.Context, e tasks.Epoch) ([]onion.Manifest, error) {
	id := e.ID()
	next, err := ep.Store.Next(ctx, id)
	if err != nil {
		return nil, err
	}
	made := make([]onion.Manifest, next)
	for seq := range made {
		raw, _, err := ep.Store.Manifest(ctx, id.Batch(uint64(seq)))
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

// forget destroys the keys that decrypt an epoch's reports and hash its clients. The HPKE key goes first: a report that
// could still be decrypted without the replay set could be replayed.
func (ep *Lifecycle) forget(e tasks.Epoch) error {
	if err := ep.monitor.WithReserve(e.EraseKey); err != nil {
		return err
	}
	return ep.vault.DestroyEpochKey(e.ID())
}

// eraseEpoch deletes everything about an epoch except its sealed batches. No further report or batch can come.
func (ep *Lifecycle) eraseEpoch(ctx context.Context, e tasks.Epoch) error {
	if err := ep.forget(e); err != nil {
		return err
	}
	id := e.ID()
	if err := ep.vault.DestroyRows(id); err != nil {
		return err
	}
	if err := ep.KeepTallies(ctx, func(of store.EpochID) bool { return of == id }); err != nil {
		return err
	}
	if err := ep.advance(ctx, e, store.StateErased); err != nil {
		return err
	}
	ep.unscrubbed.Store(true)
	ep.monitor.Log.Info("epoch erased", "task", e.ShortID(), "epoch", e.Number)
	return nil
}
