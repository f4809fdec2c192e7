package collect_test

import (
	"log/slog"
	"net/http"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/doona-dp/doona/internal/testing/relaytest"
	"github.com/doona-dp/doona/verifier/collect"
	"github.com/doona-dp/doona/verifier/finding"
	"github.com/doona-dp/doona/wire/codec"
	"github.com/doona-dp/doona/wire/onion"
	"github.com/doona-dp/doona/wire/problem"
	"github.com/doona-dp/doona/wire/signing"
	"github.com/doona-dp/doona/wire/task"
)

// TestAnEndOfAnyNumberOfBatches: a relay signs that an epoch had the maximum number of batches, and answers that each
// was confirmed. The verifier must need little memory for this, and note at most 101 findings.
func TestAnEndOfAnyNumberOfBatches(t *testing.T) {
	c := relaytest.New(t, relaytest.Options{Hops: 1, Task: relaytest.Mean(batchSize, past)})
	sign, mux := c.SignKey(t, 0), http.NewServeMux()
	mux.HandleFunc("/", func(w http.ResponseWriter, req *http.Request) {
		switch {
		case !strings.Contains(req.URL.Path, "/epochs/0/"):
			problem.New(problem.NotSealed, "").Write(w)
			return
		case filepath.Base(req.URL.Path) != "end":
			problem.New(problem.Confirmed, "").Write(w)
			return
		}
		body, err := codec.Marshal(&onion.End{Label: "doona-end", Version: task.Version, TaskID: c.Open.ID[:],
			Batches: c.Open.MostBatches(), Lanes: make([]onion.LaneCount, c.Open.Slots.Lanes), Source: []byte{}})
		require.NoError(t, err)
		raw, err := (&onion.SignedEnd{End: body, Signature: signing.Sign(sign, signing.End, body)}).Bytes()
		require.NoError(t, err)
		w.Write(raw)
	})
	c.Listen(t, 0, mux)
	v := newVerifier(t, c)
	p, err := collect.NewPuller(v, c.Verifier, t.TempDir(), slog.New(slog.DiscardHandler))
	require.NoError(t, err)
	defer p.Close()
	for range 10 {
		require.NoError(t, p.Pull(t.Context()))
	}
	for _, f := range v.Findings() {
		if f.Name == finding.Missing {
			require.EqualValues(t, 101, f.Count, "100 batches, and that there are more")
			return
		}
	}
	require.Fail(t, "no batch is missing")
}

// TestADamagedRecordGoesWithItsEpoch: records in quarantine hold single messages, so they must be erased with their
// epoch.
func TestADamagedRecordGoesWithItsEpoch(t *testing.T) {
	p := newPulled(t, past)
	p.relay.Serve(t, 0, 0, p.batch(t, 0))
	_, puller := p.start(t)
	require.NoError(t, puller.Pull(t.Context()))
	damage(t, p.glob(t, "*.record"))
	_, puller = p.start(t)
	aside := filepath.Join(p.dir, collect.QuarantineFolder, "*.record")
	before, err := filepath.Glob(aside)
	require.NoError(t, err)
	require.Len(t, before, 1)
	p.relay.End(0)
	require.NoError(t, puller.Pull(t.Context()))
	require.Error(t, p.keyOf(t, 0), "the key is gone")
	after, err := filepath.Glob(aside)
	require.NoError(t, err)
	require.Empty(t, after)
}
