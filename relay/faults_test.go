package relay_test

import (
	"bytes"
	"context"
	"fmt"
	"log"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/doona-dp/doona/keyfile"
	"github.com/doona-dp/doona/relay"
	"github.com/doona-dp/doona/relay/problem"
	"github.com/doona-dp/doona/relay/relaytest"
)

// TestPanicsAreLoggedWithoutAddresses: net/http would log the client's.
func TestPanicsAreLoggedWithoutAddresses(t *testing.T) {
	var ours, standard bytes.Buffer
	defer log.SetOutput(log.Writer())
	log.SetOutput(&standard)
	server := httptest.NewServer(relay.Guarded(slog.New(slog.NewTextHandler(&ours, nil)),
		http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { panic("bad " + r.RemoteAddr) })))
	_, err := http.Get(server.URL)
	require.Error(t, err)
	server.Close()
	require.Contains(t, ours.String(), "faults_test.go")
	require.NotContains(t, ours.String(), "127.0.0.1")
	require.Empty(t, standard.String())
}

// TestHandoverIsBounded: batches on their way out are held in memory, so they are bounded.
func TestHandoverIsBounded(t *testing.T) {
	c := relaytest.New(t, relaytest.Options{Hops: 1})
	r, _ := c.StartRelay(t, 0)
	for i := range 10 {
		require.NoError(t, c.Post(t.Context(), 0, c.Seal(t, 0, uint64(i)), relaytest.Network(i)))
	}
	c.Pull(t, 0, 0)
	free := relay.FillHandouts(r)
	_, err := c.Verifier.Pull(t.Context(), c.Open, 0, 0, 0)
	requireProblem(t, problem.Overloaded, err)
	free()
	c.Pull(t, 0, 0)
}

// TestOneTaskFails: a batch that cannot be sealed holds up neither other tasks' batches nor the
// erasure of any epoch's keys.
func TestOneTaskFails(t *testing.T) {
	c := relaytest.New(t, relaytest.Options{Tasks: 2})
	r, err := relay.New(c.Config(t, 0))
	require.NoError(t, err)
	relay.FailSeals(r, c.Open.ID)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- r.Run(ctx) }()
	c.WaitReady(t, c.Config(t, 0).Admin)
	good := c.Other(t, 1)
	for i := range 10 {
		require.NoError(t, c.Post(t.Context(), 0, c.Seal(t, 0, uint64(i)), relaytest.Network(i)))
		require.NoError(t, good.Post(t.Context(), 0, good.Seal(t, 0, uint64(i)), relaytest.Network(i)))
	}
	require.Eventually(t, func() bool { return good.Status(t, 0).Epochs[0].Batches == 1 }, relaytest.Patience, 10*time.Millisecond)
	require.True(t, relay.HasEpochKey(r, good.Open.ID, 0))
	c.Clock.Advance(relaytest.Epoch + 2*time.Second)
	waitState(t, good, 0, 0, "erased")
	require.Equal(t, "closed", c.Status(t, 0).Epochs[0].State)
	for task, id := range [][32]byte{c.Open.ID, good.Open.ID} {
		require.False(t, relay.HasEpochKey(r, id, 0))
		keys, err := keyfile.LoadHPKE(filepath.Join(c.Dir, "relay1", fmt.Sprintf("task%d.keys", task)))
		require.NoError(t, err)
		_, err = keys.Key(0)
		require.ErrorIs(t, err, keyfile.ErrErased)
	}
	cancel()
	require.NoError(t, <-ended)
}
