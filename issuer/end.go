package issuer

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/doona-dp/doona/internal/clock"
	"github.com/doona-dp/doona/internal/rollback"
	"github.com/doona-dp/doona/wire/codec"
)

// EndedTask is the result of [EndEpochs] for one task.
type EndedTask struct {
	ID    string `json:"id"`
	Name  string `json:"name"`
	Why   string `json:"why"`   // What was rolled back; "" if no rollback was detected.
	Ended int    `json:"ended"` // Number of erased keys.
	Next  uint64 `json:"next"`  // The first epoch with a key; the task's number of epochs if all keys are erased.
}

// EndEpochs ends epochs of every task whose keys or counts were rolled back: those for which tokens may have been
// issued. It then binds the keys to the store again. The issuer issues no further token for the ended epochs; tokens
// that it issued before stay valid. EndEpochs returns an error while the time is in doubt, because the clock determines
// which epochs have begun. It may be repeated. If it crashes, [New] still refuses the task.
func EndEpochs(cfg Config) (ended []EndedTask, err error) { return endEpochs(cfg, false) }

// EndAllEpochs is [EndEpochs] for every task that has issued tokens, rolled back or not.
func EndAllEpochs(cfg Config) (ended []EndedTask, err error) { return endEpochs(cfg, true) }

func endEpochs(cfg Config, all bool) (ended []EndedTask, err error) {
	i, err := load(cfg)
	if err != nil {
		return nil, err
	}
	if i.store, err = openStore(cfg.Store); err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, i.Close()) }()
	now, err := i.askTime()
	if err != nil {
		return nil, err
	}
	for _, s := range i.hosted().order {
		p, err := s.readBinding(i.store)
		if err != nil {
			return ended, err
		}
		why := p.check()
		if why == nil && (!all || p.fresh()) {
			continue
		}
		n, next, err := i.endTask(s, &p, now)
		if err != nil {
			return ended, fmt.Errorf("couldn't end epochs of task %s: %w", s.ID, err)
		}
		e := EndedTask{ID: s.ID.String(), Name: s.Name, Ended: n, Next: next}
		if why != nil {
			e.Why = why.Error()
		}
		ended = append(ended, e)
	}
	return ended, nil
}

// askPatience is how long the relays have to answer with their time.
const askPatience = 15 * time.Second

// askTime returns the time once this machine's clock and the relays' agree.
func (i *Issuer) askTime() (time.Time, error) {
	if err := i.loadClock(); err != nil {
		return time.Time{}, err
	}
	ctx, stop := context.WithTimeout(context.Background(), askPatience)
	defer stop()
	i.setClockPeers()
	var asking sync.WaitGroup
	asking.Go(func() { i.clock.Watch(ctx) })
	read := i.clock.Read()
	for ; read.Doubt == clock.DoubtAsking && ctx.Err() == nil; read = i.clock.Read() {
		time.Sleep(20 * time.Millisecond)
	}
	stop()
	asking.Wait()
	if read.Doubt != "" {
		return time.Time{}, fmt.Errorf("couldn't tell which epochs have begun: %s; if this clock is right, run "+
			"'issuer trust-clock'", read.Doubt)
	}
	return read.Now, nil
}

// endTask erases the keys of a task's epochs for which tokens may have been issued, according to the clock and to all
// remaining copies of the binding. It then creates a new binding. It writes the name in the key file last: until then
// the three copies disagree, so that [New] refuses the task after a crash.
func (i *Issuer) endTask(s *hostedTask, p *bindingCopies, now time.Time) (ended int, next uint64, err error) {
	for epoch := range s.Epochs.Count {
		if start, _ := i.window(s, epoch); !now.Before(start) {
			next = epoch + 1
		}
	}
	for _, t := range []*storeBinding{p.row, p.mark} {
		if t != nil {
			next = max(next, t.Next, t.Erased)
		}
	}
	next = min(next, s.Epochs.Count)
	for _, epoch := range s.keys.Epochs() {
		if epoch < next {
			if err := s.eraseKey(epoch); err != nil {
				return ended, next, err
			}
			ended++
		}
	}
	mark, err := s.open()
	if err != nil {
		return ended, next, err
	}
	defer mark.Close()
	t := storeBinding{Name: rand.Text(), Next: next, Erased: next}
	if err := i.store.replaceBinding(s.ID, &t); err != nil {
		return ended, next, err
	}
	value, err := codec.Marshal(&t)
	if err != nil {
		return ended, next, err
	}
	if err := mark.Write(value); err != nil {
		return ended, next, err
	}
	keys, err := s.keys.Mark()
	if err != nil {
		return ended, next, err
	}
	defer keys.Close()
	if err := keys.Change(func(m *rollback.Mark) { m.Entries[s.counter()] = rollback.Entry{} }); err != nil {
		return ended, next, err
	}
	return ended, next, s.keys.SetStore(t.Name)
}
