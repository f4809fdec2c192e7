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

// findEnded is recorded for every epoch that [RolledBackRelay.End] has ended.
const findEnded Reason = "state rollback here: the operator ended the epoch"

// ErrNoRollback is returned by [OpenRolledBack] if there is no epoch to end.
var ErrNoRollback = errors.New("no state rollback detected and no store lost: nothing to end")

// RolledBackRelay is a stopped relay whose state was rolled back, whose store was lost, or that has no member left
// for this process to join.
type RolledBackRelay struct {
	// Cause says what was rolled back or lost.
	Cause string

	// Epochs have begun and have not ended, according to the clock, the store or the marks in the key files. They
	// include epochs of tasks that are no longer configured.
	Epochs []BegunEpoch

	relay   *Relay
	ids     []store.EpochID // Epochs, and earlier ones that are over
	unknown []store.EpochID // numbers that their tasks do not have: the relay has no keys or data of them
	lost    []store.EpochID // known only from a mark, which has half of the task's id
}

// BegunEpoch names an epoch.
type BegunEpoch struct {
	Task  string `json:"task"` // lower-case hex; only half of it if the epoch is known only from a mark
	Name  string `json:"name"` // of the task; "" if it is not configured
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

// list lists the epochs of configured tasks that have begun according to the clock, and all epochs that the store or a
// mark knows. If an epoch stayed in a mark, the relay would detect a state rollback again.
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

// halfID is how many bytes of a task's id a mark has.
const halfID = len(task.ID{}) / 2

func half(id task.ID) [halfID]byte { return [halfID]byte(id[:halfID]) }

// add records an epoch to end, or to forget if its task has no such epoch.
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

// waitForMember lets a fenced or new process join the others. If no member sends a heartbeat within ten seconds, it
// sets Cause.
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

// checkFindings sets Cause if store, secret and keys were rolled back together: only the next hop can show that, and
// the relay then has a finding. Findings of epochs that the operator has ended do not count.
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

// End ends the epochs permanently. It first destroys their keys, then deletes them from the store and records a
// finding. It may be repeated after an interruption.
func (b *RolledBackRelay) End(ctx context.Context) error {
	r := b.relay
	name, err := r.store.Name(ctx)
	if err != nil {
		return err
	}
	for _, id := range b.ids {
		if s := r.Hosted().ByID[id.Task]; s != nil { // else nobody knows where its keys are
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
