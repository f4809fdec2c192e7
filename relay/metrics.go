package relay

import (
	"net/http"
	"sync"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"
)

// metrics is what an operator sees on the admin address. What could tell when a report came, or
// what became of it, is kept back until its epoch is erased: see tally.
type metrics struct {
	registry *prometheus.Registry
	commit   prometheus.Histogram
	seal     prometheus.Histogram
	pull     prometheus.Histogram
	batches  *prometheus.CounterVec
	refused  *prometheus.CounterVec
	findings *prometheus.GaugeVec
	overload *prometheus.CounterVec

	unconnected prometheus.Counter

	tasks   map[[32]byte]*served
	mu      sync.Mutex // guards tallies
	tallies map[epochID]map[string]int
}

func newMetrics(r *Relay) *metrics {
	const space = "doona_relay"
	histogram := func(name, help string) prometheus.Histogram {
		return prometheus.NewHistogram(prometheus.HistogramOpts{Namespace: space, Name: name, Help: help,
			Buckets: prometheus.ExponentialBuckets(0.0005, 4, 9)}) // to 33 s
	}
	vec := func(name, help string, labels ...string) *prometheus.CounterVec {
		return prometheus.NewCounterVec(prometheus.CounterOpts{Namespace: space, Name: name, Help: help}, labels)
	}
	m := &metrics{
		registry:    prometheus.NewRegistry(),
		commit:      histogram("commit_seconds", "Durable transactions that reports share."),
		seal:        histogram("seal_seconds", "Permuting, signing and storing of batches."),
		pull:        histogram("pull_seconds", "Transfers of batches from the relay before."),
		batches:     vec("batches_total", "Batches made since the start; destroyed ones have no slots.", "task", "destroyed"),
		refused:     vec("refused_total", "Reports and slots refused since the start, counted when their epoch is erased.", "task", "reason"),
		findings:    prometheus.NewGaugeVec(prometheus.GaugeOpts{Namespace: space, Name: "findings", Help: "Batches of other parties that were not as they should be."}, []string{"task", "reason"}),
		overload:    vec("overloaded_total", "Requests refused for want of room: slow-down of one network, overloaded of the relay.", "problem"),
		unconnected: prometheus.NewCounter(prometheus.CounterOpts{Namespace: space, Name: "connections_refused_total", Help: "Connections closed for want of a place."}),
		tasks:       r.tasks,
		tallies:     map[epochID]map[string]int{},
	}
	queue := prometheus.NewGaugeFunc(prometheus.GaugeOpts{Namespace: space, Name: "queue_depth", Help: "Reports that wait for their transaction."},
		func() float64 { return float64(len(r.queue)) })
	m.registry.MustRegister(m.commit, m.seal, m.pull, m.batches, m.refused, m.findings, m.overload, m.unconnected, queue,
		collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	return m
}

// tally counts a reason of an epoch, hidden until reveal: while an epoch runs, a counter that
// moves tells when a report came and how it fared. Counts do not outlive the process.
func (m *metrics) tally(id epochID, reason string, n int) {
	if n == 0 {
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.tallies[id] == nil {
		m.tallies[id] = map[string]int{}
	}
	m.tallies[id][reason] += n
}

// reveal adds an epoch's tallies to the metrics.
func (m *metrics) reveal(id epochID) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for reason, n := range m.tallies[id] {
		m.refused.WithLabelValues(m.tasks[id.task].name(), reason).Add(float64(n))
	}
	delete(m.tallies, id)
}

// made counts a batch.
func (m *metrics) made(s *served, destroyed bool) {
	label := map[bool]string{false: "no", true: "yes"}[destroyed]
	m.batches.WithLabelValues(s.name(), label).Inc()
}

// show sets the number of findings of each kind.
func (m *metrics) show(all []finding) {
	m.findings.Reset()
	for _, f := range all {
		if s := m.tasks[f.id.task]; s != nil {
			m.findings.WithLabelValues(s.name(), f.reason).Inc()
		}
	}
}

func (m *metrics) handler() http.Handler {
	return promhttp.HandlerFor(m.registry, promhttp.HandlerOpts{})
}
