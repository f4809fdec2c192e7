package relay

import (
	"context"
	"sync"

	"github.com/doona-dp/doona/internal/service"
	"github.com/doona-dp/doona/relay/internal/monitor"
	"github.com/doona-dp/doona/relay/internal/store"
	"github.com/doona-dp/doona/relay/internal/tasks"
)

// Metrics returns the definitions of a relay's metrics, except those of the Go runtime and the process.
func Metrics() []service.Metric { return monitor.Definitions() }

// shown remembers which series of tasks and owners the last scrape showed. Its lock is held while gauges are updated.
type shown struct {
	mu     sync.Mutex
	series map[monitor.Series]times
}

// measure updates the gauges. If the store fails, the gauges that need it keep their values.
func (r *Relay) measure(ctx context.Context) {
	r.shown.mu.Lock()
	defer r.shown.mu.Unlock()
	m := r.monitor
	m.Set(monitor.Ready, service.Flag(r.isServing(ctx) == nil).Value())
	found, _ := r.refusals()
	for _, name := range refusalProblems {
		m.Set(monitor.Refusing, 0, string(name))
	}
	for _, f := range found {
		m.Gauge(monitor.Refusing, string(f.Problem)).Add(1)
	}
	usage, back := r.ingress.Load(), r.store.StateRollback()
	for _, cause := range store.Causes() {
		m.Set(monitor.RollbackDetected, service.Flag(back != nil && back.Cause == cause).Value(), string(cause))
	}
	m.Set(monitor.RollbackDetected, service.Flag(r.isAnyRolledBack()).Value(), string(tasks.FindRolledBack))
	m.Set(monitor.Queue, float64(usage.Queued))
	m.Set(monitor.InFlight, float64(usage.InFlight))
	m.Set(monitor.Reserved, float64(usage.Bytes))
	m.Set(monitor.Connections, float64(r.connections.Count()))
	m.SetClock(monitor.Prefix, string(r.clock.Read().Doubt), r.clock.Offsets())
	m.Set(monitor.Unscrubbed, service.Flag(r.epochs.Unscrubbed() != "").Value())
	if last := r.reloads.status.Load(); last != nil {
		m.Set(monitor.ReloadFailed, service.Flag(last.Failed != "").Value())
		if !last.Applied.IsZero() {
			m.Set(monitor.Reloaded, float64(last.Applied.Unix()))
		}
	}
	r.setTimes()
	status, err := r.Status(ctx)
	m.Set(monitor.StoreUnreadable, service.Flag(err != nil).Value())
	if err != nil {
		m.Add(monitor.StoreErrors, 1)
		return
	}
	setOwnerTasks(m, status.Owners)
	setSets(m, status.Sets)
	r.setSums(status.Tasks)
}

// times are what a series shows of its tasks, as Unix times.
type times struct{ pulled, asked, over int64 }

// with adds another task's times to those of a series that has a task already.
func (t times) with(other times, now int64) times {
	if t.pulled == 0 || other.pulled > 0 && other.pulled < t.pulled {
		t.pulled = other.pulled // the oldest, so that an upstream relay of one task that is away shows
	}
	t.asked = max(t.asked, other.asked)
	// The next end, or the last one if all tasks are over: the relay keeps a task that is over for long, and that must
	// not hide the next end.
	if t.over <= now && other.over > t.over || other.over > now && other.over < t.over {
		t.over = other.over
	}
	return t
}

// setTimes sets the gauges that are times, for the series of each task or owner, and removes series without a task.
func (r *Relay) setTimes() {
	now, all := r.clock.Read().Now.Unix(), map[monitor.Series]times{}
	for _, s := range r.Hosted().Order {
		its := times{s.LastPull(), s.LastAsked(), s.Over()}
		if before, more := all[s.Series()]; more {
			its = before.with(its, now)
		}
		all[s.Series()] = its
	}
	for s, of := range all {
		r.monitor.Begin(s)
		r.monitor.Set(monitor.Pulled, float64(of.pulled), s.With()...)
		r.monitor.Set(monitor.Asked, float64(of.asked), s.With()...)
		r.monitor.Set(monitor.EpochsEnd, float64(of.over), s.With()...)
	}
	for s := range r.shown.series {
		if _, still := all[s]; !still {
			r.monitor.End(s)
		}
	}
	r.shown.series = all
}

// setSums sets the gauges that count batches and slots, for the series of each task or owner.
func (r *Relay) setSums(all []TaskStatus) {
	m, series := r.monitor, map[string]monitor.Series{}
	for _, s := range r.Hosted().Order {
		series[s.ID.String()] = s.Series()
	}
	m.Forget(monitor.Refused)
	m.Forget(monitor.Findings)
	waiting := map[monitor.Series]uint64{}
	for _, t := range all {
		of, hosted := series[t.ID]
		if !hosted { // dropped meanwhile
			continue
		}
		waiting[of] += 0 // shown even if no epoch has begun
		for _, e := range t.Epochs {
			waiting[of] += e.Batches - e.Confirmed
			for reason, n := range e.Refused {
				m.Gauge(monitor.Refused, of.With(reason)...).Add(float64(n))
			}
		}
		for _, f := range t.Findings {
			m.Gauge(monitor.Findings, of.With(string(f.Reason))...).Add(float64(f.Batches()))
		}
	}
	for s, n := range waiting {
		m.Set(monitor.Unconfirmed, float64(n), s.With()...)
	}
}

// setSets sets the gauges of sets. The status names the sets.
func setSets(m *monitor.Monitor, sets []SetStatus) {
	states := map[string]int{"served": 0, "incomplete": 0, "unpermuted": 0}
	for _, s := range sets {
		switch {
		case len(s.Missing) > 0:
			states["incomplete"]++
		case s.Unpermuted != "":
			states["unpermuted"]++
		default:
			states["served"]++
		}
	}
	for state, n := range states {
		m.Set(monitor.Sets, float64(n), state)
	}
}

// setOwnerTasks sets the gauges of task slots. Each gauge sums over all owners: relay owners has those of each.
func setOwnerTasks(m *monitor.Monitor, owners []OwnerStatus) {
	var limit, tasks, withdrawn, asked, suspended int
	for _, o := range owners {
		if o.Suspended {
			suspended++
		}
		limit, tasks, asked = limit+o.TaskLimit, tasks+o.Tasks, asked+o.Asked
		withdrawn += o.Withdrawn
	}
	m.Set(monitor.Owners, float64(len(owners)-suspended), "active")
	m.Set(monitor.Owners, float64(suspended), "suspended")
	m.Set(monitor.OwnerTaskLimit, float64(limit))
	m.Set(monitor.OwnerTasks, float64(tasks), "tasks")
	m.Set(monitor.OwnerTasks, float64(asked), "keys")
	m.Set(monitor.OwnerTasks, float64(withdrawn), "withdrawn")
}
