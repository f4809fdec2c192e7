package relay_test

import (
	"bytes"
	"errors"
	"log/slog"
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/doona-dp/doona/internal/service"
	"github.com/doona-dp/doona/internal/testing/relaytest"
	"github.com/doona-dp/doona/relay"
	"github.com/doona-dp/doona/wire/endpoint"
	"github.com/doona-dp/doona/wire/problem"
	"github.com/doona-dp/doona/wire/task"
	"github.com/doona-dp/doona/wire/token"
)

// TestRefusalsShow: each problem that all reports get must show within a minute, and be gone within a minute after.
// There must be a case for each problem that an operator should see.
func TestRefusalsShow(t *testing.T) {
	var provoked []problem.Name
	for name, provoke := range map[string]func(t *testing.T) []problem.Name{"reports": wrongReports,
		"tokens": wrongTokens, "addresses": wrongAddresses, "capacity": noCapacity, "clock": wrongClock,
		"rolled back": rolledBack, "failing": programFails,
		"set": singleReports} {
		t.Run(name, func(t *testing.T) { provoked = append(provoked, provoke(t)...) })
	}
	slices.Sort(provoked)
	if !t.Failed() {
		require.Equal(t, slices.Sorted(maps.Keys(relay.Advice())), provoked)
	}
}

// refusing is a relay whose reports are refused.
type refusing struct {
	*relaytest.Cascade
	hop      int
	n        int // the number of the latest client's network
	provoked []problem.Name
}

// next sends a report from another network, with changed headers.
func (f *refusing) next(t *testing.T, epoch uint64, body []byte, change ...func(http.Header)) error {
	f.n++
	header := http.Header{"X-Forwarded-For": {relaytest.Network(f.n)}, "Content-Type": {"application/msgpack"}}
	for _, c := range change {
		c(header)
	}
	return f.PostWith(t.Context(), epoch, body, header)
}

// minute sends 128 reports in a minute, which all must get a problem, or none if name is "".
func (f *refusing) minute(t *testing.T, send func() error, name problem.Name) {
	t.Helper()
	for range 2 {
		for range 64 {
			if err := send(); name == "" {
				require.NoError(t, err)
			} else {
				requireProblem(t, name, err)
			}
		}
		f.Clock.Advance(30 * time.Second)
	}
}

// shows requires that the relay says within a minute that it refuses most reports with a problem, at /readyz and in the
// metric of the alert, and that it stops saying so within a minute after. A relay that takes no report at all says why.
func (f *refusing) shows(t *testing.T, name problem.Name, why string, send, mended func() error) {
	t.Helper()
	f.provoked = append(f.provoked, name)
	metric := `doona_relay_refusing{problem="` + string(name) + `"} `
	f.minute(t, send, name)
	_, metrics := getAdmin(t, f.Cascade, f.hop, "metrics")
	require.Contains(t, metrics, metric+"1")
	_, answer := getAdmin(t, f.Cascade, f.hop, "readyz")
	require.Contains(t, answer, why)
	f.minute(t, mended, "")
	_, metrics = getAdmin(t, f.Cascade, f.hop, "metrics")
	require.Contains(t, metrics, metric+"0")
	code, answer := getAdmin(t, f.Cascade, f.hop, "readyz")
	require.Equal(t, http.StatusNoContent, code, answer)
}

// mostly is what a relay says that takes some reports.
func mostly(name problem.Name) string { return " refuses most reports: " + string(name) + ": " }

func large(draft *task.Task) { draft.Batch.Size = 10_000 }

func wrongReports(t *testing.T) []problem.Name {
	c := relaytest.New(t, relaytest.Options{Hops: 1, Task: func(draft *task.Task) {
		large(draft)
		draft.Clients.Origins = []string{"https://site.example"}
	}})
	c.Start(t, 0)
	f := &refusing{Cascade: c}
	epoch := uint64(0)
	once := c.Seal(t, 0, 1)
	require.NoError(t, f.next(t, 0, once))
	first := f.n
	damaged := slices.Clone(once)
	damaged[len(damaged)-1] ^= 1
	set := func(name, value string) func(http.Header) { return func(h http.Header) { h.Set(name, value) } }
	for _, tt := range []struct {
		name problem.Name
		send func() error
	}{
		{problem.Limit, func() error {
			return f.next(t, epoch, c.Seal(t, epoch, 1), set("X-Forwarded-For", relaytest.Network(first)))
		}},
		{problem.Replayed, func() error { return f.next(t, epoch, once) }},
		{problem.DoesNotOpen, func() error { return f.next(t, epoch, damaged) }},
		{problem.Malformed, func() error { return f.next(t, epoch, []byte("junk")) }},
		{problem.TooLarge, func() error { return f.next(t, epoch, make([]byte, 1<<16)) }},
		{problem.MediaType, func() error { return f.next(t, epoch, once, set("Content-Type", "text/plain")) }},
		{problem.ForeignOrigin, func() error { return f.next(t, epoch, once, set("Origin", "https://other.example")) }},
		{problem.EpochNotOpen, func() error { return f.next(t, 1, c.Seal(t, 1, 1)) }},
		{problem.EpochClosed, func() error { return f.next(t, 0, once) }},
	} {
		t.Run(string(tt.name), func(t *testing.T) {
			if tt.name == problem.EpochClosed {
				c.Clock.Advance(relaytest.Epoch)
				epoch = 1
			}
			f.shows(t, tt.name, mostly(tt.name), tt.send, func() error { return f.next(t, epoch, c.Seal(t, epoch, 1)) })
		})
	}
	return f.provoked
}

func wrongTokens(t *testing.T) []problem.Name {
	c := relaytest.New(t, relaytest.Options{Hops: 1, Task: func(draft *task.Task) {
		large(draft)
		relaytest.WithTokens(draft)
	}})
	c.StartIssuer(t, c.IssuerConfig())
	c.Start(t, 0)
	f := &refusing{Cascade: c}
	body := c.Seal(t, 0, 1)
	with := func(tok []byte) func(http.Header) {
		return func(h http.Header) { h.Set("Authorization", token.Header(tok)) }
	}
	good := func() error { return f.next(t, 0, c.Seal(t, 0, 1), with(c.Token(t, 0))) }
	later := c.Token(t, 1)
	f.shows(t, problem.TokenMissing, mostly(problem.TokenMissing), func() error { return f.next(t, 0, body) }, good)
	f.shows(t, problem.TokenInvalid, mostly(problem.TokenInvalid),
		func() error { return f.next(t, 0, body, with(later)) }, good)
	return f.provoked
}

// wrongAddresses: pages report to a task that the relay does not serve, or to the second relay. Once that is mended,
// the relay gets none of these reports, and maybe no others.
func wrongAddresses(t *testing.T) []problem.Name {
	c := relaytest.New(t, relaytest.Options{Task: large})
	c.StartAll(t)
	post := func(url string) func() error {
		return func() error {
			resp, err := http.Post(url, "application/msgpack", bytes.NewReader(c.Seal(t, 0, 1)))
			require.NoError(t, err)
			defer resp.Body.Close()
			return problem.Read(resp)
		}
	}
	quiet := func() error { return nil }
	first := &refusing{Cascade: c}
	first.shows(t, problem.UnknownTask, "the relay refuses most reports: unknown-task: ",
		post(strings.Replace(c.ReportsURL(0), c.Open.ID.String(), strings.Repeat("0", 64), 1)), quiet)
	second := &refusing{Cascade: c, hop: 1}
	second.shows(t, problem.NotIngress, mostly(problem.NotIngress),
		post(strings.Replace(c.ReportsURL(0), c.Open.Relays[0].URL, c.Open.Relays[1].URL, 1)), quiet)
	return append(first.provoked, second.provoked...)
}

// noCapacity: slow clients take all requests that the relay works on at a time, or all of their network's.
func noCapacity(t *testing.T) (provoked []problem.Name) {
	for name, most := range map[problem.Name]int{problem.Overloaded: 1, problem.SlowDown: 16} {
		c := relaytest.New(t, relaytest.Options{Hops: 1, Task: large,
			Config: func(_ int, cfg *relay.Config) { cfg.MaxConcurrent = most }})
		c.Start(t, 0)
		f := &refusing{Cascade: c}
		var slow []net.Conn
		for range (most + 7) / 8 {
			slow = append(slow, startSlowly(t, c, "198.51.100.1"))
		}
		body := c.Seal(t, 0, 1)
		f.shows(t, name, mostly(name), func() error { return c.Post(t.Context(), 0, body, "198.51.100.3") }, func() error {
			for _, conn := range slow {
				conn.Close()
			}
			if slow != nil {
				eventuallyTaken(t, c, body, "198.51.100.3")
				slow = nil
			}
			return f.next(t, 0, c.Seal(t, 0, 1))
		})
		provoked = append(provoked, f.provoked...)
	}
	return provoked
}

// wrongClock: the first relay's clock is ten years ahead, and the second relay's is not.
func wrongClock(t *testing.T) []problem.Name {
	l := newClocks(t)
	l.StartAll(t)
	l.at(0)
	f := &refusing{Cascade: l.Cascade}
	post := func() error { return f.next(t, 0, l.Seal(t, 0, 1)) }
	l.off[0].Store(int64(3653 * 24 * time.Hour))
	requireSoon(t, func() bool { return errors.Is(post(), problem.New(problem.ClockInDoubt, "")) })
	f.shows(t, problem.ClockInDoubt, "clock", post, func() error {
		if l.off[0].Swap(0) != 0 {
			requireSoon(t, func() bool { return post() == nil })
		}
		return post()
	})
	return f.provoked
}

// rolledBack: the relay's store is put back to an older copy, and then to the newer one.
func rolledBack(t *testing.T) []problem.Name {
	c := relaytest.New(t, relaytest.Options{Hops: 1, Task: large})
	stop := c.Start(t, 0)
	postSome(t, c, 0, 3)
	old := relaytest.KeptOf(t, c, 0, "store")
	postSome(t, c, 3, 6)
	stop()
	all := slices.Sorted(maps.Keys(relaytest.KeptParts))
	newer := relaytest.KeptOf(t, c, 0, all...)
	old.Restore(t, c, 0, "store")
	stop = startStopped(t, c, 0)
	get(t, c, 0, "/readyz")
	f := &refusing{Cascade: c, n: 10}
	post := func() error { return f.next(t, 0, c.Seal(t, 0, 1)) }
	f.shows(t, problem.StateRolledBack, "state rollback detected: the store is older than", post, func() error {
		if stop != nil {
			stop()
			newer.Restore(t, c, 0, all...)
			c.Start(t, 0)
			stop = nil
		}
		return post()
	})
	return f.provoked
}

// programFails: a fault of the program itself, in place of the handler of reports, as no client can cause one.
func programFails(t *testing.T) []problem.Name {
	c := relaytest.New(t, relaytest.Options{Hops: 1, Task: large})
	r, _ := c.StartRelay(t, 0)
	f := &refusing{Cascade: c}
	mux := http.NewServeMux()
	mux.HandleFunc("POST "+endpoint.ReportsPath, service.Answer(slog.New(slog.DiscardHandler),
		relay.Counted(r, func(http.ResponseWriter, *http.Request) error { return errors.New("a fault") })))
	broken := httptest.NewServer(mux)
	defer broken.Close()
	f.shows(t, problem.Internal, mostly(problem.Internal), func() error {
		url := strings.Replace(c.ReportsURL(0), c.Open.Relays[0].URL, broken.URL, 1)
		resp, err := http.Post(url, "application/msgpack", nil)
		require.NoError(t, err)
		defer resp.Body.Close()
		return problem.Read(resp)
	}, func() error { return f.next(t, 0, c.Seal(t, 0, 1)) })
	return f.provoked
}

// singleReports: pages report to the first table of a set, in place of the set.
func singleReports(t *testing.T) []problem.Name {
	c := relaytest.New(t, relaytest.Options{Hops: 1, Task: large, Set: setOf(10_000, hoursOf(1, 2))})
	c.Start(t, 0)
	f, table, sealer := &refusing{Cascade: c}, c.Table(t, 0), c.SetSealer(t)
	f.shows(t, problem.SetOnly, mostly(problem.SetOnly), func() error {
		return table.Post(t.Context(), 0, table.Seal(t, 0, 1), relaytest.Network(1))
	}, func() error {
		f.n++
		body, err := sealer.Seal(0, cells(c.OpenSet(), 0, 1))
		require.NoError(t, err)
		return c.PostSet(t.Context(), 0, body, relaytest.Network(f.n))
	})
	return f.provoked
}
