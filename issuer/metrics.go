package issuer

import (
	"context"

	"github.com/doona-dp/doona/internal/service"
)

// The names of the metrics.
const (
	metricReady       = "doona_issuer_ready"
	metricInFlight    = "doona_issuer_requests_in_flight"
	metricOverloaded  = "doona_issuer_overloaded_total"
	metricStoreErrors = "doona_issuer_store_errors_total"
	metricEpochsEnd   = "doona_issuer_epochs_end_timestamp_seconds"
)

// definitions has no count of tokens or requests: what a monitoring system keeps for long would tell
// when tokens were asked for.
var definitions = append([]service.Metric{
	service.Gauge(metricReady, service.UnitCount, "1 while tokens are issued."),
	service.Gauge(metricInFlight, service.UnitCount, "Requests being counted and signed."),
	service.Counter(metricOverloaded, "Requests refused for want of room."),
	service.Counter(metricStoreErrors, "Transactions that failed: the disk is full."),
	service.Gauge(metricEpochsEnd, service.UnitTime,
		"When the last epoch of the task ends, and with it its keys: a new task must be out before.", "task"),
}, service.ClockMetrics(prefix)...)

// prefix opens the names of all metrics.
const prefix = "doona_issuer_"

// Metrics returns the definitions of all metrics of an issuer, those of Go and the process apart.
func Metrics() []service.Metric { return definitions }

func newMetrics(tasks []*served) *service.Metrics {
	m := service.NewMetrics(definitions)
	m.Add(metricOverloaded, 0)
	m.Add(metricStoreErrors, 0)
	for _, s := range tasks {
		m.Set(metricEpochsEnd, float64(s.Epochs.Over()), s.name())
	}
	return m
}

// look sets the gauges to what is now.
func (i *Issuer) look(context.Context) {
	i.metrics.Set(metricReady, service.Boolean(i.isReady() == nil))
	i.metrics.SetClock(prefix, i.clock.Read().Doubt != "", i.clock.Offsets())
	i.metrics.Set(metricInFlight, float64(len(i.busy)))
}
