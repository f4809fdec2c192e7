package verifier_test

import (
	"log/slog"
	"math"
	"net/http"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/doona-dp/doona/internal/testing/relaytest"
	"github.com/doona-dp/doona/planner"
	"github.com/doona-dp/doona/protocols"
	"github.com/doona-dp/doona/protocols/registry"
	"github.com/doona-dp/doona/shufflerclient"
	"github.com/doona-dp/doona/verifier"
	"github.com/doona-dp/doona/verifier/collect"
	"github.com/doona-dp/doona/wire/task"
)

// TestEveryProtocolEndToEnd: every protocol runs with a client, two relays over HTTP and a verifier. Each entry of the
// estimate must be within some standard errors, exact for the given values, of the truth.
func TestEveryProtocolEndToEnd(t *testing.T) {
	for name, c := range everyProtocol {
		t.Run(name, func(t *testing.T) {
			q := c.Query
			q.Name, q.Honest = name, 1
			cascade := relaytest.New(t, relaytest.Options{Task: func(draft *task.Task) {
				calibrated, err := planner.Draft(q)
				require.NoError(t, err)
				calibrated.Epochs = draft.Epochs
				*draft = *calibrated
			}})
			cascade.StartAll(t)
			begin := time.Now()
			sendAll(t, cascade, c.Value)
			report := pullAll(t, cascade)
			t.Logf("%d clients, %d slots each, %v", q.Batch, cascade.Open.Slots.PerLane*cascade.Open.Slots.Lanes,
				time.Since(begin).Round(time.Millisecond))
			requireClose(t, cascade, report, c.Value)
		})
	}
}

// sendAll submits the reports of a batch of clients with the same value.
func sendAll(t *testing.T, c *relaytest.Cascade, value []float64) {
	t.Helper()
	transport := &http.Transport{MaxConnsPerHost: 8}
	defer transport.CloseIdleConnections()
	client, err := shufflerclient.Connect(t.Context(), shufflerclient.Options{
		Task: c.TaskURL(0), Owner: c.Owner, MaxEpsilon: 100, HTTP: &http.Client{Transport: transport},
	})
	require.NoError(t, err)
	errs := make(chan error)
	for i := range c.Open.Batch.Size {
		go func() {
			report, err := client.Report(0, value)
			if err == nil {
				header := http.Header{"X-Forwarded-For": {relaytest.Network(int(i))}}
				err = client.WithHeader(header).Submit(t.Context(), report)
			}
			errs <- err
		}()
	}
	for range c.Open.Batch.Size {
		require.NoError(t, <-errs)
	}
}

func pullAll(t *testing.T, c *relaytest.Cascade) *verifier.Report {
	t.Helper()
	c.Pull(t, 0, 0) // wait until the batch is ready
	v := newVerifier(t, c)
	puller, err := collect.NewPuller(v, c.Verifier, filepath.Join(t.TempDir(), "batches"),
		slog.New(slog.DiscardHandler))
	require.NoError(t, err)
	require.NoError(t, puller.Pull(t.Context()))
	report, err := v.Report()
	require.NoError(t, err)
	return report
}

func requireClose(t *testing.T, c *relaytest.Cascade, r *verifier.Report, value []float64) {
	t.Helper()
	require.Empty(t, r.Findings)
	require.EqualValues(t, c.Open.Batch.Size, r.Users)
	require.Equal(t, r.MessagesSent, r.CoverMessages+r.Verified+r.Rejected+r.Withheld)
	if c.Open.Query == task.Strings { // TestPoolEndToEnd tests texts
		require.True(t, r.Usable)
		require.Empty(t, r.Estimate)
		return
	}
	m, err := registry.Open(c.Open.Task)
	require.NoError(t, err)
	total, variance, err := m.Exact(value)
	require.NoError(t, err)
	n := float64(c.Open.Batch.Size)
	scale := protocols.Scale(c.Open.Query, c.Open.Batch.Size)
	require.Len(t, r.Estimate, len(total))
	deviations := 8.0 // below 10⁻⁹ for each of at most 16 bounded sums over 100 clients
	if c.Open.Protocol == "splitmix" {
		deviations = 16 // the same for a discrete Laplace variable: e^(-16√2) = 1.5·10⁻¹⁰
	}
	if c.Open.Protocol == "vectorsum" {
		// Each coordinate gets a Poisson number of messages, 0.2 on average. By Bennett's inequality, more than 22
		// standard errors have probability e^(-0.2·h(22/√0.2)) = 1.5·10⁻¹³, with h(u) = (1+u)·ln(1+u) - u.
		deviations = 22
	}
	for j := range total {
		require.InDelta(t, n*total[j]*scale, r.Estimate[j], deviations*math.Sqrt(n*variance[j])*scale, "entry %d", j)
		require.LessOrEqual(t, math.Sqrt(n*variance[j])*scale, r.StandardErrorWorst[j]*(1+1e-9), "entry %d", j)
	}
}
