package relay_test

import (
	"bytes"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/doona-dp/doona/internal/testing/relaytest"
	"github.com/doona-dp/doona/relay"
	"github.com/doona-dp/doona/wire/problem"
	"github.com/doona-dp/doona/wire/task"
)

// Origins of pages: the test tasks list ownPage, and do not list foreignPage.
const (
	ownPage     = "https://shop.example"
	foreignPage = "https://advertiser.example"
)

func withOrigins(t *task.Task) {
	t.Clients.Origins = []string{"https://*.cdn.example:8443", ownPage}
}

// response is all that a page, or an observer of the connection, sees of an answer, except the Date header.
type response struct {
	status int
	header http.Header
	body   string
}

// send makes a request with the given Origin headers, as a page does; a program sends none.
func send(t *testing.T, method, url string, body []byte, client string, origins ...string) response {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, url, bytes.NewReader(body))
	require.NoError(t, err)
	req.Header["Origin"] = origins
	req.Header.Set("X-Forwarded-For", client)
	resp, err := http.DefaultClient.Do(req)
	require.NoError(t, err)
	defer resp.Body.Close()
	raw, err := io.ReadAll(resp.Body)
	require.NoError(t, err)
	resp.Header.Del("Date")
	return response{resp.StatusCode, resp.Header, string(raw)}
}

// TestForeignPages: a page whose origin the task does not list must always get the same answer, which it cannot read,
// whatever reports came before. It must not make an honest client of its network lose a report. The log must show no
// origin.
func TestForeignPages(t *testing.T) {
	var log bytes.Buffer
	c := relaytest.New(t, relaytest.Options{Hops: 1, Task: withOrigins, Config: func(_ int, cfg *relay.Config) {
		cfg.MaxConcurrent = 1
		cfg.Log = slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelDebug}))
	}})
	stop := c.Start(t, 0)
	const victim, other = "198.51.100.1", "203.0.113.1"
	body, late := c.Seal(t, 0, 1), c.Seal(t, 0, 2)
	foreign := func(epoch uint64, body []byte) response {
		return send(t, http.MethodPost, c.ReportsURL(epoch), body, victim, foreignPage)
	}
	want := foreign(0, body)
	require.Equal(t, http.StatusForbidden, want.status)
	require.Contains(t, want.body, `"urn:doona:error:foreign-origin"`)
	require.Empty(t, want.header.Values("Access-Control-Allow-Origin"))
	require.Equal(t, "Origin", want.header.Get("Vary"))
	same := func(when string) {
		t.Helper()
		for name, body := range map[string][]byte{"its own report": c.Seal(t, 0, 9), "a copy": body, "nothing": nil,
			"too much": make([]byte, 1<<20)} {
			require.Equal(t, want, foreign(0, body), "%s: %s", when, name)
		}
	}
	same("before anybody has reported")
	before := relaytest.KeptOf(t, c, 0, "store", "secret", "keys")

	slow := startSlowly(t, c, other)
	same("while the relay is full")
	slow.Close()
	eventuallyTaken(t, c, body, victim)
	require.ErrorIs(t, c.Post(t.Context(), 0, late, victim), problem.New(problem.Limit, ""))
	require.ErrorIs(t, c.Post(t.Context(), 0, body, other), problem.New(problem.Replayed, ""))
	same("after the network has reported")
	require.Equal(t, want, foreign(1, body), "an epoch that is not open")
	require.Equal(t, want, foreign(1<<62, body), "an epoch that does not exist")

	accepted := send(t, http.MethodPost, c.ReportsURL(0), late, other, ownPage)
	require.Equal(t, http.StatusCreated, accepted.status)
	require.Equal(t, ownPage, accepted.header.Get("Access-Control-Allow-Origin"))
	require.Equal(t, "Origin", accepted.header.Get("Vary"))

	stop()
	before.Restore(t, c, 0, "store")
	stop = startStopped(t, c, 0)
	require.Eventually(t, func() bool {
		return errors.Is(c.Post(t.Context(), 0, body, victim), problem.New(problem.StateRolledBack, ""))
	}, relaytest.Patience, 10*time.Millisecond)
	same("after a state rollback")
	stop()
	require.NotContains(t, log.String(), "advertiser")
	require.NotContains(t, log.String(), "shop.example")
}

// TestForeignPagesAfterTheEnd: the answer must stay the same when the epoch is over and its key is erased. Refusals of
// foreign pages must be counted like other refusals, without their origins.
func TestForeignPagesAfterTheEnd(t *testing.T) {
	c := relaytest.New(t, relaytest.Options{Hops: 1, Task: withOrigins})
	r, stop := c.StartRelay(t, 0)
	defer stop()
	body := c.Seal(t, 0, 1)
	foreign := func() response {
		return send(t, http.MethodPost, c.ReportsURL(0), body, "198.51.100.1", foreignPage)
	}
	want := foreign()
	for range 2 {
		require.Equal(t, want, foreign())
	}
	c.Clock.Advance(relaytest.Epoch + 10*time.Minute)
	requireProblem(t, problem.EpochClosed, c.Post(t.Context(), 0, body, "203.0.113.1"))
	require.Equal(t, want, foreign())
	require.Eventually(t, func() bool {
		status, err := r.Status(t.Context())
		require.NoError(t, err)
		return len(status.Tasks) > 0 && len(status.Tasks[0].Epochs) > 0 &&
			status.Tasks[0].Epochs[0].Refused["foreign-origin"] == 4 // 3, rounded up
	}, relaytest.Patience, 10*time.Millisecond)
}

// TestAcceptedOrigins: the relay must accept reports of programs and of pages with listed origins, and no others.
func TestAcceptedOrigins(t *testing.T) {
	list := []string{"https://*.cdn.example:8443", ownPage}
	for i, tt := range []struct {
		name     string
		listed   []string
		origins  []string
		read     string // origin that may read the answer
		accepted bool
	}{
		{"a program", list, nil, "", true},
		{"the page", list, []string{ownPage}, ownPage, true},
		{"a page below", list, []string{"https://a.b.cdn.example:8443"}, "https://a.b.cdn.example:8443", true},
		{"the domain itself", list, []string{"https://cdn.example:8443"}, "", false},
		{"another scheme", list, []string{"http://shop.example"}, "", false},
		{"another port", list, []string{ownPage + ":8443"}, "", false},
		{"a frame without an origin", list, []string{"null"}, "", false},
		{"a listed null", []string{"null"}, []string{"null"}, "null", true},
		{"an empty header", list, []string{""}, "", false},
		{"the page twice", list, []string{ownPage, ownPage}, "", false},
		{"the page and another", list, []string{ownPage, foreignPage}, "", false},
		{"a list", list, []string{ownPage + " " + foreignPage}, "", false},
		{"overlong", list, []string{"https://" + strings.Repeat("a.", 8000) + "cdn.example:8443"}, "", false},
		{"any page if the task lists none", nil, []string{foreignPage}, "*", true},
		{"any Origin header if the task lists none", nil, []string{"null", "x"}, "*", true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			c := relaytest.New(t, relaytest.Options{Hops: 1,
				Task: func(t *task.Task) { t.Clients.Origins = tt.listed }})
			c.Start(t, 0)
			want := map[bool]int{true: http.StatusCreated, false: http.StatusForbidden}[tt.accepted]
			got := send(t, http.MethodPost, c.ReportsURL(0), c.Seal(t, 0, 1), relaytest.Network(i), tt.origins...)
			require.Equal(t, want, got.status, got.body)
			require.Equal(t, tt.read, got.header.Get("Access-Control-Allow-Origin"))
			asked := send(t, http.MethodOptions, c.ReportsURL(0), nil, relaytest.Network(i), tt.origins...)
			want = map[bool]int{true: http.StatusNoContent, false: http.StatusForbidden}[tt.accepted]
			require.Equal(t, want, asked.status)
			require.Equal(t, tt.read, asked.header.Get("Access-Control-Allow-Origin"))
			require.Equal(t, tt.accepted, asked.header.Get("Access-Control-Allow-Methods") == "POST")
			bundle := send(t, http.MethodGet, c.TaskURL(0), nil, relaytest.Network(i), foreignPage)
			require.Equal(t, "*", bundle.header.Get("Access-Control-Allow-Origin"), "the task is public")
		})
	}
}

// TestForeignPagesSpendNoToken: the relay must check a report's origin before its token.
func TestForeignPagesSpendNoToken(t *testing.T) {
	c := relaytest.New(t, relaytest.Options{Hops: 1, Task: func(t *task.Task) {
		relaytest.WithTokens(t)
		withOrigins(t)
	}})
	c.StartIssuer(t, c.IssuerConfig())
	c.Start(t, 0)
	waitForKey(t, c)
	tok, body := c.Token(t, 0), c.Seal(t, 0, 1)
	post := func(origin string, header http.Header) error {
		if header == nil {
			header = http.Header{}
		}
		header.Set("Origin", origin)
		return c.PostWith(t.Context(), 0, body, header)
	}
	for _, header := range []http.Header{nil, with(tok), {"Authorization": {"PrivateToken token=x"}}} {
		requireProblem(t, problem.ForeignOrigin, post(foreignPage, header))
	}
	requireProblem(t, problem.TokenMissing, post(ownPage, nil))
	require.NoError(t, post(ownPage, with(tok)))
}

// TestQuotaIsDrawn: for a task's quota q above 1, the relay draws each network's own quota between q and 2q−1, with the
// epoch's secret. So a client that sends until it is refused cannot tell how many reports others in its network have
// sent. The answer must not reveal it either.
func TestQuotaIsDrawn(t *testing.T) {
	const quota, networks = 3, 40
	c := relaytest.New(t, relaytest.Options{Hops: 1, Task: func(t *task.Task) {
		t.Clients.Quota, t.Batch.Size = quota, 1000
	}})
	c.Start(t, 0)
	sent := func(epoch uint64) (numbers [networks]int) {
		for i := range networks {
			for ; ; numbers[i]++ {
				err := c.Post(t.Context(), epoch, c.Seal(t, epoch, 1), relaytest.Network(i))
				if err == nil {
					continue
				}
				require.Empty(t, requireProblem(t, problem.Limit, err).Detail)
				break
			}
		}
		return numbers
	}
	first := sent(0)
	seen := map[int]int{}
	for _, n := range first {
		seen[n]++
	}
	require.Len(t, seen, quota, "a value is missing by chance with probability 3·(2/3)⁴⁰, 3·10⁻⁷")
	for n := range seen {
		require.GreaterOrEqual(t, n, quota)
		require.Less(t, n, 2*quota)
	}
	c.Clock.Advance(relaytest.Epoch)
	require.NotEqual(t, first, sent(1), "another epoch, another draw")
}
