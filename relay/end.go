package relay

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"slices"
	"time"

	"github.com/doona-dp/doona/relay/internal/store"
	"github.com/doona-dp/doona/relay/internal/tasks"
	"github.com/doona-dp/doona/wire/keyfile"
	"github.com/doona-dp/doona/wire/task"
)

// findEnded is the finding that [RolledBackRelay.End] records for every epoch that it ends.
const findEnded Reason = "state rollback here: the operator ended the epoch"

// ErrNoRollback is returned by [OpenRolledBack] if the relay has no epoch that must be ended.
var ErrNoRollback = errors.New("no state rollback detected and no store lost: nothing to end")

// RolledBackRelay is a stopped relay that cannot run until its epochs are ended: its state was rolled back, its store
// was lost, or no process runs that this one could join.
type RolledBackRelay struct {
	// Cause says what was rolled back or lost.
	Cause string

	// Epochs lists the epochs that have begun and not ended, according to the clock, the store or the rollback marks in
	// the key files. It includes epochs of tasks that are no longer configured.
	Epochs []BegunEpoch

	relay   *Relay
	ids     []store.EpochID // Epochs of known tasks, and earlier epochs that are over
	unknown []store.EpochID // epoch numbers that their tasks do not have; the relay has no keys or data for them
	lost    []store.EpochID // epochs known only from a rollback mark, which holds half of the task's id
}

// BegunEpoch names an epoch that has begun.
type BegunEpoch struct {
	Task  string `json:"task"` // task id, lower-case hex; only its first half if only a rollback mark names the epoch
	Name  string `json:"name"` // the task's name; "" if the task is not configured
	Epoch uint64 `json:"epoch"`
}

// OpenRolledBack opens the files and the store that a configuration names, as [New] does, after a state rollback.
// The caller must call Close.
func OpenRolledBack(cfg Config) (*RolledBackRelay, error) {
	r, err := open(cfg)
	if err != nil {
		return nil, err
	}
	b := &RolledBackRelay{relay: r}
	if err := b.scan(context.Background()); err != nil {
		r.Close()
		return nil, err
	}
	return b, nil
}

func (b *RolledBackRelay) scan(ctx context.Context) error {
	err := b.relay.Bind(b.relay.store, (*keyfile.HPKE).CheckStore)
	if errors.Is(err, keyfile.ErrStore) {
		b.Cause = keyfile.ErrStore.Error()
	} else if err != nil {
		return err
	}
	if err := b.relay.Watch(b.relay.vault); err != nil {
		return err
	}
	all, err := b.relay.store.Reconcile(ctx)
	if back := b.relay.store.StateRollback(); back != nil && b.Cause == "" {
		b.Cause = string(back.Cause) + ": " + back.Detail
	} else if back == nil && err != nil {
		return err
	}
	if b.Cause == "" {
		if all, err = b.waitForMember(ctx, all); err != nil {
			return err
		}
	}
	if b.Cause == "" {
		if err := b.checkFindings(ctx, all); err != nil {
			return err
		}
	}
	b.list(all)
	return nil
}

// list collects the epochs to end: those of configured tasks that have begun according to the clock, and all epochs in
// the store or in a rollback mark. If a mark kept an epoch, the relay would detect a state rollback again.
func (b *RolledBackRelay) list(all []store.Progress) {
	tasks, states := map[[halfID]byte]task.ID{}, map[store.EpochID]store.State{}
	var found []store.EpochID
	for _, p := range all {
		states[p.ID], tasks[half(p.ID.Task)] = p.State, p.ID.Task
		found = append(found, p.ID)
	}
	for _, s := range b.relay.Hosted().Order {
		tasks[half(s.ID)] = s.ID
		for e := range s.EachEpoch() {
			if start, _ := e.Window(); !b.relay.cfg.Clock().Before(start) {
				found = append(found, e.ID())
			}
		}
	}
	for _, id := range b.relay.vault.Marked() {
		if full, known := tasks[half(id.Task)]; known {
			found = append(found, store.EpochID{Task: full, Epoch: id.Epoch})
			continue
		}
		b.lost = append(b.lost, id)
		b.Epochs = append(b.Epochs, BegunEpoch{Task: id.Task.String()[:2*halfID], Epoch: id.Epoch})
	}
	slices.SortFunc(found, func(a, b store.EpochID) int {
		return cmp.Or(bytes.Compare(a.Task[:], b.Task[:]), cmp.Compare(a.Epoch, b.Epoch))
	})
	for _, id := range slices.Compact(found) {
		state, stored := states[id]
		b.add(id, stored && state >= store.StateExpired)
	}
}

// halfID is how many bytes of a task's id a rollback mark holds.
const halfID = len(task.ID{}) / 2

func half(id task.ID) [halfID]byte { return [halfID]byte(id[:halfID]) }

// add records an epoch to end. If its task has no such epoch, add records the epoch as one to forget.
func (b *RolledBackRelay) add(id store.EpochID, over bool) {
	name, s := "", b.relay.Hosted().ByID[id.Task]
	if s != nil {
		name = s.Name
	}
	if id.Epoch >= task.MaxEpochs || s != nil && id.Epoch >= s.Epochs.Count {
		b.unknown = append(b.unknown, id)
	} else {
		b.ids = append(b.ids, id)
	}
	if !over {
		b.Epochs = append(b.Epochs, BegunEpoch{id.Task.String(), name, id.Epoch})
	}
}

// waitForMember waits until this process has joined the others on the store. If no member sends a heartbeat within ten
// seconds, it sets Cause.
func (b *RolledBackRelay) waitForMember(ctx context.Context, all []store.Progress) ([]store.Progress, error) {
	for b.relay.store.Joining() == store.CatchesUp {
		time.Sleep(time.Second)
		now, err := b.relay.store.Reconcile(ctx)
		if err != nil {
			return nil, err
		}
		all = now
	}
	b.Cause = string(b.relay.store.Joining())
	return all, nil
}

// checkFindings sets Cause if the store, the secret and the keys were all rolled back together. Only the next hop can
// notice that; the relay then has a finding. Findings about epochs that the operator has ended do not count.
func (b *RolledBackRelay) checkFindings(ctx context.Context, all []store.Progress) error {
	findings, err := b.relay.store.Findings(ctx)
	if err != nil {
		return err
	}
	ended := func(id store.EpochID) bool {
		at := slices.IndexFunc(all, func(p store.Progress) bool { return p.ID == id })
		return at >= 0 && all[at].State == store.StateEnded
	}
	unresolved := func(f store.Finding) bool { return f.Reason == tasks.FindRolledBack && !ended(f.ID) }
	if !slices.ContainsFunc(findings, unresolved) {
		return ErrNoRollback
	}
	b.Cause = string(tasks.FindRolledBack)
	return nil
}

// End ends the epochs permanently. It first destroys their keys. Then it deletes the epochs from the store and records
// a finding for each. After an interruption, call End again.
func (b *RolledBackRelay) End(ctx context.Context) error {
	r := b.relay
	name, err := r.store.Name(ctx)
	if err != nil {
		return err
	}
	for _, id := range b.ids {
		if s := r.Hosted().ByID[id.Task]; s != nil { // else no configuration says where the keys are
			if err := s.Epoch(id.Epoch).EraseKey(); err != nil {
				return err
			}
		}
	}
	if err := r.vault.DestroyEpochs(slices.Concat(b.ids, b.lost)); err != nil {
		return err
	}
	if err := r.store.EndAll(ctx, b.ids, b.unknown, findEnded); err != nil {
		return err
	}
	for _, s := range r.Hosted().Order {
		if err := s.Keys.Rebind(name); err != nil {
			return err
		}
	}
	return errors.Join(r.vault.End(b.ids), r.vault.Forget(slices.Concat(b.unknown, b.lost)))
}

// Close closes the store.
func (b *RolledBackRelay) Close() error { return b.relay.Close() }
