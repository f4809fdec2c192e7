// Package mixing makes this relay's batches. A [Mixer] pulls batches from the upstream relay, checks and opens them,
// drops replays and slots that do not open, permutes the rest and confirms each batch; or it refuses a batch and
// destroys it. Its [Maker] permutes, adds dummies, signs and destroys. Package epochs uses the Maker too, to seal
// batches of reports.
//
// Package relay starts and stops the mixing of each task. The Mixer confirms a batch to the upstream relay only when
// this relay's own batch is durable. No draw of dummies is used twice.
package mixing

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/doona-dp/doona/internal/clock"
	"github.com/doona-dp/doona/relay/internal/monitor"
	"github.com/doona-dp/doona/relay/internal/store"
	"github.com/doona-dp/doona/relay/internal/tasks"
	"github.com/doona-dp/doona/wire/codec"
	"github.com/doona-dp/doona/wire/handover"
	"github.com/doona-dp/doona/wire/onion"
	"github.com/doona-dp/doona/wire/problem"
	"github.com/doona-dp/doona/wire/task"
)

// The findings of a mix (a later relay) about its upstream relay, besides the errors that [handover.Foreign] returns.
// After such an error the batch number stays unused: the mix pulls again until a valid batch comes or it gives up on
// the epoch. No finding lets a batch be released.
const (
	// The upstream relay signed the manifest, but it is inconsistent. The mix makes a destroyed batch of this number.
	findInconsistent store.Reason = "inconsistent manifest"

	// The manifest is consistent, but too few submissions or valid slots came. The mix destroys the batch.
	findTooFew store.Reason = "too few valid slots"

	// The upstream relay signed an end of the epoch whose counts differ from its batches. The mix ignores the end.
	findEnd store.Reason = "the signed end of the epoch does not match its batches"

	// The upstream relay was rolled back or lies, and no longer knows how often each client has reported. [Status]
	// shows both manifests. The mix makes no batch of this number and ends the epoch.
	findEquivocation store.Reason = "two manifests of one number"

	// The upstream relay signed a batch above the task's limit, or after the first relay's last batch. The mix makes no
	// batch of this number and ends the epoch: a first relay must not cause more work than its clients do.
	findTooMany store.Reason = "a batch after the last one of the epoch"

	// More batches were destroyed than [onion.TooManyDestroyed] allows. The mix ends the epoch: otherwise it would have
	// to keep a manifest for each of endless destroyed batches.
	findTooManyDestroyed store.Reason = "too many batches of the epoch were destroyed"

	findLost   store.Reason = "this relay confirmed the batch but has lost it: state rollback"
	findNoKey  store.Reason = "no key for the epoch"
	findOver   store.Reason = "the upstream relay was rolled back, and its operator ended the epoch"
	findGiveUp store.Reason = "gave up waiting for the end of the epoch"
)

// batchesPerTurn is how many batches of an epoch the mixer pulls before it turns to other epochs and tasks. An upstream
// relay with endless batches thus cannot block the others.
const batchesPerTurn = 16

// Config holds a mixer's waiting times. The fields mean the same as in relay.Config.
type Config struct {
	PullInterval time.Duration
	GiveUp       time.Duration
}

// Mixer makes this relay's batches from the upstream relay's batches: see the package comment.
type Mixer struct {
	*tasks.Registry
	Store    Store
	Confirms ConfirmStore
	Clock    *clock.Guard

	cfg     Config
	vault   *store.Vault
	monitor *monitor.Monitor
	maker   *Maker
	epochs  Epochs
	polls   polls
	lines   map[upstream]chan struct{} // by upstream relay: limits how many tasks pull from it at once
}

// New returns the mixer of a registry's tasks. The caller sets its store and clock.
func New(r *tasks.Registry, cfg Config, vault *store.Vault, maker *Maker, epochs Epochs) *Mixer {
	return &Mixer{Registry: r, cfg: cfg, vault: vault, monitor: maker.monitor, maker: maker, epochs: epochs,
		lines: map[upstream]chan struct{}{}}
}

// Begin pulls a task's batches until the context one ends, and polls the task's upstream relay until the context all
// ends. It is not safe for concurrent use.
func (mx *Mixer) Begin(all, one context.Context, working *sync.WaitGroup, s *tasks.Hosted) {
	if s.Hop == 0 {
		return
	}
	n := upstreamOf(s)
	if mx.lines[n] == nil {
		mx.lines[n] = make(chan struct{}, handover.MaxConnections)
		working.Go(func() { mx.updatesLoop(all, n) })
	}
	to := mx.lines[n]
	working.Go(func() { mx.pullLoop(one, s, to) })
}

// Epochs ends epochs and stores findings; package epochs implements it.
type Epochs interface {
	// Note stores a finding about a batch.
	Note(ctx context.Context, b tasks.BatchRef, why store.Reason, details ...any) error

	// Complete signs the end of an epoch, which then gets no further batch. source is the upstream relay's end, or nil.
	Complete(ctx context.Context, e tasks.Epoch, source *onion.SignedEnd) error

	// Manifests returns the manifests of all batches of an epoch, without the upstream manifests in them.
	Manifests(ctx context.Context, e tasks.Epoch) ([]onion.Manifest, error)

	// ScrubSoon asks for deleted rows to be overwritten on disk soon.
	ScrubSoon()
}

// Store stores mixed batches.
type Store interface {
	Next(ctx context.Context, id store.EpochID) (uint64, error)
	Destroyed(ctx context.Context, id store.EpochID) (uint64, error)
	Manifest(ctx context.Context, b store.BatchID) (manifest []byte, confirmed bool, err error)
	RecordManifest(ctx context.Context, b store.BatchID, s *onion.SignedManifest) error
	NextManifest(ctx context.Context, id store.EpochID) (uint64, error)
	Mix(ctx context.Context, b store.BatchID, tags []store.Short, build store.MixFunc) error
	MixWithheld(ctx context.Context, b store.BatchID, tags []store.Short, build store.MixFunc) error
	StateRollback() *store.StateRollbackError
}

// ConfirmStore records which pulled batches this relay has not yet confirmed to the upstream relay.
type ConfirmStore interface {
	UnconfirmedSources(ctx context.Context, id store.EpochID) ([]uint64, error)
	SetSourceConfirmed(ctx context.Context, b store.BatchID) error
}

// pullLoop pulls a task's batches from the upstream relay, epoch by epoch, until ctx ends. Each turn holds a slot of
// lines, which limits how many tasks pull from one upstream relay at a time.
func (mx *Mixer) pullLoop(ctx context.Context, s *tasks.Hosted, lines chan struct{}) {
	for {
		select {
		case <-ctx.Done():
			return
		case lines <- struct{}{}:
		}
		more := mx.pullTurn(ctx, s)
		<-lines
		if more && ctx.Err() == nil {
			continue
		}
		select {
		case <-ctx.Done():
			return
		case <-mx.polls.task(s).wake:
		}
	}
}

// pullTurn pulls from every epoch that has begun and is not complete, and fetches the ends of those that never begin.
// It reports whether an epoch may have more batches now.
func (mx *Mixer) pullTurn(ctx context.Context, s *tasks.Hosted) (more bool) {
	latest := mx.Clock.Read().Latest // the latest possible time: asking too early does no harm
	asked := false
	for e := range s.EachEpoch() {
		start, _ := e.Window()
		if mx.Store.StateRollback() != nil || latest.Before(start) && !e.NeverBegins() {
			break
		}
		if e.State() >= store.StateComplete || e.RolledBack() {
			continue
		}
		if e.NeverBegins() {
			mx.monitor.Logged(ctx, "couldn't end a withdrawn epoch", mx.endWithdrawn(ctx, e))
			if e.State() < store.StateComplete { // the upstream relay has not ended later ones either
				break
			}
			continue
		}
		if mx.canSkipPull(e) {
			mx.monitor.Logged(ctx, "couldn't give up an epoch", mx.giveUp(ctx, e))
			continue
		}
		asked = true
		left, err := mx.pullEpoch(ctx, e)
		mx.monitor.Logged(ctx, "couldn't pull", err)
		more = more || left
	}
	if !asked {
		s.PulledNow()
	}
	return more
}

// endWithdrawn ends an epoch that never begins, because the owner has withdrawn the task. It asks the upstream relay
// only for the signed end: a pull would say that the epoch has begun.
func (mx *Mixer) endWithdrawn(ctx context.Context, e tasks.Epoch) error {
	err := mx.takeEnd(ctx, e)
	e.PulledNow()
	return errors.Join(err, mx.giveUp(ctx, e))
}

// pullEpoch pulls sealed batches of an epoch, and gives up on the epoch when the waiting time is over. It reports
// whether there may be more batches now.
func (mx *Mixer) pullEpoch(ctx context.Context, e tasks.Epoch) (more bool, err error) {
	more, err = mx.pullSealed(ctx, e)
	return more, errors.Join(err, mx.giveUp(ctx, e))
}

// pullSealed pulls at most batchesPerTurn sealed batches. It starts at the number of batches that this relay has made
// of the epoch; the transaction that stores a batch increments that number.
func (mx *Mixer) pullSealed(ctx context.Context, e tasks.Epoch) (more bool, err error) {
	if err := mx.confirmPulled(ctx, e); err != nil {
		return false, err
	}
	seq, err := mx.Store.Next(ctx, e.ID())
	for range batchesPerTurn {
		if err != nil || mx.stopsPulling(e) {
			return false, err
		}
		if ended, err := mx.tooManyDestroyed(ctx, e.Ref(seq)); ended || err != nil {
			return false, err
		}
		done, err := mx.pullBatch(ctx, e.Ref(seq))
		if done || err != nil {
			return false, err
		}
		seq++
	}
	return true, nil
}

// stopsPulling reports whether to pull nothing more of an epoch: after a state rollback, or when the waiting time is
// over.
func (mx *Mixer) stopsPulling(e tasks.Epoch) bool {
	return mx.Store.StateRollback() != nil || e.RolledBack() || mx.Clock.Read().Over(mx.giveUpAt(e))
}

// tooManyDestroyed reports whether too many of the batches before b were destroyed. If so, it ends the epoch.
func (mx *Mixer) tooManyDestroyed(ctx context.Context, b tasks.BatchRef) (bool, error) {
	destroyed, err := mx.Store.Destroyed(ctx, b.ID())
	if err != nil || !onion.TooManyDestroyed(b.Seq-min(b.Seq, destroyed), destroyed) {
		return false, err
	}
	return true, errors.Join(mx.epochs.Note(ctx, b, findTooManyDestroyed), mx.epochs.Complete(ctx, b.Epoch, nil))
}

// giveUpAt returns when this relay stops waiting for the upstream relay's batches and end of an epoch.
func (mx *Mixer) giveUpAt(e tasks.Epoch) time.Time {
	return e.EndsBy(time.Unix(int64(e.Epochs.End(e.Number)), 0)).Add(mx.cfg.GiveUp)
}

// pullOutcome is the result of one pull.
type pullOutcome int

const (
	pullFailed      pullOutcome = iota // the upstream relay is unreachable, or this relay failed
	pullTaken                          // the batch came and is valid
	pullNotSealed                      // the upstream relay has not sealed the batch yet
	pullComplete                       // the epoch has no further batch
	pullEnded                          // the upstream relay's operator has ended the epoch
	pullConfirmed                      // the upstream relay deleted the batch, because this relay confirmed it
	pullEquivocated                    // the upstream relay has signed two manifests of this number
	pullTooMany                        // the epoch can have no batch of this number
	pullForeign                        // someone between the relays may have altered or swapped the answer
	pullRefused                        // the upstream relay signed the batch, but it is inconsistent
)

func outcomeOf(err error) pullOutcome {
	switch {
	case err == nil:
		return pullTaken
	case errors.Is(err, handover.ErrNotSealed):
		return pullNotSealed
	case errors.Is(err, handover.ErrEpochComplete):
		return pullComplete
	case errors.Is(err, problem.New(problem.EpochEnded, "")):
		return pullEnded
	case errors.Is(err, handover.ErrConfirmed):
		return pullConfirmed
	case errors.Is(err, store.ErrEquivocation):
		return pullEquivocated
	case errors.Is(err, errTooMany):
		return pullTooMany
	case handover.Foreign(err) != nil:
		return pullForeign
	case errors.As(err, new(*handover.InvalidBatchError)):
		return pullRefused
	}
	return pullFailed
}

// pullBatch pulls one batch and acts on the outcome. It reports whether the epoch has no further batch now.
func (mx *Mixer) pullBatch(ctx context.Context, b tasks.BatchRef) (done bool, err error) {
	polling := mx.polls.task(b.Hosted)
	begun, snapshot := time.Now(), polling.lastPoll.Load()
	before, err := mx.history(ctx, b)
	if err != nil {
		return false, err
	}
	in, err := mx.newIncoming(b.Epoch)
	if err != nil {
		return false, err
	}
	defer in.close()
	signed, err := b.Upstream.PullEach(ctx, handover.Request{Open: b.Open, From: b.Hop - 1, Epoch: b.Number,
		Seq: b.Seq, History: before,
		RecordManifest: func(signed *onion.SignedManifest) error {
			return mx.recordManifest(ctx, b, in, signed)
		}}, in.take)
	if answered := new(problem.Problem); err == nil || errors.As(err, &answered) && answered.Name != "" {
		b.PulledNow()
	}
	switch outcomeOf(err) {
	case pullNotSealed:
		polling.recordUnsealed(b, snapshot)
		return true, nil
	case pullComplete:
		// Only after the epoch's time, so that the upstream relay cannot end the epoch early and make this relay erase
		// its key.
		if !mx.mayEnd(b.Epoch) {
			return true, nil
		}
		return true, mx.takeEnd(ctx, b.Epoch)
	case pullEnded:
		return true, mx.epochs.Note(ctx, b, findOver)
	case pullConfirmed:
		return mx.lost(ctx, b)
	case pullEquivocated:
		return true, errors.Join(mx.epochs.Note(ctx, b, findEquivocation), mx.epochs.Complete(ctx, b.Epoch, nil))
	case pullTooMany:
		return true, errors.Join(mx.epochs.Note(ctx, b, findTooMany), mx.epochs.Complete(ctx, b.Epoch, nil))
	case pullForeign:
		return true, mx.epochs.Note(ctx, b, store.Reason(handover.Foreign(err).Error()))
	case pullRefused:
		refused := new(handover.InvalidBatchError)
		errors.As(err, &refused)
		err = mx.refuse(ctx, b.Hosted, refused.Signed, findInconsistent, "error", refused)
	case pullTaken:
		mx.monitor.Since(monitor.Pull, begun)
		err = mx.mixBatch(ctx, b.Hosted, signed, in)
	case pullFailed: // or another process made the batch or ended the epoch
	}
	if err != nil && !errors.Is(err, store.ErrMade) && !errors.Is(err, store.ErrOver) {
		return true, err
	}
	return errors.Is(err, store.ErrOver), mx.confirmPulled(ctx, b.Epoch)
}

// recordManifest stores the manifest of an incoming batch. It returns an error if this relay must not read the batch's
// slots.
func (mx *Mixer) recordManifest(ctx context.Context, b tasks.BatchRef, in *incomingBatch,
	signed *onion.SignedManifest) error {
	err := mx.Store.RecordManifest(ctx, b.BatchID(), signed)
	if err != nil {
		return err
	}
	if in.manifest, err = signed.Open(b.Task, b.Hop-1); err != nil {
		return err
	}
	if short := mx.monitor.Reserve.Short(); short != nil && !in.manifest.Destroyed() {
		return short // a destroyed batch needs little space and lets the epoch end
	}
	return mx.mayFollow(ctx, b)
}

var errTooMany = errors.New(string(findTooMany))

// mayFollow returns errTooMany if the epoch can have no batch of this number: the number is above the task's limit, or
// the previous batch was the first relay's last. It runs before this relay reads a slot, so a surplus batch costs only
// a manifest. After a refused batch it allows one, because the first relay's manifest is then unknown.
func (mx *Mixer) mayFollow(ctx context.Context, b tasks.BatchRef) error {
	if !b.HasBatch(b.Seq) {
		return errTooMany
	}
	if b.Seq == 0 {
		return nil
	}
	source, err := mx.sourceOf(ctx, b.Ref(b.Seq-1))
	if errors.Is(err, store.ErrNoBatch) { // the epoch is over
		return nil
	}
	if err != nil {
		return err
	}
	chain, err := source.Check(b.Task, b.UpstreamContext(), b.Seq-1)
	if err == nil && chain[0].Last(b.Task) {
		return errTooMany
	}
	return nil
}

// mayEnd reports whether to accept the signed end of an epoch: its time must be over. While this relay doubts the time,
// it is enough that the epoch may be over, because all slots come from the upstream relay anyway.
func (mx *Mixer) mayEnd(e tasks.Epoch) bool {
	_, end := e.Window()
	read := mx.Clock.Read()
	if read.Doubt != "" {
		return !read.Latest.Before(end)
	}
	return !read.Now.Before(end) || read.Over(end)
}

// takeEnd ends an epoch by the upstream relay's signed end. This relay must have all batches that the end names, their
// counts must match, and the upstream relay must not have signed a further batch. Otherwise the epoch waits until this
// relay gives up.
func (mx *Mixer) takeEnd(ctx context.Context, e tasks.Epoch) error {
	source, chain, err := e.Upstream.End(ctx, e.Open, e.Hop-1, e.Number)
	if errors.Is(err, handover.ErrNotSealed) {
		return nil
	}
	if err != nil {
		return err
	}
	made, err := mx.epochs.Manifests(ctx, e)
	if err != nil {
		return err
	}
	signed, err := mx.Store.NextManifest(ctx, e.ID())
	if err != nil {
		return err
	}
	end := &chain[len(chain)-1]
	switch taken := uint64(len(made)); {
	case end.Batches > taken:
		return nil
	case end.Batches < signed || !end.MatchesTaken(made):
		return mx.epochs.Note(ctx, e.Ref(taken), findEnd)
	}
	return mx.epochs.Complete(ctx, e, source)
}

// lost records a finding: this relay has confirmed a batch but does not have it. It records nothing if another process
// on the store has made the batch meanwhile. It returns what pullBatch returns.
func (mx *Mixer) lost(ctx context.Context, b tasks.BatchRef) (done bool, err error) {
	next, err := mx.Store.Next(ctx, b.ID())
	if err != nil || next > b.Seq {
		return err != nil, err
	}
	return true, mx.epochs.Note(ctx, b, findLost)
}

// giveUp ends an epoch, with a finding, if the waiting time is over and the epoch is not complete.
func (mx *Mixer) giveUp(ctx context.Context, e tasks.Epoch) error {
	if e.State() >= store.StateComplete || !mx.Clock.Read().Over(mx.giveUpAt(e)) {
		return nil
	}
	seq, err := mx.Store.Next(ctx, e.ID())
	if err != nil {
		return err
	}
	return errors.Join(mx.epochs.Note(ctx, e.Ref(seq), findGiveUp), mx.epochs.Complete(ctx, e, nil))
}

// mixBatch makes this relay's batch from the checked upstream batch, and stores it together with the tags that detect
// replays.
func (mx *Mixer) mixBatch(ctx context.Context, s *tasks.Hosted, signed *onion.SignedManifest, o *incomingBatch) error {
	if o.opener == nil {
		return mx.refuse(ctx, s, signed, findNoKey)
	}
	if err := o.begin(); err != nil { // creates the shuffle if the batch has no slots
		return err
	}
	begun, m := time.Now(), o.manifest
	b := s.Epoch(m.Epoch).Ref(m.Seq)
	mine := &batchDraft{BatchRef: b, submissions: m.Submissions, in: counts(m, s.Task), source: signed}
	opened, repeats := len(o.tags), 0
	if !m.Destroyed() { // a batch without slots must not cost a draw of dummies
		if err := o.addDummies(mine); err != nil {
			return err
		}
	}
	var tooFew error
	build := func(fresh *store.Fresh, put store.Put) (*store.Made, error) {
		w := onion.NewBatchWriter(len(mine.in), put)
		valid, repeated, err := o.write(fresh, w)
		if err != nil {
			return nil, err
		}
		repeats = repeated
		if tooFew = onion.CheckCounts(s.Task, m.Submissions, valid); m.Destroyed() && tooFew == nil {
			tooFew = errDestroyed // dummies alone are no batch
		}
		if tooFew != nil {
			return mx.maker.destroy(mine)
		}
		return mx.maker.signBatch(mine, w)
	}
	mix := mx.Store.Mix
	if m.Destroyed() {
		mix = mx.Store.MixWithheld
	}
	if err := mix(ctx, b.BatchID(), o.tags, build); err != nil {
		return err
	}
	mx.monitor.Since(monitor.Seal, begun)
	mx.monitor.Tally(b.ID(), "slot replayed", repeats)
	mx.monitor.Tally(b.ID(), "slot does not open", total(mine.in)-opened)
	mx.maker.countBatch(s, tooFew != nil)
	mx.epochs.ScrubSoon()
	mx.monitor.Log.Info("batch mixed", "task", s.ShortID(), "epoch", b.Number, "batch", b.Seq, "destroyed", tooFew != nil)
	if tooFew != nil && !m.Destroyed() {
		return mx.epochs.Note(ctx, b, findTooFew)
	}
	return nil
}

func (o *incomingBatch) addDummies(m *batchDraft) error {
	dummies, err := drawDummies(m.Epoch)
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

var errDestroyed = errors.New("the upstream relay destroyed the batch")

// refuse stores a destroyed batch of the number in a signed manifest, and records the finding why.
func (mx *Mixer) refuse(ctx context.Context, s *tasks.Hosted, source *onion.SignedManifest, why store.Reason,
	details ...any) error {
	m, err := source.Open(s.Task, s.Hop-1)
	if err != nil {
		return err
	}
	b := s.Epoch(m.Epoch).Ref(m.Seq)
	none := &batchDraft{BatchRef: b, submissions: m.Submissions, in: counts(m, s.Task), source: source}
	err = mx.Store.MixWithheld(ctx, b.BatchID(), nil, func(*store.Fresh, store.Put) (*store.Made, error) {
		return mx.maker.destroy(none)
	})
	return errors.Join(err, mx.epochs.Note(ctx, b, why, details...))
}

// counts returns how many slots of each lane left the upstream relay, according to its manifest.
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

// confirmPulled confirms to the upstream relay all batches whose mixed batch is durable here.
func (mx *Mixer) confirmPulled(ctx context.Context, e tasks.Epoch) error {
	id := e.ID()
	unconfirmed, err := mx.Confirms.UnconfirmedSources(ctx, id)
	if err != nil {
		return err
	}
	for _, seq := range unconfirmed {
		if err := mx.confirmOne(ctx, e.Ref(seq)); err != nil {
			return err
		}
		if err := mx.Confirms.SetSourceConfirmed(ctx, id.Batch(seq)); err != nil {
			return err
		}
	}
	return nil
}

// confirmOne confirms the upstream batch that b was made from; b's manifest holds the upstream manifest.
func (mx *Mixer) confirmOne(ctx context.Context, b tasks.BatchRef) error {
	source, err := mx.sourceOf(ctx, b)
	if err != nil {
		return err
	}
	err = b.Upstream.Confirm(ctx, b.Open, b.Hop-1, b.Number, b.Seq, source.Manifest)
	if errors.Is(err, problem.New(problem.Unauthorized, "")) {
		// The upstream relay signed two batches of this number or was rolled back, and no longer has the pulled one.
		return mx.epochs.Note(ctx, b, store.Reason(handover.ErrOther.Error()))
	}
	return err
}

// history returns the digest of the batches of the epoch that this relay pulled before b.
func (mx *Mixer) history(ctx context.Context, b tasks.BatchRef) (before handover.HistoryDigest, err error) {
	had, err := b.Taken.Below(b.Number, b.Seq, func(seq uint64) ([]byte, error) {
		source, err := mx.sourceOf(ctx, b.Ref(seq))
		if err != nil {
			return nil, err
		}
		return source.Manifest, nil
	})
	if errors.Is(err, store.ErrNoBatch) { // the epoch is over
		return before, nil
	}
	return had.History(), err
}

// sourceOf returns the upstream manifest that this relay's batch b was made from.
func (mx *Mixer) sourceOf(ctx context.Context, b tasks.BatchRef) (*onion.SignedManifest, error) {
	manifest, _, err := mx.Store.Manifest(ctx, b.BatchID())
	if err != nil {
		return nil, err
	}
	var m onion.Manifest
	if err := codec.Unmarshal(manifest, &m); err != nil {
		return nil, err
	}
	return onion.ParseSigned(m.Source)
}
