package relaytest

import (
	"encoding/json"
	"io"
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/doona-dp/doona/planner"
	"github.com/doona-dp/doona/shufflerclient"
	"github.com/doona-dp/doona/verifier"
	"github.com/doona-dp/doona/verifier/finding"
	"github.com/doona-dp/doona/wire/keyfile"
	"github.com/doona-dp/doona/wire/onion"
	"github.com/doona-dp/doona/wire/task"
)

// BatchSize is small, so that tests are fast. So shuffling adds little, and γ is large.
const BatchSize = 20

// NewMeanCascade creates a cascade of two relays for the mean of values in [0, 10].
func NewMeanCascade(t *testing.T) *Cascade {
	t.Helper()
	return New(t, Options{Task: Mean(BatchSize)})
}

func NewVerifier(t testing.TB, c *Cascade) *verifier.Verifier {
	t.Helper()
	keys, err := keyfile.LoadHPKE(c.VerifierKeys("task0"))
	require.NoError(t, err)
	v, err := verifier.New(c.Open, keys)
	require.NoError(t, err)
	return v
}

// Submit posts reports of the same value, one per client, to the running first relay.
func Submit(t *testing.T, c *Cascade, clients, first int, value float64) {
	t.Helper()
	client, err := shufflerclient.Connect(t.Context(),
		shufflerclient.Options{Task: c.TaskURL(0), Owner: c.Owner, MaxEpsilon: 10})
	require.NoError(t, err)
	for i := range clients {
		r, err := client.Report(0, []float64{value})
		require.NoError(t, err)
		header := http.Header{"X-Forwarded-For": {Network(first + i)}}
		require.NoError(t, client.WithHeader(header).Submit(t.Context(), r))
	}
}

func Get(t *testing.T, url string) string {
	t.Helper()
	resp, err := http.Get(url)
	require.NoError(t, err)
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	require.NoError(t, err)
	require.Equal(t, http.StatusOK, resp.StatusCode)
	return string(body)
}

// Slots returns the slots in the envelopes of n clients, as the first relay sees them after opening.
func Slots(t *testing.T, c *Cascade, n int) [][]byte {
	t.Helper()
	return SlotsOf(t, c, 0, n)
}

// SlotsOf is Slots for a given epoch.
func SlotsOf(t *testing.T, c *Cascade, epoch uint64, n int) [][]byte {
	t.Helper()
	client, err := shufflerclient.New(c.Open, shufflerclient.Options{MaxEpsilon: 10})
	require.NoError(t, err)
	opener := c.Opener(t, 0, epoch)
	var out [][]byte
	for i := range n {
		r, err := client.Report(epoch, []float64{float64(i % 10)})
		require.NoError(t, err)
		envelope, err := opener.OpenEnvelope(r.Body)
		require.NoError(t, err)
		out = append(out, envelope.Lanes[0]...)
	}
	return out
}

// Chain is [Cascade.Chain] in epoch 0.
func Chain(t *testing.T, c *Cascade, seq uint64, first [][]byte,
	change ...func([][]byte) [][]byte) *onion.Batch {
	t.Helper()
	return c.Chain(t, 0, seq, first, change...)
}

func ReportJSON(t *testing.T, v *verifier.Verifier) string {
	t.Helper()
	r, err := v.Report()
	require.NoError(t, err)
	line, err := json.Marshal(r)
	require.NoError(t, err)
	return string(line)
}

func coordinates(dim int, scale float64) []float64 {
	out := make([]float64, dim)
	for i := range out {
		out[i] = scale * float64(i%7) / 7
	}
	return out
}

// EveryProtocol holds, by protocol, a small task and a value in its domain.
var EveryProtocol = map[string]struct {
	Query planner.Query
	Value []float64
}{
	"count": {planner.Query{Query: task.Count, Batch: 100, Epsilon: 1, Delta: 1e-6}, []float64{1}},
	"sum":   {planner.Query{Query: task.Sum, Lo: -5, Hi: 5, Batch: 100, Epsilon: 1, Delta: 1e-6}, []float64{2.5}},
	"histogram": {planner.Query{Query: task.Histogram, Bins: 4, Labels: true, Batch: 100, Epsilon: 1, Delta: 1e-6},
		[]float64{2}},
	"splitmix": {planner.Query{Query: task.Mean, Protocol: "splitmix", Lo: -5, Hi: 5, Batch: 100, Epsilon: 1,
		Delta: 1e-8}, []float64{2.5}},
	"rappor": {planner.Query{Query: task.Sum, Protocol: "rappor", Hi: 6, Batch: 100, Epsilon: 1, Delta: 1e-6,
		Params: planner.Params{"k": 6}}, []float64{4}},
	"vectorsum": {planner.Query{Query: task.Vector, Protocol: "vectorsum", Hi: 1, Dim: 1000, Batch: 200, Epsilon: 1,
		Delta:  1e-6,
		Params: planner.Params{"k": 1}}, coordinates(1000, 1)},
	"correlated, none": {planner.Query{Query: task.Sum, Protocol: "correlated", Hi: 2, Batch: 100, Epsilon: 4,
		Delta: 1e-6, Padding: task.PaddingNone, Params: planner.Params{"max": 4}}, []float64{1.5}},
	"vectormean, none": {planner.Query{Query: task.VectorMean, Dim: 16, Batch: 100, Epsilon: 4, Delta: 1e-6,
		Padding: task.PaddingNone}, coordinates(16, 0.3)},
	"vectorgrid": {planner.Query{Query: task.VectorMean, Protocol: "vectorgrid", Dim: 2, Batch: 100, Epsilon: 1,
		Delta: 1e-6}, coordinates(2, 1)},
	"strings": {planner.Query{Query: task.Strings, Length: 4, Batch: 400, Epsilon: 1, Delta: 1e-6},
		[]float64{'/', 'a'}},
}

// OneRelay creates a task with one relay and two epochs, of which the first ended one and a half epochs ago.
func OneRelay(t *testing.T, q planner.Query) *Cascade {
	t.Helper()
	q.Name, q.Honest = "words", 0.9
	return New(t, Options{Hops: 1, Task: func(draft *task.Task) {
		calibrated, err := planner.Draft(q)
		require.NoError(t, err)
		calibrated.Epochs = draft.Epochs
		calibrated.Epochs.Start -= uint64(calibrated.Epochs.Length) * 5 / 2
		*draft = *calibrated
	}})
}

// WholeBatch returns a batch of clients with one value. The relay drops the first dropped slots of each lane.
func WholeBatch(t *testing.T, c *Cascade, epoch, dropped uint64, value []float64) *onion.Batch {
	t.Helper()
	client, err := shufflerclient.New(c.Open, shufflerclient.Options{MaxEpsilon: 1000, MaxDelta: 1})
	require.NoError(t, err)
	opener, lanes := c.Opener(t, 0, epoch), make(onion.Lanes, c.Open.Slots.Lanes)
	for range c.Open.Batch.Size {
		r, err := client.Report(epoch, value)
		require.NoError(t, err)
		envelope, err := opener.OpenEnvelope(r.Body)
		require.NoError(t, err)
		for lane := range lanes {
			lanes[lane] = append(lanes[lane], envelope.Lanes[lane]...)
		}
	}
	in := make([]uint64, len(lanes))
	for lane := range lanes {
		in[lane] = uint64(len(lanes[lane]))
		lanes[lane] = lanes[lane][dropped:]
	}
	b, err := onion.NewBatch(c.SignKey(t, 0), onion.BatchDraft{
		Context: onion.Context{TaskID: c.Open.ID, Epoch: epoch}, Submissions: c.Open.Batch.Size, In: in,
	}, lanes)
	require.NoError(t, err)
	return b
}

func Bytes(t *testing.T, b *onion.Batch) []byte {
	t.Helper()
	raw, err := b.Bytes()
	require.NoError(t, err)
	return raw
}

// NewPair creates a splitmix task for two clients, of whom one is honest. Each sends one message, so only its own noise
// hides the value from the verifier.
func NewPair(t *testing.T, change ...func(*task.Task)) *Cascade {
	t.Helper()
	c := New(t, Options{Task: func(draft *task.Task) {
		q := planner.Query{Name: "pair", Query: task.Sum, Protocol: "splitmix", Hi: 10, Batch: 2, Honest: 0.5,
			Epsilon: 1, Delta: 1e-6}
		calibrated, err := planner.Draft(q)
		require.NoError(t, err)
		calibrated.Epochs = draft.Epochs
		*draft = *calibrated
		for _, f := range change {
			f(draft)
		}
	}})
	require.EqualValues(t, 1, c.Open.Slots.PerLane)
	return c
}

// Content returns the verifier's report as JSON, without the parts that depend on the time.
func Content(t *testing.T, v *verifier.Verifier) string {
	t.Helper()
	r, err := v.Report()
	require.NoError(t, err)
	r.Progress, r.Verdict = nil, ""
	line, err := json.Marshal(r)
	require.NoError(t, err)
	return string(line)
}

// RequireReport compares a report's number of batches and its findings with the given ones. Each finding must occur
// once.
func RequireReport(t *testing.T, v *verifier.Verifier, batches uint64, findings ...finding.Name) {
	t.Helper()
	r, err := v.Report()
	require.NoError(t, err)
	require.Equal(t, batches, r.Batches)
	var names []finding.Name
	for _, f := range r.Findings {
		require.EqualValues(t, 1, f.Count)
		names = append(names, f.Name)
	}
	require.Equal(t, findings, names)
}
