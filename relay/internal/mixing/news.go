package mixing

import (
	"context"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/doona-dp/doona/relay/internal/store"
	"github.com/doona-dp/doona/relay/internal/tasks"
	"github.com/doona-dp/doona/wire/handover"
	"github.com/doona-dp/doona/wire/task"
)

// A relay of many tasks asks the relay before it once, for all of them, which have something new: see
// [handover.UpstreamStatus]. A task's epoch is not asked for where the last such answer says what the last pull said:
// that more may come, and that it is not here yet. So news only save requests. Where there is none, as where it
// cannot be had, the relay asks for everything; what a pull shows, such as that something was set back, it shows as
// before: each process of the relay before is asked for every epoch at least once, and again when it has fewer
// batches than were taken, or more.

// instance is a process's name in its news.
type instance [16]byte

// neighbour is the relay before, in some tasks, and the key with which this one asks it.
type neighbour struct {
	relay task.Party // but its list of keys, which each task has its own of
	own   task.SignKey
}

// neighbourOf returns the relay before, of a task in which this one is not the first.
func neighbourOf(s *tasks.Hosted) neighbour {
	at := s.Relays[s.Hop-1]
	return neighbour{task.Party{URL: at.URL, SignKey: at.SignKey}, s.Relays[s.Hop].SignKey}
}

// upstreamSnapshot is what the relay before has told.
type upstreamSnapshot struct {
	news    *handover.UpstreamStatus
	by      instance
	at      time.Time
	batches map[store.EpochID]uint64
}

// polls has what the pulls of each task go by.
type polls struct {
	mu sync.Mutex // guards of
	of map[*tasks.Hosted]*polling
}

// task returns what the pulls of a task go by.
func (p *polls) task(s *tasks.Hosted) *polling {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.of == nil {
		p.of = map[*tasks.Hosted]*polling{}
	}
	if p.of[s] == nil {
		p.of[s] = &polling{wake: make(chan struct{}, 1), waits: map[uint64]waits{}}
	}
	return p.of[s]
}

// keep forgets all tasks but these.
func (p *polls) keep(hosted []*tasks.Hosted) {
	p.mu.Lock()
	defer p.mu.Unlock()
	maps.DeleteFunc(p.of, func(s *tasks.Hosted, _ *polling) bool { return !slices.Contains(hosted, s) })
}

// polling is what a task's pulls go by. Each task has one.
type polling struct {
	lastPoll atomic.Pointer[upstreamSnapshot] // what the upstream relay told; nil: nothing
	wake     chan struct{}                    // tells pullLoop that it is time to ask

	mu    sync.Mutex       // guards waits
	waits map[uint64]waits // by epoch
}

// waits is what the last pull of an epoch has shown: that the batch of this number is not sealed.
type waits struct {
	seq uint64
	by  instance // who had told the news before that
}

// newsLoop asks the relay before for its news, until ctx ends, and has the tasks pull that it concerns.
func (mx *Mixer) newsLoop(ctx context.Context, n neighbour) {
	client := mx.ClientOf(n.own)
	tick := time.NewTicker(mx.cfg.PullInterval)
	defer tick.Stop()
	told := (*upstreamSnapshot)(nil)
	for known := (*handover.UpstreamStatus)(nil); ; {
		all := slices.DeleteFunc(slices.Clone(mx.Hosted().Order), func(s *tasks.Hosted) bool {
			return s.Hop == 0 || neighbourOf(s) != n
		})
		if len(all) > 0 { // else all have been dropped
			// Who does not answer is asked for every task: what that comes to is logged.
			known, _ = client.UpstreamStatus(ctx, n.relay, known)
		}
		told = told.hear(known, func(id store.EpochID) bool {
			s := mx.Hosted().ByID[id.Task]
			return s != nil && id.Epoch < s.Epochs.Count
		})
		mx.polls.keep(mx.Hosted().Order)
		for _, s := range all {
			p := mx.polls.task(s)
			p.lastPoll.Store(told)
			select {
			case p.wake <- struct{}{}:
			default:
			}
		}
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

// hear returns what the news tell, of the epochs that concern the relay, behind what was told before; nil for no news.
func (h *upstreamSnapshot) hear(n *handover.UpstreamStatus, concerns func(store.EpochID) bool) *upstreamSnapshot {
	if n == nil {
		return nil
	}
	if h != nil && h.news == n {
		again := *h
		again.at = time.Now()
		return &again
	}
	told := &upstreamSnapshot{n, instance(n.Instance), time.Now(), map[store.EpochID]uint64{}}
	for _, w := range n.Epochs {
		if id := (store.EpochID{Task: task.ID(w.TaskID), Epoch: w.Epoch}); concerns(id) {
			told.batches[id] = w.Batches
		}
	}
	return told
}

// isSpared says whether there is nothing to ask for in an epoch: what was told last is what was found last.
func (mx *Mixer) isSpared(e tasks.Epoch) bool {
	p := mx.polls.task(e.Hosted)
	told := p.lastPoll.Load()
	if told == nil || time.Since(told.at) > newsAge+2*mx.cfg.PullInterval {
		return false
	}
	p.mu.Lock()
	found, waiting := p.waits[e.Number]
	p.mu.Unlock()
	batches, goesOn := told.batches[e.ID()]
	return waiting && goesOn && found == waits{batches, told.by}
}

// newsAge is how old news may be that count, beyond what they take to come.
const newsAge = 30 * time.Second

// waitsFor takes note that a batch is not sealed, by a pull that began when so much had been told.
func (p *polling) waitsFor(b tasks.BatchRef, told *upstreamSnapshot) {
	if told == nil {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.waits[b.Number] = waits{b.Seq, told.by}
}
