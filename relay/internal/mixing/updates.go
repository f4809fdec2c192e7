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

// A relay polls each upstream relay for one status that covers all tasks they share: see [handover.UpstreamStatus]. It
// skips the pull of an epoch if the last status agrees with the last pull: the epoch is open and its next batch is not
// sealed. So the status only saves requests; without one the relay pulls every epoch. Pulls still detect a state
// rollback: the relay asks each process of the upstream relay for every epoch at least once, and again when the
// process's number of batches changes.

// instance identifies the process of the upstream relay that gave a status.
type instance [16]byte

// upstream is an upstream relay, and the key with which this relay signs its requests to that relay.
type upstream struct {
	relay task.Party // without its key list, which differs by task
	own   task.SignKey
}

// upstreamOf returns the upstream relay of a task. Do not call it at the first relay.
func upstreamOf(s *tasks.Hosted) upstream {
	at := s.Relays[s.Hop-1]
	return upstream{task.Party{URL: at.URL, SignKey: at.SignKey}, s.Relays[s.Hop].SignKey}
}

// upstreamSnapshot is the last known status of the upstream relay.
type upstreamSnapshot struct {
	status  *handover.UpstreamStatus
	by      instance
	at      time.Time
	batches map[store.EpochID]uint64
}

// polls holds the polling state of each task.
type polls struct {
	mu sync.Mutex // guards of
	of map[*tasks.Hosted]*polling
}

func (p *polls) task(s *tasks.Hosted) *polling {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.of == nil {
		p.of = map[*tasks.Hosted]*polling{}
	}
	if p.of[s] == nil {
		p.of[s] = &polling{wake: make(chan struct{}, 1), unsealed: map[uint64]unsealedBatch{}}
	}
	return p.of[s]
}

// keep deletes the polling state of all tasks that are not in the set.
func (p *polls) keep(hosted *tasks.Set) {
	p.mu.Lock()
	defer p.mu.Unlock()
	maps.DeleteFunc(p.of, func(s *tasks.Hosted, _ *polling) bool { return hosted.ByID[s.ID] != s })
}

// polling is the polling state of one task.
type polling struct {
	lastPoll atomic.Pointer[upstreamSnapshot] // the upstream relay's last status; nil if there is none
	wake     chan struct{}                    // tells pullLoop to pull now

	mu       sync.Mutex               // guards unsealed
	unsealed map[uint64]unsealedBatch // by epoch
}

// unsealedBatch records the last pull of an epoch: the batch seq was not sealed yet.
type unsealedBatch struct {
	seq uint64
	by  instance // the process whose status came before the pull
}

// updatesLoop polls the status of an upstream relay until ctx ends. After each poll it wakes the pull loops of that
// relay's tasks.
func (mx *Mixer) updatesLoop(ctx context.Context, n upstream) {
	client := mx.ClientOf(n.own)
	tick := time.NewTicker(mx.cfg.PullInterval)
	defer tick.Stop()
	snapshot := (*upstreamSnapshot)(nil)
	for known := (*handover.UpstreamStatus)(nil); ; {
		all := slices.DeleteFunc(slices.Clone(mx.Hosted().Order), func(s *tasks.Hosted) bool {
			return s.Hop == 0 || upstreamOf(s) != n
		})
		if len(all) > 0 { // otherwise the relay has dropped all of them
			// If the poll fails, the loops pull every task, and log their own failures.
			known, _ = client.UpstreamStatus(ctx, n.relay, known)
		}
		snapshot = snapshot.next(known, func(id store.EpochID) bool {
			s := mx.Hosted().ByID[id.Task]
			return s != nil && id.Epoch < s.Epochs.Count
		})
		mx.polls.keep(mx.Hosted())
		for _, s := range all {
			p := mx.polls.task(s)
			p.lastPoll.Store(snapshot)
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

// next returns the snapshot for a new status n, with only the epochs of this relay's tasks; nil if n is nil.
func (h *upstreamSnapshot) next(n *handover.UpstreamStatus, concerns func(store.EpochID) bool) *upstreamSnapshot {
	if n == nil {
		return nil
	}
	if h != nil && h.status == n {
		again := *h
		again.at = time.Now()
		return &again
	}
	snapshot := &upstreamSnapshot{n, instance(n.Instance), time.Now(), map[store.EpochID]uint64{}}
	for _, w := range n.Epochs {
		if id := (store.EpochID{Task: task.ID(w.TaskID), Epoch: w.Epoch}); concerns(id) {
			snapshot.batches[id] = w.Batches
		}
	}
	return snapshot
}

// canSkipPull reports whether the relay need not pull an epoch now, because the last status agrees with the last pull.
func (mx *Mixer) canSkipPull(e tasks.Epoch) bool {
	p := mx.polls.task(e.Hosted)
	snapshot := p.lastPoll.Load()
	if snapshot == nil || time.Since(snapshot.at) > maxStatusAge+2*mx.cfg.PullInterval {
		return false
	}
	p.mu.Lock()
	found, waiting := p.unsealed[e.Number]
	p.mu.Unlock()
	batches, goesOn := snapshot.batches[e.ID()]
	return waiting && goesOn && found == unsealedBatch{batches, snapshot.by}
}

// maxStatusAge is how old a status may be, in addition to two pull intervals, to skip a pull.
const maxStatusAge = 30 * time.Second

// recordUnsealed records that a batch was not sealed at a pull that began when snapshot was the last status.
func (p *polling) recordUnsealed(b tasks.BatchRef, snapshot *upstreamSnapshot) {
	if snapshot == nil {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.unsealed[b.Number] = unsealedBatch{b.Seq, snapshot.by}
}
