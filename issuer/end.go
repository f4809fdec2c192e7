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

// Ended is what [EndEpochs] did to one task.
type Ended struct {
	ID    string `json:"id"`
	Name  string `json:"name"`
	Why   string `json:"why"`   // What was set back; "" where nothing shows.
	Ended int    `json:"ended"` // How many keys were erased.
	Next  uint64 `json:"next"`  // The first epoch that has a key, and tokens; the task's number of epochs if none.
}

// EndEpochs ends the epochs of which tokens may have been issued, for every task whose keys or counts
// were set back, and ties the keys to the store anew. Those epochs give out no further token; tokens that
// were given out stay good. It is an error while the time is in doubt, as it goes by the clock. It may be
// repeated, and a crash amid it leaves the task refused.
func EndEpochs(cfg Config) (ended []Ended, err error) { return endEpochs(cfg, false) }

// EndAllEpochs is [EndEpochs] of every task that has issued tokens, set back or not.
func EndAllEpochs(cfg Config) (ended []Ended, err error) { return endEpochs(cfg, true) }

func endEpochs(cfg Config, all bool) (ended []Ended, err error) {
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
		e := Ended{ID: s.ID.String(), Name: s.Name, Ended: n, Next: next}
		if why != nil {
			e.Why = why.Error()
		}
		ended = append(ended, e)
	}
	return ended, nil
}

// askPatience is how long neighbours have to say what time it is.
const askPatience = 15 * time.Second

// askTime returns the time, when this machine's clock and the relays' agree on it.
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
		return time.Time{}, fmt.Errorf("couldn't tell which epochs have begun: %s; if it is right: issuer trust-clock",
			read.Doubt)
	}
	return read.Now, nil
}

// endTask erases the keys of one task's epochs that may have been issued, by the clock and by all that
// is left of its tie, and then begins the tie anew: the name in the key file last, so that until the end the
// three do not agree.
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
	beside, err := s.open()
	if err != nil {
		return ended, next, err
	}
	defer beside.Close()
	t := storeBinding{Name: rand.Text(), Next: next, Erased: next}
	if err := i.store.begin(s.ID, &t); err != nil {
		return ended, next, err
	}
	value, err := codec.Marshal(&t)
	if err != nil {
		return ended, next, err
	}
	if err := beside.Write(value); err != nil {
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
