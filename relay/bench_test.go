package relay_test

import (
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/doona-dp/doona/relay/relaytest"
	"github.com/doona-dp/doona/task"
)

// BenchmarkIngest posts sealed reports over 64 connections; clients and relay share the machine.
func BenchmarkIngest(b *testing.B) {
	c := relaytest.New(b, relaytest.Options{Task: func(t *task.Task) { t.Batch.Size, t.Clients.Quota = 1<<20, 65535 }})
	c.Start(b, 0)
	bodies := make([][]byte, b.N)
	for i := range bodies {
		bodies[i] = c.Seal(b, 0, uint64(i))
	}
	next := make(chan []byte, len(bodies))
	for _, body := range bodies {
		next <- body
	}
	close(next)
	b.ResetTimer()
	var clients sync.WaitGroup
	for range 64 {
		clients.Go(func() {
			for body := range next {
				require.NoError(b, c.Post(b.Context(), 0, body, "10.0.0.1"))
			}
		})
	}
	clients.Wait()
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "reports/s")
}
