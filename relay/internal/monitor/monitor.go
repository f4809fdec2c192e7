// Package monitor is what the operator of a relay sees and hears of it: its log, its metrics, and whether its store
// fails or its disk is full. All stages of the relay write to one [Monitor]; package relay shows it on the admin
// address.
//
// What could tell when a report came, or what became of it, is kept back until its epoch is erased: see
// [Monitor.TakeTallies].
package monitor

import (
	"context"
	"errors"
	"log/slog"
	"net/url"
	"sync"
	"sync/atomic"
	"time"

	"github.com/doona-dp/doona/internal/durable"
	"github.com/doona-dp/doona/internal/service"
	"github.com/doona-dp/doona/relay/internal/store"
	"github.com/doona-dp/doona/wire/problem"
)

// The names of the metrics and of their labels.
const (
	Ready       = "doona_relay_ready"
	SetBack     = "doona_relay_set_back"
	Queue       = "doona_relay_queue_depth"
	InFlight    = "doona_relay_reports_in_flight"
	Reserved    = "doona_relay_reserved_bytes"
	Connections = "doona_relay_connections"
	Overload    = "doona_relay_overloaded_total"
	Unconnected = "doona_relay_connections_refused_total"
	Commit      = "doona_relay_commit_seconds"
	Seal        = "doona_relay_seal_seconds"
	Pull        = "doona_relay_pull_seconds"
	Pulled      = "doona_relay_last_answer_timestamp_seconds"
	Asked       = "doona_relay_last_asked_timestamp_seconds"
	StoreErrors = "doona_relay_store_errors_total"
	Batches     = "doona_relay_batches_total"
	Unconfirmed = "doona_relay_unconfirmed_batches"
	EpochsEnd   = "doona_relay_epochs_end_timestamp_seconds"
	Refused     = "doona_relay_refused"
	Findings    = "doona_relay_findings"
	Places      = "doona_relay_places"
	Taken       = "doona_relay_places_taken"
	NoPlace     = "doona_relay_no_place_total"
	ByTask      = "task"
	ByReason    = "reason"
)

// Prefix opens the names of all metrics.
const Prefix = "doona_relay_"

var definitions = append([]service.Metric{
	service.Gauge(Ready, service.UnitCount, "1 while reports are taken and batches handed out."),
	service.Gauge(SetBack, service.UnitCount,
		"1 where something was set back: then nothing is taken, made or handed out.", "cause"),
	service.Gauge(Queue, service.UnitCount, "Reports that wait for their transaction."),
	service.Gauge(InFlight, service.UnitCount, "Reports being read, opened or stored."),
	service.Gauge(Reserved, service.UnitBytes, "Memory reserved for reports in flight."),
	service.Gauge(Connections, service.UnitCount, "Open connections to the public address."),
	service.Counter(Overload,
		"Requests refused for want of room: slow-down of one network, overloaded of the relay.", "problem"),
	service.Counter(Unconnected, "Connections closed for want of a place."),
	service.Histogram(Commit, "Durable transactions that reports share."),
	service.Histogram(Seal, "Permuting, signing and storing of batches."),
	service.Histogram(Pull, "Transfers of batches from the relay before."),
	service.Gauge(Pulled, service.UnitTime,
		"When the relay before last answered a pull, or none was due; at a start, when that was. 0 at a first relay.",
		ByTask),
	service.Gauge(Asked, service.UnitTime,
		"When the next hop last asked for a batch; 0 if it has not since the start.", ByTask),
	service.Counter(StoreErrors, "Transactions that failed: the disk is full, or the database gone."),
	service.Counter(Batches, "Batches made since the start; destroyed ones have no slots.", ByTask, "destroyed"),
	service.Gauge(Unconfirmed, service.UnitCount, "Sealed batches that the next hop has not confirmed.", ByTask),
	service.Gauge(EpochsEnd, service.UnitTime,
		"When the last epoch of the task, or of its stream, ends, and with it its keys: a new task must be out before.",
		ByTask),
	service.Gauge(Refused, service.UnitCount,
		"Reports and slots refused in epochs that are erased, rounded up to a power of two per epoch.", ByTask,
		ByReason),
	service.Gauge(Findings, service.UnitCount, "Batches of other parties that were not as they should be.",
		ByTask, ByReason),
	service.Gauge(Places, service.UnitCount, "Tasks for which owners are approved, of all owners together."),
	service.Gauge(Taken, service.UnitCount,
		"Of these places, those of tasks, a stream being one, and of keys that wait for their task.", "by"),
	service.Counter(NoPlace, "Tasks of approved owners, or keys for one, refused as their places were taken."),
}, service.ClockMetrics(Prefix)...)

// Definitions returns those of all metrics of a relay, those of Go and the process apart.
func Definitions() []service.Metric { return definitions }

// Monitor is the log and the metrics of one relay. It is safe for concurrent use.
type Monitor struct {
	*service.Metrics
	Log     *slog.Logger
	Reserve *durable.Reserve // the room that is kept for erasing and confirming

	failing atomic.Bool // the last transaction of reports, or of what erases or confirms, failed

	mu      sync.Mutex                          // guards tallies
	tallies map[store.EpochID]map[string]uint64 // of refusals by reason, that are not in the store yet
}

// New returns a monitor on which all that is known from the start shows before it first changes.
func New(log *slog.Logger) *Monitor {
	m := &Monitor{Metrics: service.NewMetrics(definitions), Log: log, Reserve: &durable.Reserve{},
		tallies: map[store.EpochID]map[string]uint64{}}
	m.Add(Unconnected, 0)
	m.Add(StoreErrors, 0)
	m.Add(NoPlace, 0)
	for _, name := range overloads {
		m.Add(Overload, 0, string(name))
	}
	return m
}

// BeginTask shows a task of which this relay is at a hop.
func (m *Monitor) BeginTask(name string, hop int, over uint64) {
	m.Add(Batches, 0, name, released)
	m.Add(Batches, 0, name, destroyed)
	m.Set(Pulled, 0, name)
	if hop > 0 {
		m.Set(Pulled, float64(time.Now().Unix()), name)
	}
	m.Set(Asked, 0, name)
	m.Set(EpochsEnd, float64(over), name)
}

// Logged logs an error, unless the relay is stopping anyway.
func (m *Monitor) Logged(ctx context.Context, what string, err error) {
	if err != nil && ctx.Err() == nil {
		m.Failed(err)
		level := slog.LevelError
		if errors.As(err, new(*url.Error)) { // A neighbour is away: for its operator to mend.
			level = slog.LevelWarn
		}
		m.Log.Log(ctx, level, what, "error", err)
	}
}

// Failed takes note of an error that is the store's own: the relay is not ready until the store can be written to
// again. It says whether it is one.
func (m *Monitor) Failed(err error) bool {
	if !store.Failed(err) {
		return false
	}
	m.StoreFailed()
	return true
}

// StoreFailed takes note that the store failed, or had no room.
func (m *Monitor) StoreFailed() {
	m.failing.Store(true)
	m.Add(StoreErrors, 1)
}

// StoreWorks takes note that the store could be written to.
func (m *Monitor) StoreWorks() { m.failing.Store(false) }

// Failing says whether the store failed when it was last written to.
func (m *Monitor) Failing() bool { return m.failing.Load() }

// WithReserve does what erases or confirms, if need be with the room that is kept for it. That may be there again
// before anybody has looked; all the same the relay is not ready until something can be written beside it.
func (m *Monitor) WithReserve(do func() error) error {
	whole := m.Reserve.Short() == nil
	err := m.Reserve.WithReserve(service.FullDisk, do)
	if whole && m.Reserve.Short() != nil {
		m.StoreFailed()
	}
	return err
}

// Short is an error while the room that is kept is in use.
func (m *Monitor) Short() error { return m.Reserve.Short() }

// overloads are the problems that TurnAway answers with.
var overloads = []problem.Name{problem.SlowDown, problem.Overloaded}

// TurnAway refuses a request for want of room.
func (m *Monitor) TurnAway(name problem.Name) error {
	m.Add(Overload, 1, string(name))
	return service.TryLater(name, "")
}

// AskedNow takes note that the next hop of a task asked for a batch.
func (m *Monitor) AskedNow(name string) { m.Set(Asked, float64(time.Now().Unix()), name) }

// PulledNow takes note that the upstream relay of a task answered, or was not to be asked.
func (m *Monitor) PulledNow(name string) { m.Set(Pulled, float64(time.Now().Unix()), name) }

// The values of the label "destroyed".
const (
	released  = "no"
	destroyed = "yes"
)

// BatchReleased counts a batch of a task that has slots.
func (m *Monitor) BatchReleased(name string) { m.Add(Batches, 1, name, released) }

// BatchDestroyed counts a batch of a task that has none.
func (m *Monitor) BatchDestroyed(name string) { m.Add(Batches, 1, name, destroyed) }

// Tally counts what was refused in an epoch for a reason.
func (m *Monitor) Tally(id store.EpochID, reason string, n int) {
	if n > 0 {
		m.AddTallies(id, map[string]uint64{reason: uint64(n)})
	}
}

// AddTallies counts what was refused in an epoch, by reason.
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

// TakeTallies returns the tallies of the wanted epochs, and forgets them. They are for the store, when an epoch is over
// and when the relay stops, and not in between: a count that moves on the disk, as on a screen, would tell when a
// report came and how it fared.
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
