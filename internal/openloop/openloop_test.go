package openloop

import (
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/doona-dp/doona/wire/problem"
)

// TestRun: a refused report is sent again, and the number of waiting reports stays bounded. An acknowledged report is
// announced, in whatever form the answer comes. Each report is sent as often as it needs.
func TestRun(t *testing.T) {
	const clients, held, connections = 500, 10, 4
	var mu sync.Mutex
	came, waiting, most := map[string]int{}, 0, 0
	relay := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		body, err := io.ReadAll(req.Body)
		client := req.Header.Get("Forwarded") + string(body)
		mu.Lock()
		defer mu.Unlock()
		came[client]++
		switch n := len(came); {
		case err != nil || req.Header.Get("Authorization") != "key":
			w.WriteHeader(http.StatusTeapot)
		case came[client] == 1:
			waiting++
			most = max(most, waiting)
			problem.New(problem.Overloaded, "").Retry(time.Second).Write(w)
		default:
			waiting--
			if n%3 == 0 {
				w.Header().Set("Connection", "close")
			}
			w.WriteHeader(http.StatusCreated)
			if n%3 == 1 {
				w.Write([]byte("thanks"))
			}
		}
	}))
	defer relay.Close()
	target, err := url.Parse(relay.URL)
	require.NoError(t, err)
	fresh := make(chan *Report)
	go func() {
		defer close(fresh)
		for i := range clients {
			fresh <- &Report{Number: i, Body: []byte{byte(i), byte(i >> 8)}, Client: "c", Authorization: "key"}
		}
	}()
	var taken []int
	var guard sync.Mutex
	got := Run(t.Context(), Options{URL: target, Header: "Forwarded", Duration: time.Hour, Connections: connections,
		Held: held, Taken: func(r *Report) {
			guard.Lock()
			defer guard.Unlock()
			taken = append(taken, r.Number)
		}}, fresh)
	slices.Sort(taken)
	require.Len(t, slices.Compact(taken), clients)
	require.Equal(t, clients, got.Accepted)
	require.Len(t, got.Latency, clients)
	require.Equal(t, 2*clients, got.Offered)
	require.Equal(t, map[string]int{"overloaded": clients}, got.Refused)
	for _, n := range came {
		require.Equal(t, 2, n)
	}
	require.Len(t, came, clients)
	require.LessOrEqual(t, most, held+connections)
	require.Greater(t, most, held/2)
}

// TestVoid: a report that was refused permanently, or whose fate is unknown, is not sent again.
func TestVoid(t *testing.T) {
	relay := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		if body, _ := io.ReadAll(req.Body); string(body) == "broken" {
			panic(http.ErrAbortHandler)
		}
		problem.New(problem.Malformed, "").Write(w)
	}))
	defer relay.Close()
	target, err := url.Parse(relay.URL)
	require.NoError(t, err)
	reports := []*Report{{Body: []byte("broken")}, {Body: []byte("bad")}, {Fate: Taken}}
	got := Run(t.Context(), Options{URL: target, Duration: time.Hour}, Pool(reports))
	require.Equal(t, []Fate{Unknown, Void, Taken}, []Fate{reports[0].Fate, reports[1].Fate, reports[2].Fate})
	require.Equal(t, 2, got.Offered)
	require.Equal(t, map[string]int{"connection": 1, "malformed": 1}, got.Refused)
}

// TestHopeless: Run stops early if the relay accepts no reports, even if there are few. It does not stop early if the
// relay accepts some or is overloaded.
func TestHopeless(t *testing.T) {
	var answer func(asked int64) problem.Name
	var asked atomic.Int64
	relay := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		if name := answer(asked.Add(1)); name != "" {
			problem.New(name, "").Retry(time.Second).Write(w)
			return
		}
		w.WriteHeader(http.StatusCreated)
	}))
	defer relay.Close()
	offer := func(to string, duration time.Duration) *Result {
		target, err := url.Parse(to)
		require.NoError(t, err)
		asked.Store(0)
		reports := make([]*Report, 20)
		for i := range reports {
			reports[i] = &Report{}
		}
		return Run(t.Context(), Options{URL: target, Duration: duration, Connections: 4}, Pool(reports))
	}
	const atOnce = hopeless + 4 // sends in progress are still answered
	answer = func(int64) problem.Name { return problem.StateRolledBack }
	got := offer(relay.URL, 5*time.Second)
	require.LessOrEqual(t, got.Refused["state-rolled-back"], atOnce)
	require.GreaterOrEqual(t, got.Refused["state-rolled-back"], hopeless)

	closed := httptest.NewServer(nil)
	closed.Close()
	got = offer(closed.URL, 5*time.Second)
	require.LessOrEqual(t, got.Refused["connection"], atOnce)
	require.GreaterOrEqual(t, got.Refused["connection"], hopeless)

	answer = func(int64) problem.Name { return problem.Overloaded }
	require.Greater(t, offer(relay.URL, time.Second).Refused["overloaded"], atOnce)
	answer = func(n int64) problem.Name {
		if n == 50 {
			return ""
		}
		return problem.StateRolledBack
	}
	require.Greater(t, offer(relay.URL, time.Second).Refused["state-rolled-back"], atOnce)
}
