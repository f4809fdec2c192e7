package verifier_test

import (
	"crypto/rand"
	"runtime"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/doona-dp/doona/internal/testing/relaytest"
	"github.com/doona-dp/doona/planner"
	"github.com/doona-dp/doona/wire/onion"
	"github.com/doona-dp/doona/wire/task"
)

// BenchmarkRecords adds batches of 10⁵ opened messages to one epoch and counts them. It measures the cost per message:
// time in ns, and memory until the epoch ends, in bytes.
func BenchmarkRecords(b *testing.B) {
	const clients = 100_000
	c := relaytest.New(b, relaytest.Options{Hops: 1, Task: func(draft *task.Task) {
		calibrated, err := planner.Draft(planner.Query{Name: "bench", Query: task.Histogram, Bins: 64, Labels: true,
			Batch: clients, Honest: 0.9, Epsilon: 1, Delta: 1e-6})
		require.NoError(b, err)
		calibrated.Epochs = draft.Epochs
		*draft = *calibrated
	}})
	layout, err := onion.NewLayout(c.Open.Task)
	require.NoError(b, err)
	sealed, body := make([]byte, layout.SlotSize(1)), make([]byte, c.Open.Slots.MessageBytes)
	lane, messages := make([][]byte, clients), make([]task.Message, clients)
	for i := range lane {
		lane[i], messages[i] = sealed, task.Message{Body: body}
	}
	v := newVerifier(b, c)
	before := held()
	for seq := uint64(0); b.Loop(); seq++ {
		b.StopTimer()
		batch, err := onion.NewBatch(c.SignKey(b, 0), onion.BatchDraft{
			Context: onion.Context{TaskID: c.Open.ID},
			Seq:     seq, Submissions: clients, In: []uint64{clients},
		}, onion.Lanes{lane})
		require.NoError(b, err)
		tags := make([][onion.TagSize]byte, clients)
		for i := range tags {
			rand.Read(tags[i][:])
		}
		b.StartTimer()
		r, err := v.Synthetic(batch, tags, messages)
		require.NoError(b, err)
		require.NoError(b, v.AddRecord(r))
		report, err := v.Report()
		require.NoError(b, err)
		require.Equal(b, (seq+1)*clients, report.Verified)
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/clients, "ns/message")
	b.ReportMetric(float64(held()-before)/float64(b.N)/clients, "B/message")
	runtime.KeepAlive(v)
}

// held returns the heap in use after a garbage collection, in bytes.
func held() uint64 {
	var m runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}
