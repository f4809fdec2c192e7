package clock_test

import (
	"context"
	"crypto/ed25519"
	"encoding/base64"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/doona-dp/doona/internal/clock"
	"github.com/doona-dp/doona/wire/handover"
	"github.com/doona-dp/doona/wire/onion"
	"github.com/doona-dp/doona/wire/task"
	"github.com/doona-dp/doona/wire/taskfile"
)

// teller is a relay that tells the time by the tasks it knows.
type teller struct {
	*httptest.Server
	key   ed25519.PrivateKey
	asked atomic.Int32

	mu    sync.Mutex
	knows map[string]task.ID
}

func newTeller(t *testing.T) *teller {
	_, key, err := ed25519.GenerateKey(nil)
	require.NoError(t, err)
	s := &teller{key: key, knows: map[string]task.ID{}}
	s.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		s.asked.Add(1)
		s.mu.Lock()
		id, ok := s.knows[strings.Split(req.URL.Path, "/")[3]]
		s.mu.Unlock()
		nonce, err := base64.RawURLEncoding.DecodeString(req.URL.Query().Get("nonce"))
		if !ok || err != nil || len(nonce) != len(onion.Nonce{}) {
			w.WriteHeader(http.StatusNotFound)
			return
		}
		body, _ := onion.NewTime(s.key, id, 0, onion.Nonce(nonce), uint64(time.Now().Unix()))
		_, _ = w.Write(body)
	}))
	t.Cleanup(s.Close)
	return s
}

func (s *teller) knowsOnly(tasks ...*taskfile.Open) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.knows = map[string]task.ID{}
	for _, open := range tasks {
		s.knows[open.ID.String()] = open.ID
	}
}

// taskOf returns a task with one relay.
func taskOf(id byte, s *teller) *taskfile.Open {
	party := task.Party{URL: s.URL, SignKey: task.SignKey(s.key.Public().(ed25519.PublicKey))}
	return &taskfile.Open{ID: task.ID{id}, Task: &task.Task{Relays: []task.Party{party}}}
}

// A guard goes on asking a neighbour that has dropped the task it was asked by, asks one that lacks the newest task by
// the one before, and begins to ask who comes, without a doubt meanwhile.
func TestNeighboursComeAndGo(t *testing.T) {
	guard, err := clock.New(clock.Options{})
	require.NoError(t, err)
	old, fresh := newTeller(t), newTeller(t)
	first, second, third := taskOf(1, old), taskOf(2, old), taskOf(3, fresh)
	old.knowsOnly(first)
	fresh.knowsOnly(third)
	client := handover.NewClient(nil, nil)
	heard := func(s *teller) func() bool {
		return func() bool {
			_, ok := guard.Offsets()[strings.TrimPrefix(s.URL, "http://")]
			return ok
		}
	}
	soon := func(what func() bool) {
		t.Helper()
		require.Eventually(t, what, 20*time.Second, 10*time.Millisecond)
	}
	guard.Meet(client, nil, first)
	require.Equal(t, clock.DoubtAsking, guard.Read().Doubt, "the first answers are waited for")
	ctx, stop := context.WithCancel(t.Context())
	var watching sync.WaitGroup
	watching.Go(func() { guard.Watch(ctx) })
	defer watching.Wait()
	defer stop()
	soon(heard(old))
	require.Empty(t, guard.Read().Doubt)

	before := old.asked.Load()
	guard.Meet(client, nil, first, second) // which the neighbour lacks
	require.Empty(t, guard.Read().Doubt, "who comes while it watches is not waited for")
	soon(func() bool { return old.asked.Load() == before+2 })
	require.Empty(t, guard.Read().Doubt)

	old.knowsOnly(second) // it has dropped the first, and took the second
	before = old.asked.Load()
	guard.Meet(client, nil, second, third)
	soon(heard(fresh))
	soon(func() bool { return old.asked.Load() == before+1 })
}
