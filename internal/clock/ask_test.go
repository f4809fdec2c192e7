package clock_test

import (
	"context"
	"crypto/ed25519"
	"encoding/base64"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/doona-dp/doona/internal/clock"
	"github.com/doona-dp/doona/wire/handover"
	"github.com/doona-dp/doona/wire/signing"
	"github.com/doona-dp/doona/wire/task"
	"github.com/doona-dp/doona/wire/taskfile"
)

// teller is a relay that signs its clock's time for the tasks that it knows.
type teller struct {
	*httptest.Server
	key   ed25519.PrivateKey
	ahead time.Duration // how far the teller's clock is ahead of the true time
	asked atomic.Int32

	mu    sync.Mutex
	knows map[string]task.ID
}

func newTeller(t *testing.T) *teller {
	_, key, err := ed25519.GenerateKey(nil)
	require.NoError(t, err)
	return newTellerWith(t, key)
}

func newTellerWith(t *testing.T, key ed25519.PrivateKey) *teller {
	s := &teller{key: key, knows: map[string]task.ID{}}
	s.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		s.asked.Add(1)
		s.mu.Lock()
		id, ok := s.knows[strings.Split(req.URL.Path, "/")[3]]
		s.mu.Unlock()
		nonce, err := base64.RawURLEncoding.DecodeString(req.URL.Query().Get("nonce"))
		if !ok || err != nil || len(nonce) != len(signing.Nonce{}) {
			w.WriteHeader(http.StatusNotFound)
			return
		}
		body, _ := signing.NewTime(s.key, id, 0, signing.Nonce(nonce), uint64(time.Now().Add(s.ahead).Unix()))
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

// taskOf returns a task whose only relay is the teller.
func taskOf(id byte, s *teller) *taskfile.Open {
	party := task.Party{URL: s.URL, SignKey: s.signKey()}
	return &taskfile.Open{ID: task.ID{id}, Task: &task.Task{Relays: []task.Party{party}}}
}

func (s *teller) signKey() task.SignKey { return task.SignKey(s.key.Public().(ed25519.PublicKey)) }

// rotated makes a task record that the key of one teller was replaced by the key of another.
func rotated(open *taskfile.Open, from, to *teller) *taskfile.Open {
	open.Stream = &task.StreamPosition{Rotations: []task.Rotation{{Old: from.signKey(), New: to.signKey()}}}
	return open
}

// at replaces the URL of a task's relay.
func at(open *taskfile.Open, url string) *taskfile.Open {
	open.Relays[0].URL = url
	return open
}

// TestOnePartyCountsOnce: two tasks name one party with a wrong clock by two URLs, by two keys of which one replaced
// the other, or by two keys at one host. It must count as one clock, which cannot raise Sure. Two parties' clocks must.
func TestOnePartyCountsOnce(t *testing.T) {
	const ahead = 24 * time.Hour
	a := newTeller(t)
	b, c := newTellerWith(t, a.key), newTeller(t) // b is a at another host; c has another key
	for _, s := range []*teller{a, b, c} {
		s.ahead = ahead
	}
	first, moved, other := taskOf(1, a), taskOf(2, b), taskOf(2, c)
	a.knowsOnly(first)
	b.knowsOnly(moved)
	third := taskOf(3, c)
	c.knowsOnly(other, third)
	tasks := func(all ...*taskfile.Open) []*taskfile.Open { return all }
	own := []task.SignKey{c.signKey()}
	for name, s := range map[string]struct {
		own     []task.SignKey
		tasks   []*taskfile.Open
		answers int
	}{
		"two URLs":                 {nil, tasks(first, moved), 1},
		"a rotated key":            {nil, tasks(first, rotated(taskOf(2, c), a, c)), 1},
		"two keys at one host":     {nil, tasks(first, at(taskOf(2, c), a.URL), third), 1},
		"two hosts by a third":     {nil, tasks(moved, other, rotated(at(taskOf(3, c), a.URL), a, c)), 1},
		"this party's rotated key": {own, tasks(first, rotated(taskOf(2, c), a, c)), 0},
		"two parties":              {nil, tasks(first, other), 2},
	} {
		t.Run(name, func(t *testing.T) {
			guard, err := clock.New(clock.Options{})
			require.NoError(t, err)
			guard.SetPeers(handover.NewRequester(nil, nil), s.own, s.tasks...)
			watch(t, guard)
			require.Eventually(t, func() bool { return guard.Read().Doubt != clock.DoubtAsking }, patience,
				10*time.Millisecond)
			require.Len(t, guard.Offsets(), s.answers)
			sure := guard.Read().Sure
			require.Equal(t, s.answers == 2, sure.After(time.Now().Add(ahead/2)), sure)
		})
	}
}

// TestFormerAnswersDoNotCount: when a peer gets another URL, its answer at the old URL must no longer count. When the
// peer leaves, none of its answers may count.
func TestFormerAnswersDoNotCount(t *testing.T) {
	a := newTeller(t)
	b := newTellerWith(t, a.key)
	first, moved := taskOf(1, a), taskOf(2, b)
	a.knowsOnly(first)
	b.knowsOnly(moved)
	guard, err := clock.New(clock.Options{})
	require.NoError(t, err)
	client := handover.NewRequester(nil, nil)
	host := func(s *teller) string { return strings.TrimPrefix(s.URL, "http://") }
	answered := func() []string { return slices.Collect(maps.Keys(guard.Offsets())) }
	guard.SetPeers(client, nil, first)
	watch(t, guard)
	soon := func(s *teller) {
		t.Helper()
		require.Eventually(t, func() bool { return slices.Contains(answered(), host(s)) }, patience,
			10*time.Millisecond)
	}
	soon(a)
	guard.SetPeers(client, nil, first, moved)
	require.Empty(t, answered())
	soon(b)
	require.Equal(t, []string{host(b)}, answered())
	guard.SetPeers(client, nil)
	require.Empty(t, answered())
}

// patience is how long to wait on a slow machine.
const patience = 20 * time.Second

// watch makes a guard ask its peers until the test ends.
func watch(t *testing.T, guard *clock.Guard) {
	ctx, stop := context.WithCancel(t.Context())
	var watching sync.WaitGroup
	watching.Go(func() { guard.Watch(ctx) })
	t.Cleanup(watching.Wait)
	t.Cleanup(stop)
}

// TestPeersComeAndGo: a guard must keep asking a peer that has dropped the task by which the guard asked. It must
// ask a peer that lacks the newest task by the previous task. It must start to ask new peers. The time must not come
// into doubt meanwhile.
func TestPeersComeAndGo(t *testing.T) {
	guard, err := clock.New(clock.Options{})
	require.NoError(t, err)
	old, fresh := newTeller(t), newTeller(t)
	first, second, third := taskOf(1, old), taskOf(2, old), taskOf(3, fresh)
	old.knowsOnly(first)
	fresh.knowsOnly(third)
	client := handover.NewRequester(nil, nil)
	answered := func(s *teller) func() bool {
		return func() bool {
			_, ok := guard.Offsets()[strings.TrimPrefix(s.URL, "http://")]
			return ok
		}
	}
	soon := func(what func() bool) {
		t.Helper()
		require.Eventually(t, what, patience, 10*time.Millisecond)
	}
	guard.SetPeers(client, nil, first)
	require.Equal(t, clock.DoubtAsking, guard.Read().Doubt, "the guard must wait for the first answers")
	watch(t, guard)
	soon(answered(old))
	require.Empty(t, guard.Read().Doubt)

	before := old.asked.Load()
	guard.SetPeers(client, nil, first, second) // the peer does not know second
	require.Empty(t, guard.Read().Doubt, "the guard must not wait for a peer that joins later")
	soon(func() bool { return old.asked.Load() == before+2 })
	require.Empty(t, guard.Read().Doubt)

	old.knowsOnly(second) // the peer has dropped the first task and serves the second
	before = old.asked.Load()
	guard.SetPeers(client, nil, second, third)
	soon(answered(fresh))
	soon(func() bool { return old.asked.Load() == before+1 })
}
