// Package monitor holds what a relay shows its operator: its log, its metrics, and whether its store fails or its disk
// is full. All stages of the relay write to one [Monitor]. Package relay serves it on the admin address.
//
// Counts that could reveal when a report came, or what became of it, are withheld until its epoch is erased: see
// [Monitor.TakeTallies].
package monitor

import (
	"context"
	"errors"
	"log/slog"
	"net/url"
	"sync"
	"sync/atomic"

	"github.com/doona-dp/doona/internal/durable"
	"github.com/doona-dp/doona/internal/service"
	"github.com/doona-dp/doona/relay/internal/store"
	"github.com/doona-dp/doona/wire/problem"
)

// The names of the metrics and of their labels.
const (
	Ready              = "doona_relay_ready"
	Refusing           = "doona_relay_refusing"
	RollbackDetected   = "doona_relay_rollback_detected"
	Queue              = "doona_relay_queue_depth"
	InFlight           = "doona_relay_reports_in_flight"
	Reserved           = "doona_relay_reserved_bytes"
	Connections        = "doona_relay_connections"
	Overload           = "doona_relay_overloaded_total"
	Unconnected        = "doona_relay_connections_refused_total"
	Commit             = "doona_relay_commit_seconds"
	Seal               = "doona_relay_seal_seconds"
	Pull               = "doona_relay_pull_seconds"
	Pulled             = "doona_relay_last_answer_timestamp_seconds"
	Asked              = "doona_relay_last_asked_timestamp_seconds"
	StoreErrors        = "doona_relay_store_errors_total"
	StoreUnreadable    = "doona_relay_store_unreadable"
	Batches            = "doona_relay_batches_total"
	Unconfirmed        = "doona_relay_unconfirmed_batches"
	EpochsEnd          = "doona_relay_epochs_end_timestamp_seconds"
	Refused            = "doona_relay_refused"
	Findings           = "doona_relay_findings"
	Owners             = "doona_relay_owners"
	Sets               = "doona_relay_sets"
	Reloaded           = "doona_relay_last_reload_timestamp_seconds"
	ReloadFailed       = "doona_relay_reload_failed"
	Unscrubbed         = "doona_relay_unscrubbed"
	OwnerTaskLimit     = "doona_relay_owner_task_limit"
	OwnerTasks         = "doona_relay_owner_tasks"
	OwnerTasksRejected = "doona_relay_owner_tasks_rejected_total"
	OwnerLimited       = "doona_relay_owner_limited_total"
	ByTask             = "task"
	ByOwner            = "owner"
	ByReason           = "reason"
)

// Prefix is the common prefix of all metric names.
const Prefix = "doona_relay_"

var definitions = append([]service.Metric{
	service.Gauge(Ready, service.UnitCount, "1 while the relay accepts reports and hands out batches."),
	service.Gauge(Refusing, service.UnitCount,
		"Tasks that refuse all or most reports now, by problem; relay status names them.", "problem"),
	service.Gauge(RollbackDetected, service.UnitCount,
		"1 while a detected state rollback is not mended: the relay, or the epoch that the next hop names, has stopped.",
		"cause"),
	service.Gauge(Queue, service.UnitCount, "Reports waiting to be committed."),
	service.Gauge(InFlight, service.UnitCount, "Reports being read, opened or stored."),
	service.Gauge(Reserved, service.UnitBytes, "Memory reserved for reports in flight."),
	service.Gauge(Connections, service.UnitCount, "Open connections to the public address."),
	service.Counter(Overload,
		"Requests refused for lack of capacity: slow-down for one network, overloaded for the relay.", "problem"),
	service.Counter(Unconnected, "Connections closed at the connection limit."),
	service.Histogram(Commit, "Time to commit a group of reports."),
	service.Histogram(Seal, "Time to permute, sign and store a batch."),
	service.Histogram(Pull, "Time to transfer a batch from the upstream relay."),
	service.Gauge(Pulled, service.UnitTime,
		"Time when the upstream relay last answered a pull, or when none was due. At first the start; 0 at a first relay. "+
			"Of an owner's tasks, the oldest.", ByTask, ByOwner),
	service.Gauge(Asked, service.UnitTime,
		"Time when the next hop last asked for a batch; 0 if never since the start. Of an owner's tasks, the newest.",
		ByTask, ByOwner),
	service.Counter(StoreErrors, "Failed transactions: the disk is full or the database is unreachable."),
	service.Gauge(StoreUnreadable, service.UnitCount,
		"1 while the store cannot be read within 5 s: the gauges of tasks and owners then keep their last values."),
	service.Counter(Batches, "Batches made since the start; destroyed ones have no slots.", ByTask, ByOwner,
		"destroyed"),
	service.Gauge(Unconfirmed, service.UnitCount, "Sealed batches that the next hop has not confirmed.", ByTask,
		ByOwner),
	service.Gauge(EpochsEnd, service.UnitTime,
		"Time when the last epoch of the task or its stream ends and its keys are erased. Publish a new task before. "+
			"Of an owner's tasks, the next end.", ByTask, ByOwner),
	service.Gauge(Refused, service.UnitCount,
		"Reports and slots refused in erased epochs, rounded up to a power of two per epoch.", ByTask,
		ByOwner, ByReason),
	service.Gauge(Findings, service.UnitCount, "Batches of other parties that failed a check.",
		ByTask, ByOwner, ByReason),
	service.Gauge(Owners, service.UnitCount, "Approved owners, by state: active or suspended.", "state"),
	service.Gauge(Sets, service.UnitCount,
		"Sets, by state: served; incomplete, as a table is missing; or unpermuted, as permuting their open batches after a "+
			"day failed.", "state"),
	service.Gauge(Reloaded, service.UnitTime,
		"Time of the last successful reload of the configuration; 0 if none since the start."),
	service.Gauge(ReloadFailed, service.UnitCount,
		"1 while the last reload of the configuration has failed, and so changed nothing."),
	service.Gauge(Unscrubbed, service.UnitCount,
		"1 while the store's log cannot be emptied, and so still holds deleted rows and the order of writes."),
	service.Gauge(OwnerTaskLimit, service.UnitCount, "Task slots of all approved owners together."),
	service.Gauge(OwnerTasks, service.UnitCount,
		"Task slots in use: by tasks, where a stream counts as one, or by keys waiting for their task. Withdrawn tasks use "+
			"none.", "by"),
	service.Counter(OwnerTasksRejected,
		"Tasks and key requests of approved owners refused: all task slots were in use, or too many dummies."),
	service.Counter(OwnerLimited,
		"Reports refused because their owner was over a limit in relay.yaml: reports_per_second or bytes.", ByTask, ByOwner,
		"limit"),
}, service.ClockMetrics(Prefix)...)

// Definitions returns the definitions of a relay's metrics, without those of Go and the process.
func Definitions() []service.Metric { return definitions }

// Monitor is the log and the metrics of one relay. It is safe for concurrent use.
type Monitor struct {
	*service.Metrics
	Log     *slog.Logger
	Reserve *durable.Reserve // disk space kept for erasing and confirming

	failing atomic.Bool // the last transaction of reports, or one that erases or confirms, failed

	mu      sync.Mutex                          // guards tallies
	tallies map[store.EpochID]map[string]uint64 // refusals by epoch and reason that are not yet in the store
}

// New returns a monitor. Counters start at 0, so that they are shown before they first change.
func New(log *slog.Logger) *Monitor {
	m := &Monitor{Metrics: service.NewMetrics(definitions), Log: log, Reserve: &durable.Reserve{},
		tallies: map[store.EpochID]map[string]uint64{}}
	m.Add(Unconnected, 0)
	m.Add(StoreErrors, 0)
	m.Add(OwnerTasksRejected, 0)
	m.Set(Reloaded, 0)
	m.Set(ReloadFailed, 0)
	m.Set(Unscrubbed, 0)
	for _, name := range overloads {
		m.Add(Overload, 0, string(name))
	}
	return m
}

// Series names the metrics of a task. A task that the operator configured has series of its own. All tables of a set,
// and all tasks of an approved owner, share one series of each metric, because there may be many of them.
type Series struct {
	Task  string // first 8 hex digits of the id of the task, or of a set at position 0; "" if Owner is set
	Owner string // first 8 characters of the owner's key after "ed25519:", or "" if Task is set
}

// With returns the labels of a series with a further label.
func (s Series) With(more ...string) []string { return append([]string{s.Task, s.Owner}, more...) }

// Begin shows the counters of a series, also before they first change.
func (m *Monitor) Begin(s Series) {
	m.Add(Batches, 0, s.With(released)...)
	m.Add(Batches, 0, s.With(destroyed)...)
}

// End removes a series of which no task is left.
func (m *Monitor) End(s Series) {
	m.ForgetOf(map[string]string{ByTask: s.Task, ByOwner: s.Owner})
}

// Logged logs an error, unless the relay is stopping anyway.
func (m *Monitor) Logged(ctx context.Context, what string, err error) {
	if err != nil && ctx.Err() == nil {
		m.Failed(err)
		level := slog.LevelError
		if errors.As(err, new(*url.Error)) { // A peer does not answer: its operator must act.
			level = slog.LevelWarn
		}
		m.Log.Log(ctx, level, what, "error", err)
	}
}

// Failed records an error if it is the store's own, and says whether it is. The relay is not ready until it can write
// to the store again.
func (m *Monitor) Failed(err error) bool {
	if !store.Failed(err) {
		return false
	}
	m.StoreFailed()
	return true
}

// StoreFailed records that the store failed or had no space.
func (m *Monitor) StoreFailed() {
	m.failing.Store(true)
	m.Add(StoreErrors, 1)
}

// StoreWorks records that a write to the store succeeded.
func (m *Monitor) StoreWorks() { m.failing.Store(false) }

// Failing says whether the last write to the store failed.
func (m *Monitor) Failing() bool { return m.failing.Load() }

// WithReserve runs do, which erases or confirms, if need be with the space kept for it. If it used that space, the
// relay is not ready until a write beside the reserve succeeds, even if the reserve is whole again earlier.
func (m *Monitor) WithReserve(do func() error) error {
	whole := m.Reserve.Short() == nil
	err := m.Reserve.WithReserve(service.FullDisk, do)
	if whole && m.Reserve.Short() != nil {
		m.StoreFailed()
	}
	return err
}

// Short returns an error while the reserve is in use.
func (m *Monitor) Short() error { return m.Reserve.Short() }

// overloads are the problems that TurnAway may return.
var overloads = []problem.Name{problem.SlowDown, problem.Overloaded}

// TurnAway refuses a request for lack of capacity.
func (m *Monitor) TurnAway(name problem.Name) error {
	m.Add(Overload, 1, string(name))
	return service.TryLater(name, "")
}

// The values of the label "destroyed".
const (
	released  = "no"
	destroyed = "yes"
)

// BatchReleased counts a batch that has slots.
func (m *Monitor) BatchReleased(s Series) { m.Add(Batches, 1, s.With(released)...) }

// BatchDestroyed counts a batch that has no slots.
func (m *Monitor) BatchDestroyed(s Series) { m.Add(Batches, 1, s.With(destroyed)...) }

// Tally counts n refusals in an epoch for a reason.
func (m *Monitor) Tally(id store.EpochID, reason string, n int) {
	if n > 0 {
		m.AddTallies(id, map[string]uint64{reason: uint64(n)})
	}
}

// AddTallies counts refusals in an epoch, by reason.
func (m *Monitor) AddTallies(id store.EpochID, refused map[string]uint64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.tallies[id] == nil {
		m.tallies[id] = map[string]uint64{}
	}
	for reason, n := range refused {
		m.tallies[id][reason] += n
	}
}

// TakeTallies returns and removes the tallies of the wanted epochs. The relay stores them when an epoch is over and
// when it stops, not in between: a count that changes on disk, or in a metric, would reveal when a report came and what
// became of it.
func (m *Monitor) TakeTallies(want func(store.EpochID) bool) map[store.EpochID]map[string]uint64 {
	m.mu.Lock()
	defer m.mu.Unlock()
	out := map[store.EpochID]map[string]uint64{}
	for id, refused := range m.tallies {
		if want(id) {
			out[id] = refused
			delete(m.tallies, id)
		}
	}
	return out
}
