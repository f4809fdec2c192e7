package issuer

import (
	"context"

	"github.com/doona-dp/doona/internal/service"
	"github.com/doona-dp/doona/wire/problem"
)

// The names of the metrics.
const (
	metricReady       = "doona_issuer_ready"
	metricInFlight    = "doona_issuer_requests_in_flight"
	metricConnections = "doona_issuer_connections"
	metricOverloaded  = "doona_issuer_overloaded_total"
	metricUnconnected = "doona_issuer_connections_refused_total"
	metricStoreErrors = "doona_issuer_store_errors_total"
	metricStuck       = "doona_issuer_stream_stuck"
	metricEpochsEnd   = "doona_issuer_epochs_end_timestamp_seconds"
)

// definitions are the issuer's metrics. None counts tokens or requests: the history of such a metric would reveal when
// clients asked for tokens.
var definitions = append([]service.Metric{
	service.Gauge(metricReady, service.UnitCount, "1 while the issuer issues tokens."),
	service.Gauge(metricInFlight, service.UnitCount, "Requests being counted and signed."),
	service.Gauge(metricConnections, service.UnitCount, "Open connections to the public address."),
	service.Counter(metricOverloaded,
		"Requests refused for lack of capacity: slow-down for one client, overloaded for the issuer.", "problem"),
	service.Counter(metricUnconnected, "Connections closed at the connection limit."),
	service.Counter(metricStoreErrors, "Failed transactions: the disk is full."),
	service.Gauge(metricStuck, service.UnitCount,
		"1 while the stream that begins with the task cannot be read, or continues without this issuer.", "task"),
	service.Gauge(metricEpochsEnd, service.UnitTime,
		"End of the last epoch of the task, or of its stream. Its keys end then: sign a new task before.",
		"task"),
}, service.ClockMetrics(prefix)...)

const prefix = "doona_issuer_"

// Metrics returns the definitions of an issuer's metrics, without those of Go and the process.
func Metrics() []service.Metric { return definitions }

func newMetrics(i *Issuer) *service.Metrics {
	m := service.NewMetrics(definitions)
	for _, name := range []problem.Name{problem.SlowDown, problem.Overloaded} {
		m.Add(metricOverloaded, 0, string(name))
	}
	m.Add(metricUnconnected, 0)
	m.Add(metricStoreErrors, 0)
	for _, s := range i.hosted().order {
		m.Set(metricEpochsEnd, float64(s.Epochs.Over()), s.name())
	}
	for _, l := range i.streams {
		m.Set(metricStuck, 0, l.served[0].name())
		setStreamEnd(m, l)
	}
	return m
}

// setStreamEnd sets the metric of the last epoch's end for all tasks of a stream, to the end of the stream's latest
// task.
func setStreamEnd(m *service.Metrics, l *hostedStream) {
	for _, s := range l.served {
		m.Set(metricEpochsEnd, float64(l.served[len(l.served)-1].Epochs.Over()), s.name())
	}
}

func (i *Issuer) setGauges(context.Context) {
	i.metrics.Set(metricReady, service.Flag(i.isReady() == nil).Value())
	i.metrics.SetClock(prefix, string(i.clock.Read().Doubt), i.clock.Offsets())
	i.metrics.Set(metricInFlight, float64(i.requestLimit.inFlight()))
	i.metrics.Set(metricConnections, float64(i.opened.Count()))
}
