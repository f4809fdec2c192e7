package relay

import (
	"context"
	"errors"
	"math/bits"
	"net/http"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"
)

// Metric is the definition of one metric, from which the relay and its dashboard are made.
type Metric struct {
	Name   string // with its prefix
	Kind   string // "counter", "gauge" or "histogram"
	Unit   string // as Grafana calls it
	Help   string
	Labels []string
}

// The names of the metrics, without their prefix.
const (
	metricReady       = "ready"
	metricQueue       = "queue_depth"
	metricInFlight    = "reports_in_flight"
	metricReserved    = "reserved_bytes"
	metricConnections = "connections"
	metricOverload    = "overloaded_total"
	metricUnconnected = "connections_refused_total"
	metricCommit      = "commit_seconds"
	metricSeal        = "seal_seconds"
	metricPull        = "pull_seconds"
	metricPulled      = "last_answer_timestamp_seconds"
	metricStoreErrors = "store_errors_total"
	metricBatches     = "batches_total"
	metricUnconfirmed = "unconfirmed_batches"
	metricEpochsEnd   = "epochs_end_timestamp_seconds"
	metricRefused     = "refused"
	metricFindings    = "findings"
	metricPrefix      = "doona_relay_"
	kindCounter       = "counter"
	kindGauge         = "gauge"
	kindHistogram     = "histogram"
	unitCount         = "short"
	unitSeconds       = "s"
	unitBytes         = "bytes"
	unitTime          = "dateTimeFromNow"
	byTask            = "task"
	byReason          = "reason"
)

var definitions = []Metric{
	{metricReady, kindGauge, unitCount, "1 while reports are taken and batches handed out.", nil},
	{metricQueue, kindGauge, unitCount, "Reports that wait for their transaction.", nil},
	{metricInFlight, kindGauge, unitCount, "Reports being read, opened or stored.", nil},
	{metricReserved, kindGauge, unitBytes, "Memory reserved for reports in flight.", nil},
	{metricConnections, kindGauge, unitCount, "Open connections to the public address.", nil},
	{metricOverload, kindCounter, unitCount, "Requests refused for want of room: slow-down of one network, overloaded of the relay.", []string{"problem"}},
	{metricUnconnected, kindCounter, unitCount, "Connections closed for want of a place.", nil},
	{metricCommit, kindHistogram, unitSeconds, "Durable transactions that reports share.", nil},
	{metricSeal, kindHistogram, unitSeconds, "Permuting, signing and storing of batches.", nil},
	{metricPull, kindHistogram, unitSeconds, "Transfers of batches from the relay before.", nil},
	{metricPulled, kindGauge, unitTime, "When the relay before last answered a pull; 0 for never, and at a first relay.", []string{byTask}},
	{metricStoreErrors, kindCounter, unitCount, "Transactions that failed: the disk is full, or the database gone.", nil},
	{metricBatches, kindCounter, unitCount, "Batches made since the start; destroyed ones have no slots.", []string{byTask, "destroyed"}},
	{metricUnconfirmed, kindGauge, unitCount, "Sealed batches that the next hop has not confirmed.", []string{byTask}},
	{metricEpochsEnd, kindGauge, unitTime, "When the last epoch of the task ends, and with it its keys: a new task must be out before.", []string{byTask}},
	{metricRefused, kindGauge, unitCount, "Reports and slots refused in epochs that are erased, rounded up to a power of two per epoch.", []string{byTask, byReason}},
	{metricFindings, kindGauge, unitCount, "Batches of other parties that were not as they should be.", []string{byTask, byReason}},
}

// Metrics returns the definitions of all metrics of a relay, those of Go and the process apart.
func Metrics() []Metric {
	out := make([]Metric, len(definitions))
	for i, d := range definitions {
		d.Name = metricPrefix + d.Name
		out[i] = d
	}
	return out
}

// metrics is what an operator sees on the admin address. What could tell when a report came, or
// what became of it, is kept back until its epoch is erased: see [Relay.keepTallies].
type metrics struct {
	registry   *prometheus.Registry
	counters   map[string]*prometheus.CounterVec
	gauges     map[string]*prometheus.GaugeVec
	histograms map[string]prometheus.Histogram

	mu      sync.Mutex                    // guards tallies
	tallies map[epochID]map[string]uint64 // of refusals by reason, that are not in the store yet
}

func newMetrics(r *Relay) *metrics {
	m := &metrics{
		registry: prometheus.NewRegistry(), counters: map[string]*prometheus.CounterVec{}, gauges: map[string]*prometheus.GaugeVec{},
		histograms: map[string]prometheus.Histogram{}, tallies: map[epochID]map[string]uint64{},
	}
	for _, d := range definitions {
		name := metricPrefix + d.Name
		switch d.Kind {
		case kindCounter:
			m.counters[d.Name] = prometheus.NewCounterVec(prometheus.CounterOpts{Name: name, Help: d.Help}, d.Labels)
			m.registry.MustRegister(m.counters[d.Name])
		case kindGauge:
			m.gauges[d.Name] = prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: name, Help: d.Help}, d.Labels)
			m.registry.MustRegister(m.gauges[d.Name])
		case kindHistogram:
			m.histograms[d.Name] = prometheus.NewHistogram(prometheus.HistogramOpts{Name: name, Help: d.Help, Buckets: prometheus.ExponentialBuckets(0.0005, 4, 9)}) // to 33 s
			m.registry.MustRegister(m.histograms[d.Name])
		}
	}
	m.registry.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	m.begin(r)
	return m
}

// begin sets what is known from the start, so that it shows before it first changes.
func (m *metrics) begin(r *Relay) {
	m.add(metricUnconnected, 0)
	m.add(metricStoreErrors, 0)
	for _, name := range overloads {
		m.add(metricOverload, 0, string(name))
	}
	for _, s := range r.order {
		m.add(metricBatches, 0, s.name(), "no")
		m.add(metricBatches, 0, s.name(), "yes")
		m.set(metricPulled, 0, s.name())
		m.set(metricEpochsEnd, float64(s.Epochs.Start+s.Epochs.Count*s.Epochs.Length), s.name())
	}
}

func (m *metrics) add(name string, n float64, labels ...string) {
	m.counters[name].WithLabelValues(labels...).Add(n)
}

func (m *metrics) set(name string, value float64, labels ...string) {
	m.gauges[name].WithLabelValues(labels...).Set(value)
}

func (m *metrics) since(name string, begun time.Time) {
	m.histograms[name].Observe(time.Since(begun).Seconds())
}

// tally counts what was refused in an epoch for a reason.
func (m *metrics) tally(id epochID, reason string, n int) {
	if n > 0 {
		m.addTallies(id, map[string]uint64{reason: uint64(n)})
	}
}

func (m *metrics) addTallies(id epochID, refused map[string]uint64) {
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
func (m *metrics) takeTallies(want func(epochID) bool) map[epochID]map[string]uint64 {
	m.mu.Lock()
	defer m.mu.Unlock()
	out := map[epochID]map[string]uint64{}
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
func (r *Relay) keepTallies(ctx context.Context, want func(epochID) bool) (failed error) {
	for id, refused := range r.metrics.takeTallies(want) {
		if err := r.store.tally(ctx, id, refused); err != nil {
			r.metrics.addTallies(id, refused)
			failed = errors.Join(failed, err)
		}
	}
	return failed
}

// coarse rounds a count up to a power of two: an exact one of a small task would tell of single
// clients.
func coarse(n uint64) uint64 {
	if n <= 1 {
		return n
	}
	return 1 << bits.Len64(n-1)
}

// made counts a batch.
func (m *metrics) made(s *served, destroyed bool) {
	m.add(metricBatches, 1, s.name(), map[bool]string{false: "no", true: "yes"}[destroyed])
}

// look sets the gauges to what is now. What the store cannot tell stays as it was.
func (m *metrics) look(ctx context.Context, r *Relay) {
	left := r.admission.left()
	m.set(metricReady, map[bool]float64{true: 1}[r.ready.Load() && !r.failing.Load()])
	m.set(metricQueue, float64(len(r.queue)))
	m.set(metricInFlight, float64(r.cfg.MaxConcurrent-left.places))
	m.set(metricReserved, float64(int64(r.cfg.MaxMemory)-left.bytes))
	m.set(metricConnections, float64(r.connections.count()))
	status, err := r.Status(ctx)
	if err != nil {
		m.add(metricStoreErrors, 1)
		return
	}
	m.gauges[metricRefused].Reset()
	m.gauges[metricFindings].Reset()
	for i, t := range status.Tasks {
		name := r.order[i].name()
		waiting := uint64(0)
		for _, e := range t.Epochs {
			waiting += e.Batches - e.Confirmed
			for reason, n := range e.Refused {
				m.gauges[metricRefused].WithLabelValues(name, reason).Add(float64(n))
			}
		}
		m.set(metricUnconfirmed, float64(waiting), name)
		for _, f := range t.Findings {
			m.gauges[metricFindings].WithLabelValues(name, f.Reason).Inc()
		}
	}
}

func (m *metrics) handler() http.Handler {
	return promhttp.HandlerFor(m.registry, promhttp.HandlerOpts{})
}
