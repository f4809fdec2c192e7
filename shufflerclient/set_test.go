package shufflerclient_test

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/doona-dp/doona/internal/quickstart"
	"github.com/doona-dp/doona/internal/testing/fixture"
	"github.com/doona-dp/doona/internal/testing/relaytest"
	"github.com/doona-dp/doona/shufflerclient"
	"github.com/doona-dp/doona/wire/problem"
	"github.com/doona-dp/doona/wire/tableset"
	"github.com/doona-dp/doona/wire/task"
)

// newSet returns a cascade with a set whose days take an hour. It has a bare table and one with values for each day,
// and one whose epochs take two hours and begin an hour later.
func newSet(t *testing.T, epsilon string) *relaytest.Cascade {
	t.Helper()
	set := &quickstart.Set{Name: "site", Set: tableset.Set{Name: "a site",
		Total:  tableset.Total{Epsilon: task.NewEpsilon(epsilon), Delta: task.NewDelta("1e-4"), Days: 1},
		Tables: []tableset.Table{{Name: "visits", Bare: true}, {Name: "day"}, {Name: "week"}}}}
	begun := uint64(time.Now().Unix()) - 60
	for i, epochs := range []task.Epochs{{Start: begun, Length: 3600, Count: 20},
		{Start: begun, Length: 3600, Count: 20}, {Start: begun + 3600, Length: 7200, Count: 9}} {
		table := fixture.Table(4, epochs)
		table.Name, table.Batch.Size = set.Set.Tables[i].Name, 2
		set.Tables = append(set.Tables, table)
	}
	return relaytest.New(t, relaytest.Options{Set: set})
}

func setOptions(c *relaytest.Cascade) shufflerclient.Options {
	return shufflerclient.Options{Task: c.OpenSet().URL(), Owner: c.Owner, MaxEpsilon: 100}
}

// TestSetClient: a client's submissions must reach the verifier, a table without a value gets a cover, and the keys of
// a block are fetched once.
func TestSetClient(t *testing.T) {
	c := newSet(t, "60")
	c.StartAll(t)
	var fetched atomic.Int64
	o := setOptions(c)
	o.HTTP = httpFunc(func(req *http.Request) (*http.Response, error) {
		if strings.Contains(req.URL.Path, "/blocks/") {
			fetched.Add(1)
		}
		return http.DefaultClient.Do(req)
	})
	client, err := shufflerclient.ConnectSet(t.Context(), o)
	require.NoError(t, err)
	require.Equal(t, c.OpenSet().ID, client.Set().ID)
	day, ok := client.Day(time.Now())
	require.True(t, ok)
	require.Zero(t, day)
	_, ok = client.Day(time.Now().Add(-time.Hour))
	require.False(t, ok)
	for i, values := range []map[string][]float64{{"day": {1}}, nil} {
		r, err := client.Seal(t.Context(), day, values)
		require.NoError(t, err)
		header := http.Header{"X-Forwarded-For": {relaytest.Network(i)}}
		require.NoError(t, client.WithHeader(header).Submit(t.Context(), r))
		require.NoError(t, client.WithHeader(header).Submit(t.Context(), r), "the same bytes are stored once")
	}
	require.EqualValues(t, 2, fetched.Load(), "one block of each clock")
	for table, want := range []int{0, 1} {
		of := c.Table(t, table)
		batch, chain := of.Pull(t, 0, 0)
		opener, messages := of.VerifierOpener(t, 0), 0
		for _, slot := range batch.Ciphertexts[0] {
			_, m, err := opener.OpenMessage(0, slot)
			require.NoError(t, err)
			if !m.Cover {
				messages++
			}
		}
		for _, m := range chain {
			messages -= int(m.Lanes[0].Added)
		}
		require.Equal(t, want, messages)
	}
	_, err = client.Seal(t.Context(), 8, nil)
	require.NoError(t, err)
	require.EqualValues(t, 3, fetched.Load(), "the next block of days")
	for name, values := range map[string]map[string][]float64{
		"tables that have values": {"visits": {1}}, "open on the day": {"week": {1}}, "tables of the set": {"pages": {1}},
		"table day": {"day": {9}},
	} {
		_, err := client.Seal(t.Context(), 0, values)
		require.ErrorContains(t, err, name)
	}
	_, err = client.Seal(t.Context(), 20, nil)
	require.ErrorContains(t, err, "0 to 19")
	c.Clock.Advance(time.Hour)
	late, err := client.Seal(t.Context(), 0, nil)
	require.NoError(t, err)
	require.ErrorIs(t, client.Submit(t.Context(), late), problem.New(problem.EpochClosed, ""))
}

// httpFunc is an HTTP client made of a function.
type httpFunc func(*http.Request) (*http.Response, error)

func (f httpFunc) Do(req *http.Request) (*http.Response, error) { return f(req) }

// TestSetClientRefuses: a false total, a total above the limit, another owner, another set, and wrong keys.
func TestSetClientRefuses(t *testing.T) {
	c := newSet(t, "1")
	c.Start(t, 0)
	_, err := shufflerclient.ConnectSet(t.Context(), setOptions(c))
	require.ErrorContains(t, err, "invalid total.delta 1e-4: want at least")

	c = newSet(t, "60")
	c.Start(t, 0)
	for want, change := range map[string]func(*shufflerclient.Options){
		"invalid MaxEpsilon 59": func(o *shufflerclient.Options) { o.MaxEpsilon = 59 },
		"invalid MaxEpsilon 0":  func(o *shufflerclient.Options) { o.MaxEpsilon = 0 },
		"invalid MaxDelta":      func(o *shufflerclient.Options) { o.MaxDelta = 1e-5 },
		"its owner is":          func(o *shufflerclient.Options) { o.Owner = "ed25519:" + strings.Repeat("A", 43) },
		"unknown-task":          func(o *shufflerclient.Options) { o.Task = o.Task[:len(o.Task)-2] + "00" },
	} {
		o := setOptions(c)
		change(&o)
		_, err := shufflerclient.ConnectSet(t.Context(), o)
		require.ErrorContains(t, err, want)
	}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		url := c.OpenSet().URL()
		if strings.Contains(req.URL.Path, "/blocks/") {
			url = c.OpenSet().KeysURL(0, 1) // another block than the one asked for
		}
		w.Write([]byte(relaytest.Get(t, url)))
	}))
	defer server.Close()
	o := setOptions(c)
	o.HTTP = httpFunc(func(req *http.Request) (*http.Response, error) {
		req.URL.Host = strings.TrimPrefix(server.URL, "http://")
		return http.DefaultClient.Do(req)
	})
	client, err := shufflerclient.ConnectSet(t.Context(), o)
	require.NoError(t, err)
	_, err = client.Seal(t.Context(), 0, nil)
	require.ErrorContains(t, err, "of epochs from 8, want 0")
	o.Task = o.Task[:len(o.Task)-2] + "00"
	_, err = shufflerclient.ConnectSet(t.Context(), o)
	require.ErrorContains(t, err, "couldn't accept the set: its id is")
}
