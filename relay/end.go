package relay

import (
	"context"
	"errors"
	"maps"
	"slices"
	"time"

	"github.com/doona-dp/doona/relay/internal/store"
	"github.com/doona-dp/doona/wire/keyfile"
)

// findEnded is noted on every epoch that [SetBack.End] has ended.
const findEnded Reason = "set back here: ended by the operator"

// ErrNotSetBack is returned by [OpenSetBack] where there is nothing to put right.
var ErrNotSetBack = errors.New("nothing was set back, and no store was lost: no epoch is to be ended")

// SetBack is a relay, none of whose processes runs, where something was set back, the store was lost, or no process
// is left that this one could join.
type SetBack struct {
	// Cause says what was set back.
	Cause string

	// Epochs are those that have begun with the store, and are not over: by the clock, by the store and by
	// the marks in the key files. Tasks that are not configured any more are among them.
	Epochs []BegunEpoch

	relay *Relay
	ids   []store.EpochID // Epochs, and those before them that are over
	lost  []store.EpochID // of which only half of the task's id is known, to the secret's mark
}

// BegunEpoch names an epoch.
type BegunEpoch struct {
	Task  string `json:"task"` // lower-case hex; half of it where only the secret's mark knows the task
	Name  string `json:"name"` // of the task; "" where it is not configured
	Epoch uint64 `json:"epoch"`
}

// OpenSetBack opens the files and the store that a configuration names, as [New] does, where something was
// set back. The caller must call Close.
func OpenSetBack(cfg Config) (*SetBack, error) {
	r, err := open(cfg)
	if err != nil {
		return nil, err
	}
	b := &SetBack{relay: r}
	if err := b.look(context.Background()); err != nil {
		r.Close()
		return nil, err
	}
	return b, nil
}

func (b *SetBack) look(ctx context.Context) error {
	err := b.relay.bind(b.relay.store, (*keyfile.HPKE).CheckStore)
	if errors.Is(err, keyfile.ErrStore) {
		b.Cause = keyfile.ErrStore.Error()
	} else if err != nil {
		return err
	}
	if err := b.relay.watch(b.relay.vault); err != nil {
		return err
	}
	all, err := b.relay.store.Follow(ctx)
	if back := b.relay.store.SetBack(); back != nil && b.Cause == "" {
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
		if err := b.lookBehind(ctx, all); err != nil {
			return err
		}
	}
	for _, s := range b.relay.lineup().order {
		b.begun(s, all)
	}
	b.unconfigured(all)
	return nil
}

// unconfigured lists the epochs of tasks that the configuration does not name: the store, or the secret's mark, still
// knows of them.
func (b *SetBack) unconfigured(all []store.Progress) {
	known := slices.Collect(maps.Keys(b.relay.lineup().tasks))
	for _, p := range all {
		if b.relay.lineup().tasks[p.ID.Task] != nil {
			continue
		}
		known = append(known, p.ID.Task)
		b.ids = append(b.ids, p.ID)
		if p.State < store.StateExpired {
			b.Epochs = append(b.Epochs, BegunEpoch{Task: p.ID.Task.String(), Epoch: p.ID.Epoch})
		}
	}
	b.lost = b.relay.vault.MarkedOthers(known)
	for _, id := range b.lost {
		b.Epochs = append(b.Epochs, BegunEpoch{Task: id.Task.String()[:len(id.Task)], Epoch: id.Epoch})
	}
}

// waitForMember has a process that was fenced, or is new, join the others, or says that there is none to join: after
// ten seconds, as the others are given that long to be heard of.
func (b *SetBack) waitForMember(ctx context.Context, all []store.Progress) ([]store.Progress, error) {
	for b.relay.store.Joining() == store.CatchesUp {
		time.Sleep(time.Second)
		now, err := b.relay.store.Follow(ctx)
		if err != nil {
			return nil, err
		}
		all = now
	}
	b.Cause = string(b.relay.store.Joining())
	return all, nil
}

// lookBehind looks for what the next hop has shown of an epoch that goes on: that all was set back together.
func (b *SetBack) lookBehind(ctx context.Context, all []store.Progress) error {
	findings, err := b.relay.store.Findings(ctx)
	if err != nil {
		return err
	}
	ended := func(id store.EpochID) bool {
		at := slices.IndexFunc(all, func(p store.Progress) bool { return p.ID == id })
		return at >= 0 && all[at].State == store.StateEnded
	}
	if !slices.ContainsFunc(findings, func(f store.Finding) bool { return f.Reason == findBehind && !ended(f.ID) }) {
		return ErrNotSetBack
	}
	b.Cause = string(findBehind)
	return nil
}

// begun lists the epochs of a task that have begun.
func (b *SetBack) begun(s *served, all []store.Progress) {
	marked := b.relay.vault.Marked(s.ID)
	for epoch := range s.Epochs.Count {
		start, _ := b.relay.window(s, epoch)
		at := slices.IndexFunc(all, func(p store.Progress) bool { return p.ID == s.epochID(epoch) })
		if b.relay.cfg.Clock().Before(start) && at < 0 && !slices.Contains(marked, epoch) {
			continue
		}
		b.ids = append(b.ids, s.epochID(epoch))
		if at < 0 || all[at].State < store.StateExpired {
			b.Epochs = append(b.Epochs, BegunEpoch{s.ID.String(), s.Name, epoch})
		}
	}
}

// End ends the epochs, for good: their keys are destroyed first, then all that the store has of them, with a
// finding in its place. It may be repeated where it was cut short.
func (b *SetBack) End(ctx context.Context) error {
	r := b.relay
	name, err := r.store.Name(ctx)
	if err != nil {
		return err
	}
	for _, id := range b.ids {
		if s := r.lineup().tasks[id.Task]; s != nil { // else nobody knows where its keys are
			if err := s.eraseKey(id.Epoch); err != nil {
				return err
			}
		}
	}
	if err := r.vault.DestroyEpochs(b.ids); err != nil {
		return err
	}
	if err := r.store.EndAll(ctx, b.ids, findEnded); err != nil {
		return err
	}
	for _, s := range r.lineup().order {
		if err := s.keys.Rebind(name); err != nil {
			return err
		}
	}
	return errors.Join(r.vault.End(b.ids), r.vault.Forget(b.lost))
}

// Close closes the store.
func (b *SetBack) Close() error { return b.relay.Close() }
