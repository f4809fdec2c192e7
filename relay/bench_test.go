package relay_test

import (
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/doona-dp/doona/internal/testing/relaytest"
	"github.com/doona-dp/doona/relay"
	"github.com/doona-dp/doona/wire/onion"
	"github.com/doona-dp/doona/wire/task"
)

// BenchmarkIngest posts sealed reports of one slot each over 128 connections to a relay in its own process. Clients and
// relay share the machine: reports/s measures both together, reports/cpu-s measures the relay alone.
func BenchmarkIngest(b *testing.B) {
	c := relaytest.New(b, relaytest.Options{Task: func(t *task.Task) { t.Batch.Size = 1 << 20 }})
	bodies := sealAll(b, c, b.N)
	first := startProcess(b, c, 0)
	var acked atomic.Int64
	b.ResetTimer()
	require.NoError(b, postAll(b.Context(), c, bodies, 128, &acked))
	b.StopTimer()
	b.ReportMetric(float64(writtenBytes(b, first))/float64(b.N), "B-written/report")
	b.ReportMetric(float64(b.N)/metricOf(b, first, "doona_relay_commit_seconds_count"), "reports/group")
	require.NoError(b, first.cmd.Process.Signal(syscall.SIGTERM))
	require.NoError(b, first.cmd.Wait())
	state := first.cmd.ProcessState
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "reports/s")
	b.ReportMetric(float64(b.N)/(state.UserTime()+state.SystemTime()).Seconds(), "reports/cpu-s")
}

// BenchmarkMix makes a second relay pull, open, permute, store and confirm one batch of 5,000 slots per round. Each
// client has one slot.
func BenchmarkMix(b *testing.B) {
	const n = 5000
	c := relaytest.New(b, relaytest.Options{
		Task:   func(t *task.Task) { t.Batch.Size = n },
		Config: func(_ int, cfg *relay.Config) { cfg.PullInterval = 10 * time.Millisecond },
	})
	first := c.StartFirst(b)
	batches := make([]*onion.Batch, b.N)
	for seq := range batches {
		batches[seq] = first.Batch(b, 0, uint64(seq), n, c.Slots(b, 0, span(uint64(seq*n), n)...))
	}
	c.Start(b, 1)
	b.ResetTimer()
	for seq, batch := range batches {
		first.Serve(b, 0, uint64(seq), batch)
		for !first.Confirmed(0, uint64(seq)) {
			time.Sleep(time.Millisecond)
		}
	}
	b.ReportMetric(float64(b.N*n)/b.Elapsed().Seconds(), "slots/s")
}
