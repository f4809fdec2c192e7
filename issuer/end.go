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
	Why   string `json:"why"`   // What was rolled back; "" if the issuer detected no rollback.
	Ended int    `json:"ended"` // Number of erased keys.
	Next  uint64 `json:"next"`  // The first epoch that still has a key; the number of epochs if none has.
}

// EndEpochs is for tasks whose keys or counts were rolled back. For each such task, it ends the epochs for which tokens
// may have been issued: it erases their keys, and binds the remaining keys to the store again. The issuer issues no
// further token for the ended epochs; tokens that it issued before stay valid. EndEpochs returns an error while the
// time is in doubt, because the clock determines which epochs have begun. It may be repeated. If it crashes, [New]
// still refuses the task.
func EndEpochs(cfg Config) (ended []EndedTask, err error) { return endEpochs(cfg, false) }

// EndAllEpochs does the same as [EndEpochs] for every task that has issued tokens, whether or not it was rolled back.
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

// askPatience is how long askTime waits for the relays to answer with their time.
const askPatience = 15 * time.Second

// askTime returns the time when this machine's clock agrees with the relays' clocks. Otherwise it returns an error.
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

// endTask erases the keys of all epochs of a task for which tokens may have been issued. These are the epochs that have
// begun by the clock, or that any remaining copy of the binding names. Then endTask creates a new binding. It writes
// the name in the key file last: until then the three copies disagree, so [New] refuses the task after a crash.
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
