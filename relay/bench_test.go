package relay_test

import (
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/doona-dp/doona/relay/relaytest"
	"github.com/doona-dp/doona/task"
)

// BenchmarkIngest posts sealed reports of one slot over 128 connections to a relay in a process
// of its own. Clients and relay share the machine: reports/s is what both can do together,
// reports/cpu-s what the relay alone can.
func BenchmarkIngest(b *testing.B) {
	c := relaytest.New(b, relaytest.Options{Task: func(t *task.Task) { t.Batch.Size = 1 << 20 }})
	bodies := sealAll(b, c, b.N)
	first := startProcess(b, c, 0)
	var acked atomic.Int64
	b.ResetTimer()
	require.NoError(b, postAll(b.Context(), c, bodies, 128, &acked))
	b.StopTimer()
	require.NoError(b, first.cmd.Process.Signal(syscall.SIGTERM))
	require.NoError(b, first.cmd.Wait())
	state := first.cmd.ProcessState
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "reports/s")
	b.ReportMetric(float64(b.N)/(state.UserTime()+state.SystemTime()).Seconds(), "reports/cpu-s")
}
