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

// findEnded is noted on every epoch that [RolledBackRelay.End] has ended.
const findEnded Reason = "state rollback here: the operator ended the epoch"

// ErrNoRollback is returned by [OpenRolledBack] where there is nothing to put right.
var ErrNoRollback = errors.New("no state rollback detected and no store lost: nothing to end")

// RolledBackRelay is a relay, none of whose processes runs, where something was set back, the store was lost, or no process
// is left that this one could join.
type RolledBackRelay struct {
	// Cause says what was set back.
	Cause string

	// Epochs are those that have begun with the store, and are not over: by the clock, by the store and by
	// the marks in the key files. Tasks that are not configured any more are among them.
	Epochs []BegunEpoch

	relay   *Relay
	ids     []store.EpochID // Epochs, and those before them that are over
	strange []store.EpochID // beyond those of their tasks: they have no keys, and nothing is kept of them
	lost    []store.EpochID // of which only half of the task's id is known, to a mark
}

// BegunEpoch names an epoch.
type BegunEpoch struct {
	Task  string `json:"task"` // lower-case hex; half of it where only a mark knows the task
	Name  string `json:"name"` // of the task; "" where it is not configured
	Epoch uint64 `json:"epoch"`
}

// OpenRolledBack opens the files and the store that a configuration names, as [New] does, where something was
// set back. The caller must call Close.
func OpenRolledBack(cfg Config) (*RolledBackRelay, error) {
	r, err := open(cfg)
	if err != nil {
		return nil, err
	}
	b := &RolledBackRelay{relay: r}
	if err := b.look(context.Background()); err != nil {
		r.Close()
		return nil, err
	}
	return b, nil
}

func (b *RolledBackRelay) look(ctx context.Context) error {
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
		if err := b.lookForRollback(ctx, all); err != nil {
			return err
		}
	}
	b.list(all)
	return nil
}

// list lists the epochs that have begun by the clock, of the tasks that are configured, and all that the store or any
// mark knows, whatever their numbers and tasks: what is left in a mark is a set-back again.
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

// add takes note of an epoch that is to be ended, or, where its task has no such epoch, forgotten.
func (b *RolledBackRelay) add(id store.EpochID, over bool) {
	name, s := "", b.relay.Hosted().ByID[id.Task]
	if s != nil {
		name = s.Name
	}
	if id.Epoch >= task.MaxEpochs || s != nil && id.Epoch >= s.Epochs.Count {
		b.strange = append(b.strange, id)
	} else {
		b.ids = append(b.ids, id)
	}
	if !over {
		b.Epochs = append(b.Epochs, BegunEpoch{id.Task.String(), name, id.Epoch})
	}
}

// waitForMember has a process that was fenced, or is new, join the others, or says that there is none to join: after
// ten seconds, as the others are given that long to be heard of.
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

// lookForRollback looks for what the next hop has shown of an epoch that goes on: that all was set back together.
func (b *RolledBackRelay) lookForRollback(ctx context.Context, all []store.Progress) error {
	findings, err := b.relay.store.Findings(ctx)
	if err != nil {
		return err
	}
	ended := func(id store.EpochID) bool {
		at := slices.IndexFunc(all, func(p store.Progress) bool { return p.ID == id })
		return at >= 0 && all[at].State == store.StateEnded
	}
	goesOn := func(f store.Finding) bool { return f.Reason == tasks.FindRolledBack && !ended(f.ID) }
	if !slices.ContainsFunc(findings, goesOn) {
		return ErrNoRollback
	}
	b.Cause = string(tasks.FindRolledBack)
	return nil
}

// End ends the epochs, for good: their keys are destroyed first, then all that the store has of them, with a
// finding in its place. It may be repeated where it was cut short.
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
	if err := r.store.EndAll(ctx, b.ids, b.strange, findEnded); err != nil {
		return err
	}
	for _, s := range r.Hosted().Order {
		if err := s.Keys.Rebind(name); err != nil {
			return err
		}
	}
	return errors.Join(r.vault.End(b.ids), r.vault.Forget(slices.Concat(b.strange, b.lost)))
}

// Close closes the store.
func (b *RolledBackRelay) Close() error { return b.relay.Close() }
