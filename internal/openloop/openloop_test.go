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

// TestRun: Run sends a refused report again, and limits how many refused reports wait. It calls Taken for every
// accepted report, whatever form the answer has. It sends each report exactly as often as needed.
func TestRun(t *testing.T) {
	const clients, maxWaiting, connections = 500, 10, 4
	var mu sync.Mutex
	sends, waiting, most := map[string]int{}, 0, 0
	relay := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		body, err := io.ReadAll(req.Body)
		client := req.Header.Get("Forwarded") + string(body)
		mu.Lock()
		defer mu.Unlock()
		sends[client]++
		switch n := len(sends); {
		case err != nil || req.Header.Get("Authorization") != "key":
			w.WriteHeader(http.StatusTeapot)
		case sends[client] == 1:
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
	fresh := make(chan *LoadReport)
	go func() {
		defer close(fresh)
		for i := range clients {
			fresh <- &LoadReport{Number: i, Body: []byte{byte(i), byte(i >> 8)}, Client: "c", Authorization: "key"}
		}
	}()
	var taken []int
	var guard sync.Mutex
	got := Run(t.Context(), Options{URL: target, Header: "Forwarded", Duration: time.Hour, Connections: connections,
		MaxWaiting: maxWaiting, Taken: func(r *LoadReport) {
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
	for _, n := range sends {
		require.Equal(t, 2, n)
	}
	require.Len(t, sends, clients)
	require.LessOrEqual(t, most, maxWaiting+connections)
	require.Greater(t, most, maxWaiting/2)
}

// TestVoid: Run does not send a report again that was refused permanently. If its answer was lost before, the relay may
// have it nevertheless.
func TestVoid(t *testing.T) {
	var lost, broken atomic.Int64
	relay := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		switch body, _ := io.ReadAll(req.Body); string(body) {
		case "lost": // The relay has stored it.
			if lost.Add(1) > 1 {
				w.WriteHeader(http.StatusCreated)
				return
			}
			panic(http.ErrAbortHandler)
		case "broken":
			if broken.Add(1) == 1 {
				panic(http.ErrAbortHandler)
			}
		}
		problem.New(problem.Malformed, "").Write(w)
	}))
	defer relay.Close()
	target, err := url.Parse(relay.URL)
	require.NoError(t, err)
	reports := []*LoadReport{{Body: []byte("broken")}, {Body: []byte("bad")}, {Fate: Taken}, {Body: []byte("lost")}}
	got := Run(t.Context(), Options{URL: target, Duration: time.Hour}, Pool(reports))
	require.Equal(t, []Fate{Unknown, Void, Taken, Taken},
		[]Fate{reports[0].Fate, reports[1].Fate, reports[2].Fate, reports[3].Fate})
	require.Equal(t, 5, got.Offered)
	require.Equal(t, 1, got.Accepted)
	require.Equal(t, map[string]int{"connection": 2, "malformed": 2}, got.Refused)
}

// TestUnavailable: Run stops early if the relay accepts no reports, even if there are few. It does not stop early if
// the relay accepts some, or is overloaded.
func TestUnavailable(t *testing.T) {
	var answer func(request int64) problem.Name
	var requests atomic.Int64
	relay := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		if name := answer(requests.Add(1)); name != "" {
			problem.New(name, "").Retry(time.Second).Write(w)
			return
		}
		w.WriteHeader(http.StatusCreated)
	}))
	defer relay.Close()
	offer := func(to string, duration time.Duration) *Result {
		target, err := url.Parse(to)
		require.NoError(t, err)
		requests.Store(0)
		reports := make([]*LoadReport, 20)
		for i := range reports {
			reports[i] = &LoadReport{}
		}
		return Run(t.Context(), Options{URL: target, Duration: duration, Connections: 4}, Pool(reports))
	}
	const most = maxUnavailable + 4 // sends that have begun still count
	answer = func(int64) problem.Name { return problem.StateRolledBack }
	got := offer(relay.URL, 5*time.Second)
	require.LessOrEqual(t, got.Refused["state-rolled-back"], most)
	require.GreaterOrEqual(t, got.Refused["state-rolled-back"], maxUnavailable)

	closed := httptest.NewServer(nil)
	closed.Close()
	got = offer(closed.URL, 5*time.Second)
	require.LessOrEqual(t, got.Refused["connection"], most)
	require.GreaterOrEqual(t, got.Refused["connection"], maxUnavailable)

	answer = func(int64) problem.Name { return problem.Overloaded }
	require.Greater(t, offer(relay.URL, time.Second).Refused["overloaded"], most)
	answer = func(n int64) problem.Name {
		if n == 50 {
			return ""
		}
		return problem.StateRolledBack
	}
	require.Greater(t, offer(relay.URL, time.Second).Refused["state-rolled-back"], most)
}
