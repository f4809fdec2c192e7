package relay

import (
	"context"

	"github.com/doona-dp/doona/internal/service"
	"github.com/doona-dp/doona/relay/internal/monitor"
	"github.com/doona-dp/doona/relay/internal/store"
	"github.com/doona-dp/doona/relay/internal/tasks"
)

// Metrics returns the definitions of a relay's metrics, except those of the Go runtime and the process.
func Metrics() []service.Metric { return monitor.Definitions() }

// measure updates the gauges. If the store fails, the gauges that need it keep their values.
func (r *Relay) measure(ctx context.Context) {
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
	status, err := r.Status(ctx)
	if err != nil {
		m.Add(monitor.StoreErrors, 1)
		return
	}
	setOwnerTasks(m, status.Owners)
	m.Forget(monitor.Refused)
	m.Forget(monitor.Findings)
	for _, t := range status.Tasks {
		name := t.ID[:8]
		waiting := uint64(0)
		for _, e := range t.Epochs {
			waiting += e.Batches - e.Confirmed
			for reason, n := range e.Refused {
				m.Gauge(monitor.Refused, name, reason).Add(float64(n))
			}
		}
		m.Set(monitor.Unconfirmed, float64(waiting), name)
		for _, f := range t.Findings {
			m.Gauge(monitor.Findings, name, string(f.Reason)).Add(float64(f.Batches()))
		}
	}
}

// setOwnerTasks sets the gauges of task slots. Each gauge sums over all owners, so that metrics do not reveal an owner.
func setOwnerTasks(m *monitor.Monitor, owners []OwnerStatus) {
	var limit, tasks, asked, suspended int
	for _, o := range owners {
		if o.Suspended {
			suspended++
		}
		limit, tasks, asked = limit+o.TaskLimit, tasks+o.Tasks, asked+o.Asked
	}
	m.Set(monitor.Owners, float64(len(owners)-suspended), "active")
	m.Set(monitor.Owners, float64(suspended), "suspended")
	m.Set(monitor.OwnerTaskLimit, float64(limit))
	m.Set(monitor.OwnerTasks, float64(tasks), "tasks")
	m.Set(monitor.OwnerTasks, float64(asked), "keys")
}
