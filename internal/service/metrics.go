package service

import (
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/doona-dp/doona/internal/display"
)

// Metric defines one metric, for the program and for its dashboard.
type Metric struct {
	Name   string // with the program's prefix
	Kind   string
	Unit   string // the unit's name in Grafana
	Help   string
	Labels []string
}

// The kinds and units of metrics.
const (
	KindCounter   = "counter"
	KindGauge     = "gauge"
	KindHistogram = "histogram"

	UnitCount   = "short"
	UnitSeconds = "s"
	UnitBytes   = "bytes"
	UnitTime    = "dateTimeFromNow"
)

// Counter defines a counter.
func Counter(name, help string, labels ...string) Metric {
	return Metric{name, KindCounter, UnitCount, help, labels}
}

// Gauge defines a gauge.
func Gauge(name, unit, help string, labels ...string) Metric {
	return Metric{name, KindGauge, unit, help, labels}
}

// Histogram defines a histogram of durations in seconds, up to 33 s.
func Histogram(name, help string) Metric {
	return Metric{name, KindHistogram, UnitSeconds, help, nil}
}

// Metrics holds a program's metrics by name, and those of Go and the process. It is safe for concurrent use.
type Metrics struct {
	registry   *prometheus.Registry
	counters   map[string]*prometheus.CounterVec
	gauges     map[string]*prometheus.GaugeVec
	histograms map[string]prometheus.Histogram
}

// NewMetrics creates the defined metrics.
func NewMetrics(definitions []Metric) *Metrics {
	m := &Metrics{
		registry: prometheus.NewRegistry(), counters: map[string]*prometheus.CounterVec{},
		gauges:     map[string]*prometheus.GaugeVec{},
		histograms: map[string]prometheus.Histogram{},
	}
	for _, d := range definitions {
		switch d.Kind {
		case KindCounter:
			m.counters[d.Name] = prometheus.NewCounterVec(prometheus.CounterOpts{Name: d.Name, Help: d.Help}, d.Labels)
			m.registry.MustRegister(m.counters[d.Name])
		case KindGauge:
			m.gauges[d.Name] = prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: d.Name, Help: d.Help}, d.Labels)
			m.registry.MustRegister(m.gauges[d.Name])
		case KindHistogram:
			m.histograms[d.Name] = prometheus.NewHistogram(prometheus.HistogramOpts{Name: d.Name, Help: d.Help,
				Buckets: prometheus.ExponentialBuckets(0.0005, 4, 9)})
			m.registry.MustRegister(m.histograms[d.Name])
		}
	}
	m.registry.MustRegister(collectors.NewGoCollector(),
		collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	return m
}

// Add adds n to a counter. Adding 0 makes the counter visible before its first event.
func (m *Metrics) Add(name string, n float64, labels ...string) {
	m.counters[name].WithLabelValues(plain(labels)...).Add(n)
}

// plain makes label values safe to show. A task owner chose some of them, for example the address of another party.
func plain(labels []string) []string {
	out := make([]string, len(labels))
	for i, text := range labels {
		out[i] = display.Plain(text)
	}
	return out
}

// Gauge returns a gauge.
func (m *Metrics) Gauge(name string, labels ...string) prometheus.Gauge {
	return m.gauges[name].WithLabelValues(plain(labels)...)
}

// Set sets a gauge.
func (m *Metrics) Set(name string, value float64, labels ...string) {
	m.Gauge(name, labels...).Set(value)
}

// Forget removes the values of a gauge for all labels.
func (m *Metrics) Forget(name string) { m.gauges[name].Reset() }

// ForgetOf removes the counters and gauges that have these labels with these values.
func (m *Metrics) ForgetOf(labels map[string]string) {
	for _, g := range m.gauges {
		g.DeletePartialMatch(labels)
	}
	for _, c := range m.counters {
		c.DeletePartialMatch(labels)
	}
}

// Since records the time since start in a histogram.
func (m *Metrics) Since(name string, start time.Time) {
	m.histograms[name].Observe(time.Since(start).Seconds())
}

// Handler returns the handler for Prometheus.
func (m *Metrics) Handler() http.Handler {
	return promhttp.HandlerFor(m.registry, promhttp.HandlerOpts{})
}

// ClockMetrics returns the definitions of the metrics of a program's clock. prefix is the program's.
func ClockMetrics(prefix string) []Metric {
	return []Metric{
		Gauge(prefix+metricDoubt, UnitCount,
			"1 while the time is in doubt and no report is accepted; the log has the reason."),
		Gauge(prefix+metricOffset, UnitSeconds,
			"How far a peer's signed clock is ahead of this machine's.", "peer"),
	}
}

const (
	metricDoubt  = "clock_in_doubt"
	metricOffset = "clock_offset_seconds"
)

// SetClock sets the metrics of [ClockMetrics]. doubt is why the program doubts its time, or "". offsets has how far
// other parties' clocks are ahead.
func (m *Metrics) SetClock(prefix, doubt string, offsets map[string]time.Duration) {
	m.Set(prefix+metricDoubt, Flag(doubt != "").Value())
	m.Forget(prefix + metricOffset)
	for peer, by := range offsets {
		m.Set(prefix+metricOffset, by.Seconds(), peer)
	}
}

// Flag is a condition that a gauge shows as 1 or 0.
type Flag bool

// Value returns 1 if the condition holds, else 0.
func (f Flag) Value() float64 { return map[Flag]float64{true: 1}[f] }
