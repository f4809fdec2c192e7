package relay

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/doona-dp/doona/internal/service"
	"github.com/doona-dp/doona/relay/internal/store"
)

// The names of the metrics and of their labels.
const (
	metricReady       = "doona_relay_ready"
	metricSetBack     = "doona_relay_set_back"
	metricQueue       = "doona_relay_queue_depth"
	metricInFlight    = "doona_relay_reports_in_flight"
	metricReserved    = "doona_relay_reserved_bytes"
	metricConnections = "doona_relay_connections"
	metricOverload    = "doona_relay_overloaded_total"
	metricUnconnected = "doona_relay_connections_refused_total"
	metricCommit      = "doona_relay_commit_seconds"
	metricSeal        = "doona_relay_seal_seconds"
	metricPull        = "doona_relay_pull_seconds"
	metricPulled      = "doona_relay_last_answer_timestamp_seconds"
	metricAsked       = "doona_relay_last_asked_timestamp_seconds"
	metricStoreErrors = "doona_relay_store_errors_total"
	metricBatches     = "doona_relay_batches_total"
	metricUnconfirmed = "doona_relay_unconfirmed_batches"
	metricEpochsEnd   = "doona_relay_epochs_end_timestamp_seconds"
	metricRefused     = "doona_relay_refused"
	metricFindings    = "doona_relay_findings"
	metricPlaces      = "doona_relay_places"
	metricTaken       = "doona_relay_places_taken"
	metricNoPlace     = "doona_relay_no_place_total"
	byTask            = "task"
	byReason          = "reason"
)

// prefix opens the names of all metrics.
const prefix = "doona_relay_"

var definitions = append([]service.Metric{
	service.Gauge(metricReady, service.UnitCount, "1 while reports are taken and batches handed out."),
	service.Gauge(metricSetBack, service.UnitCount,
		"1 where something was set back: then nothing is taken, made or handed out.", "cause"),
	service.Gauge(metricQueue, service.UnitCount, "Reports that wait for their transaction."),
	service.Gauge(metricInFlight, service.UnitCount, "Reports being read, opened or stored."),
	service.Gauge(metricReserved, service.UnitBytes, "Memory reserved for reports in flight."),
	service.Gauge(metricConnections, service.UnitCount, "Open connections to the public address."),
	service.Counter(metricOverload,
		"Requests refused for want of room: slow-down of one network, overloaded of the relay.", "problem"),
	service.Counter(metricUnconnected, "Connections closed for want of a place."),
	service.Histogram(metricCommit, "Durable transactions that reports share."),
	service.Histogram(metricSeal, "Permuting, signing and storing of batches."),
	service.Histogram(metricPull, "Transfers of batches from the relay before."),
	service.Gauge(metricPulled, service.UnitTime,
		"When the relay before last answered a pull, or none was due; at a start, when that was. 0 at a first relay.",
		byTask),
	service.Gauge(metricAsked, service.UnitTime,
		"When the next hop last asked for a batch; 0 if it has not since the start.", byTask),
	service.Counter(metricStoreErrors, "Transactions that failed: the disk is full, or the database gone."),
	service.Counter(metricBatches, "Batches made since the start; destroyed ones have no slots.", byTask, "destroyed"),
	service.Gauge(metricUnconfirmed, service.UnitCount, "Sealed batches that the next hop has not confirmed.", byTask),
	service.Gauge(metricEpochsEnd, service.UnitTime,
		"When the last epoch of the task, or of its stream, ends, and with it its keys: a new task must be out before.",
		byTask),
	service.Gauge(metricRefused, service.UnitCount,
		"Reports and slots refused in epochs that are erased, rounded up to a power of two per epoch.", byTask,
		byReason),
	service.Gauge(metricFindings, service.UnitCount, "Batches of other parties that were not as they should be.",
		byTask, byReason),
	service.Gauge(metricPlaces, service.UnitCount, "Tasks for which owners are approved, of all owners together."),
	service.Gauge(metricTaken, service.UnitCount,
		"Of these places, those of tasks, a stream being one, and of keys that wait for their task.", "by"),
	service.Counter(metricNoPlace, "Tasks of approved owners, or keys for one, refused as their places were taken."),
}, service.ClockMetrics(prefix)...)

// Metrics returns the definitions of all metrics of a relay, those of Go and the process apart.
func Metrics() []service.Metric { return definitions }

// metrics is what an operator sees on the admin address. What could tell when a report came, or
// what became of it, is kept back until its epoch is erased: see [Relay.keepTallies].
type metrics struct {
	*service.Metrics

	mu      sync.Mutex                          // guards tallies
	tallies map[store.EpochID]map[string]uint64 // of refusals by reason, that are not in the store yet
}

func newMetrics(r *Relay) *metrics {
	m := &metrics{Metrics: service.NewMetrics(definitions), tallies: map[store.EpochID]map[string]uint64{}}
	m.begin(r)
	return m
}

// begin sets what is known from the start, so that it shows before it first changes.
func (m *metrics) begin(r *Relay) {
	m.Add(metricUnconnected, 0)
	m.Add(metricStoreErrors, 0)
	m.Add(metricNoPlace, 0)
	for _, name := range overloads {
		m.Add(metricOverload, 0, string(name))
	}
	for _, s := range r.hosted().order {
		m.beginTask(s)
	}
	for _, l := range r.hosted().streams {
		m.endsLater(l)
	}
}

func (m *metrics) beginTask(s *hostedTask) {
	m.Add(metricBatches, 0, s.name(), "no")
	m.Add(metricBatches, 0, s.name(), "yes")
	m.Set(metricPulled, 0, s.name())
	if s.hop > 0 {
		m.Set(metricPulled, float64(time.Now().Unix()), s.name())
	}
	m.Set(metricAsked, 0, s.name())
	m.Set(metricEpochsEnd, float64(s.Epochs.Over()), s.name())
}

// endsLater says of all tasks of a stream when the newest one ends.
func (m *metrics) endsLater(l *stream) {
	tasks := l.Tasks()
	for _, t := range tasks {
		m.Set(metricEpochsEnd, float64(tasks[len(tasks)-1].Epochs.Over()), t.ID.String()[:8])
	}
}

// tally counts what was refused in an epoch for a reason.
func (m *metrics) tally(id store.EpochID, reason string, n int) {
	if n > 0 {
		m.addTallies(id, map[string]uint64{reason: uint64(n)})
	}
}

func (m *metrics) addTallies(id store.EpochID, refused map[string]uint64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.tallies[id] == nil {
		m.tallies[id] = map[string]uint64{}
	}
	for reason, n := range refused {
		m.tallies[id][reason] += n
	}
}

// takeTallies returns the tallies of the wanted epochs, and forgets them.
func (m *metrics) takeTallies(want func(store.EpochID) bool) map[store.EpochID]map[string]uint64 {
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

// keepTallies moves the tallies of the wanted epochs to the store. That is done when an epoch is over
// and when the relay stops, and not in between: a count that moves on the disk, as on a screen, would
// tell when a report came and how it fared.
func (r *Relay) keepTallies(ctx context.Context, want func(store.EpochID) bool) (failed error) {
	for id, refused := range r.metrics.takeTallies(want) {
		if err := r.store.Tally(ctx, id, refused); err != nil {
			r.metrics.addTallies(id, refused)
			failed = errors.Join(failed, err)
		}
	}
	return failed
}

// made counts a batch.
func (m *metrics) made(s *hostedTask, destroyed bool) {
	m.Add(metricBatches, 1, s.name(), map[bool]string{false: "no", true: "yes"}[destroyed])
}

// look sets the gauges to what is now. What the store cannot tell stays as it was.
func (m *metrics) look(ctx context.Context, r *Relay) {
	m.Set(metricReady, service.Boolean(r.isReady(ctx) == nil))
	left, back := r.admission.left(), r.store.SetBack()
	for _, cause := range store.Causes() {
		m.Set(metricSetBack, service.Boolean(back != nil && back.Cause == cause), string(cause))
	}
	m.Set(metricQueue, float64(len(r.queue)))
	m.Set(metricInFlight, float64(r.cfg.MaxConcurrent-left.places))
	m.Set(metricReserved, float64(int64(r.cfg.MaxMemory)-left.bytes))
	m.Set(metricConnections, float64(r.connections.Count()))
	m.SetClock(prefix, r.clock.Read().Doubt != "", r.clock.Offsets())
	status, err := r.Status(ctx)
	if err != nil {
		m.Add(metricStoreErrors, 1)
		return
	}
	m.setPlaces(status.Owners)
	m.Forget(metricRefused)
	m.Forget(metricFindings)
	for _, s := range r.hosted().order {
		for _, why := range reasons {
			m.Set(metricFindings, 0, s.name(), string(why)) // so that a first one is an increase
		}
	}
	for _, t := range status.Tasks {
		name := t.ID[:8]
		waiting := uint64(0)
		for _, e := range t.Epochs {
			waiting += e.Batches - e.Confirmed
			for reason, n := range e.Refused {
				m.Gauge(metricRefused, name, reason).Add(float64(n))
			}
		}
		m.Set(metricUnconfirmed, float64(waiting), name)
		for _, f := range t.Findings {
			m.Gauge(metricFindings, name, string(f.Reason)).Add(float64(f.Batches()))
		}
	}
}

// setPlaces says what is taken of what owners are approved for: of all of them, as an owner's name is nobody's affair
// who may see metrics.
func (m *metrics) setPlaces(owners []OwnerStatus) {
	var places, tasks, asked int
	for _, o := range owners {
		places, tasks, asked = places+o.Places, tasks+o.Tasks, asked+o.Asked
	}
	m.Set(metricPlaces, float64(places))
	m.Set(metricTaken, float64(tasks), "tasks")
	m.Set(metricTaken, float64(asked), "keys")
}
