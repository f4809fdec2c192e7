package handover_test

import (
	"bytes"
	"errors"
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/doona-dp/doona/onion"
	"github.com/doona-dp/doona/relay/handover"
	"github.com/doona-dp/doona/relay/problem"
	"github.com/doona-dp/doona/relay/relaytest"
)

// answering serves a handler where the last relay of a cascade should be.
func answering(t *testing.T, handler http.HandlerFunc) *relaytest.Cascade {
	t.Helper()
	c := relaytest.New(t, relaytest.Options{Hops: 1})
	c.Listen(t, 0, handler)
	return c
}

func TestPullErrors(t *testing.T) {
	problemOf := func(name problem.Name) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) { problem.New(name, "").Write(w) }
	}
	tests := []struct {
		name    string
		handler http.HandlerFunc
		want    error
	}{
		{"not sealed", problemOf(problem.NotSealed), handover.ErrNotSealed},
		{"complete", problemOf(problem.Complete), handover.ErrEpochComplete},
		{"confirmed", problemOf(problem.Confirmed), handover.ErrConfirmed},
		{"unauthorized", problemOf(problem.Unauthorized), handover.ErrUnauthorized},
		{"overloaded", problemOf(problem.Overloaded), problem.New(problem.Overloaded, "")},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			c := answering(t, tt.handler)
			_, err := c.Verifier.Pull(t.Context(), c.Open, 0, 0, 0)
			require.ErrorIs(t, err, tt.want)
			for _, other := range tests {
				require.Equal(t, other.name == tt.name, isProblem(err, other.want), other.name)
			}
			require.ErrorIs(t, c.Verifier.Confirm(t.Context(), c.Open, 0, 0, 0, nil), tt.want)
		})
	}
}

func isProblem(err, target error) bool {
	p := &problem.Problem{}
	return errors.As(err, &p) && p.Is(target)
}

// TestBadAnswers: an answer that is neither a batch nor a problem is an error, and never more
// than the task's batches take is read of it.
func TestBadAnswers(t *testing.T) {
	tests := map[string]http.HandlerFunc{
		"endless": func(w http.ResponseWriter, req *http.Request) {
			for chunk := make([]byte, 1<<16); req.Context().Err() == nil; {
				if _, err := w.Write(chunk); err != nil {
					return
				}
			}
		},
		"redirect": func(w http.ResponseWriter, req *http.Request) {
			http.Redirect(w, req, "http://127.0.0.1:1/", http.StatusTemporaryRedirect)
		},
		"empty":       func(http.ResponseWriter, *http.Request) {},
		"not msgpack": func(w http.ResponseWriter, _ *http.Request) { w.Write([]byte("<html>")) },
		"plain 404":   http.NotFound,
		"huge problem": func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(404)
			w.Write(bytes.Repeat([]byte{'['}, 1<<20))
		},
	}
	for name, handler := range tests {
		t.Run(name, func(t *testing.T) {
			c := answering(t, handler)
			_, err := c.Verifier.Pull(t.Context(), c.Open, 0, 0, 0)
			require.Error(t, err)
			require.False(t, isProblem(err, handover.ErrNotSealed))
		})
	}
}

// TestMaxBatch: the bound holds for the batches that relays make, and not by much more.
func TestMaxBatch(t *testing.T) {
	c := relaytest.New(t, relaytest.Options{Hops: 3})
	c.StartAll(t)
	for i := range 10 {
		require.NoError(t, c.Post(t.Context(), 0, c.Seal(t, 0, uint64(i)), relaytest.Network(i)))
	}
	batch, _ := c.Pull(t, 0, 0)
	raw, err := batch.Bytes()
	require.NoError(t, err)
	layout, err := onion.NewLayout(c.Open.Task)
	require.NoError(t, err)
	most := handover.MaxBatch(c.Open.Task, layout, 2)
	require.LessOrEqual(t, int64(len(raw)), most)
	require.Less(t, most, int64(len(raw))+2048)
}
