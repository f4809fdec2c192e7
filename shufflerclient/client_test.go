package shufflerclient_test

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/doona-dp/doona/internal/invalid"
	"github.com/doona-dp/doona/internal/testing/relaytest"
	"github.com/doona-dp/doona/planner"
	"github.com/doona-dp/doona/shufflerclient"
	"github.com/doona-dp/doona/wire/keyfile"
	"github.com/doona-dp/doona/wire/problem"
	"github.com/doona-dp/doona/wire/task"
	"github.com/doona-dp/doona/wire/taskfile"
)

func newCascade(t *testing.T, change func(*task.Task)) *relaytest.Cascade {
	t.Helper()
	return relaytest.New(t, relaytest.Options{Task: func(draft *task.Task) {
		calibrated, err := planner.Draft(planner.Query{Name: "test", Query: task.Mean, Hi: 10, Batch: 20, Honest: 0.9,
			Epsilon: 2, Delta: 1e-4})
		require.NoError(t, err)
		calibrated.Epochs = draft.Epochs
		*draft = *calibrated
		if change != nil {
			change(draft)
		}
	}})
}

func options(c *relaytest.Cascade) shufflerclient.Options {
	return shufflerclient.Options{Task: c.TaskURL(0), Owner: c.Owner, MaxEpsilon: 4}
}

// serving returns a server that answers every request for the cascade's task with body. It returns the URL of the task
// at this server.
func serving(t *testing.T, c *relaytest.Cascade, body []byte) string {
	t.Helper()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.Write(body) }))
	t.Cleanup(server.Close)
	return server.URL + c.TaskURL(0)[strings.Index(c.TaskURL(0), "/v1/"):]
}

func TestConnectRefusesATaskThatIsNotTheOwners(t *testing.T) {
	c := newCascade(t, nil)
	c.Start(t, 0)
	_, err := shufflerclient.Connect(t.Context(), options(c))
	require.NoError(t, err)

	stranger, err := keyfile.NewSign(filepath.Join(t.TempDir(), "stranger.key"))
	require.NoError(t, err)
	raw, err := os.ReadFile(filepath.Join(c.Dir, "task0.bundle"))
	require.NoError(t, err)
	tampered := append([]byte{}, raw...)
	tampered[len(tampered)/4] ^= 1
	resigned, err := taskfile.Sign(c.Open.Task, stranger, c.Open.KeyLists)
	require.NoError(t, err)
	forged, err := resigned.Bytes()
	require.NoError(t, err)

	other := newCascade(t, func(draft *task.Task) { draft.Name = "another" })
	otherRaw, err := os.ReadFile(filepath.Join(other.Dir, "task0.bundle"))
	require.NoError(t, err)

	for name, bad := range map[string]shufflerclient.Options{
		"another owner":         {Task: c.TaskURL(0), Owner: other.Owner, MaxEpsilon: 4},
		"no owner":              {Task: c.TaskURL(0), MaxEpsilon: 4},
		"unknown task":          {Task: c.TaskURL(0)[:len(c.TaskURL(0))-1] + "x", Owner: c.Owner, MaxEpsilon: 4},
		"tampered":              {Task: serving(t, c, tampered), Owner: c.Owner, MaxEpsilon: 4},
		"truncated":             {Task: serving(t, c, raw[:len(raw)-1]), Owner: c.Owner, MaxEpsilon: 4},
		"empty":                 {Task: serving(t, c, nil), Owner: c.Owner, MaxEpsilon: 4},
		"signed by a stranger":  {Task: serving(t, c, forged), Owner: c.Owner, MaxEpsilon: 4},
		"another task's bundle": {Task: serving(t, c, otherRaw), Owner: other.Owner, MaxEpsilon: 4},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := shufflerclient.Connect(t.Context(), bad)
			require.Error(t, err)
		})
	}
}

func TestConnectBoundsTheLossOverAllEpochs(t *testing.T) {
	c := newCascade(t, nil) // epsilon is 2 in each of two epochs, and 3.63 composed over both
	var field *invalid.FieldError
	for _, most := range []float64{0, 3.6} {
		_, err := shufflerclient.New(c.Open, shufflerclient.Options{MaxEpsilon: most})
		require.ErrorAs(t, err, &field)
		require.Equal(t, "MaxEpsilon", field.Field)
	}
	for _, most := range []float64{3.7, 4} { // 3.7 is within the composed bound; 4 is within the plain sum
		_, err := shufflerclient.New(c.Open, shufflerclient.Options{MaxEpsilon: most})
		require.NoError(t, err)
	}
}

func TestConnectBoundsDeltaOverAllEpochs(t *testing.T) {
	c := newCascade(t, func(draft *task.Task) { draft.Claim.Delta = task.NewDelta("1e-3") }) // in each of two epochs
	var field *invalid.FieldError
	for _, most := range []float64{0, 1.9e-3, -1, 1.1} {
		_, err := shufflerclient.New(c.Open, shufflerclient.Options{MaxEpsilon: 4, MaxDelta: most})
		require.ErrorAs(t, err, &field)
		require.Equal(t, "MaxDelta", field.Field)
	}
	_, err := shufflerclient.New(c.Open, shufflerclient.Options{MaxEpsilon: 4, MaxDelta: 2e-3})
	require.NoError(t, err)
}

func TestConnectRefusesAClaimTheParametersDoNotProve(t *testing.T) {
	c := newCascade(t, func(draft *task.Task) { draft.Claim.Epsilon = task.NewEpsilon("1.9") })
	_, err := shufflerclient.New(c.Open, shufflerclient.Options{MaxEpsilon: 4})
	var field *invalid.FieldError
	require.ErrorAs(t, err, &field)
	require.Equal(t, "claim.delta", field.Field)
}

func TestReportsAreOfOneSizeAndRefuseBadValues(t *testing.T) {
	c := newCascade(t, nil)
	client, err := shufflerclient.New(c.Open, options(c))
	require.NoError(t, err)
	small, err := client.Report(0, []float64{0})
	require.NoError(t, err)
	large, err := client.Report(1, []float64{10})
	require.NoError(t, err)
	require.Len(t, large.Body, len(small.Body))
	_, err = client.Report(0, []float64{11})
	require.ErrorContains(t, err, "value")
	_, err = client.Report(2, []float64{1})
	require.ErrorContains(t, err, "epoch")
}

// flaky returns a server that first answers with the given problems and then accepts reports. It also returns the
// bodies that the server receives.
func flaky(t *testing.T, answers ...*problem.Problem) (*httptest.Server, *[]string) {
	t.Helper()
	var bodies []string
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			w.WriteHeader(http.StatusInternalServerError)
			return
		}
		bodies = append(bodies, string(body))
		if len(bodies) <= len(answers) {
			answers[len(bodies)-1].Write(w)
			return
		}
		w.WriteHeader(http.StatusCreated)
	}))
	t.Cleanup(server.Close)
	return server, &bodies
}

func TestSubmitRetriesTheSameBytesOnlyWhereTimeHelps(t *testing.T) {
	for name, c := range map[string]struct {
		answers []*problem.Problem
		tries   int
		refused problem.Name
	}{
		"overloaded, then accepted": {[]*problem.Problem{problem.New(problem.Overloaded, ""),
			problem.New(problem.Internal, "")}, 3, ""},
		"slow down, then accepted": {[]*problem.Problem{problem.New(problem.SlowDown, "").Retry(time.Second)}, 2, ""},
		"an hour's wait": {[]*problem.Problem{problem.New(problem.Overloaded, "").Retry(time.Hour)}, 1,
			problem.Overloaded},
		"a proxy's answer":      {[]*problem.Problem{{Status: http.StatusTooManyRequests}}, 2, ""},
		"a proxy's page":        {[]*problem.Problem{{Status: http.StatusOK}, {Status: http.StatusAccepted}}, 3, ""},
		"stored from elsewhere": {[]*problem.Problem{problem.New(problem.Replayed, "")}, 1, ""},
		"limit":                 {[]*problem.Problem{problem.New(problem.Limit, "")}, 1, problem.Limit},
		"closed":                {[]*problem.Problem{problem.New(problem.EpochClosed, "")}, 1, problem.EpochClosed},
		"does not open":         {[]*problem.Problem{problem.New(problem.DoesNotOpen, "")}, 1, problem.DoesNotOpen},
	} {
		t.Run(name, func(t *testing.T) {
			server, bodies := flaky(t, c.answers...)
			cascade := newCascade(t, nil)
			cascade.Open.Relays[0].URL = server.URL
			client, err := shufflerclient.New(cascade.Open, options(cascade))
			require.NoError(t, err)
			report, err := client.Report(0, []float64{5})
			require.NoError(t, err)
			err = client.Submit(t.Context(), report)
			require.Len(t, *bodies, c.tries)
			for _, body := range *bodies {
				require.Equal(t, string(report.Body), body)
			}
			if c.refused == "" {
				require.NoError(t, err)
				return
			}
			var refusal *problem.Problem
			require.True(t, errors.As(err, &refusal))
			require.Equal(t, c.refused, refusal.Name)
		})
	}
}

// goingAway is the listener of an HTTP/2 server. Its first connections end with GOAWAY in the middle of a request.
type goingAway struct {
	net.Listener
	server *httptest.Server
	last   []byte // for each of these connections: the last stream that it claims to have handled
	ended  atomic.Int64
}

func (g *goingAway) Accept() (net.Conn, error) {
	conn, err := g.Listener.Accept()
	if n := int(g.ended.Load()); err == nil && n < len(g.last) {
		if g.end(tls.Server(conn, g.server.TLS), g.last[n]) {
			g.ended.Add(1)
		}
		return g.Accept()
	}
	return conn, err
}

// end reads the header of an HTTP/2 request and answers with GOAWAY. Frames are those of RFC 9113, section 4.1.
func (g *goingAway) end(conn net.Conn, last byte) bool {
	defer conn.Close()
	const preface, headers = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", 1
	begun := make([]byte, len(preface))
	if _, err := io.ReadFull(conn, begun); err != nil || string(begun) != preface {
		return false
	}
	conn.Write([]byte{0, 0, 0, 4, 0, 0, 0, 0, 0}) // SETTINGS
	for kind := byte(0); kind != headers; {
		var head [9]byte
		if _, err := io.ReadFull(conn, head[:]); err != nil {
			return false
		}
		kind = head[3]
		if _, err := io.CopyN(io.Discard, conn, int64(head[0])<<16|int64(head[1])<<8|int64(head[2])); err != nil {
			return false
		}
	}
	_, err := conn.Write([]byte{0, 0, 8, 7, 0, 0, 0, 0, 0, 0, 0, 0, last, 0, 0, 0, 0}) // GOAWAY
	return err == nil
}

// TestSubmitAfterGoAway: a balancer may end an HTTP/2 connection in the middle of a report, and say that it has not
// handled the report, or not say it. The client must send the same bytes again.
func TestSubmitAfterGoAway(t *testing.T) {
	server, bodies := flaky(t)
	away := &goingAway{last: []byte{0, 1, 0}}
	two := httptest.NewUnstartedServer(server.Config.Handler)
	away.Listener, away.server, two.EnableHTTP2 = two.Listener, two, true
	two.Listener = away
	two.StartTLS()
	t.Cleanup(two.Close)
	cascade := newCascade(t, nil)
	cascade.Open.Relays[0].URL = two.URL
	o := options(cascade)
	o.HTTP = two.Client()
	client, err := shufflerclient.New(cascade.Open, o)
	require.NoError(t, err)
	report, err := client.Report(0, []float64{5})
	require.NoError(t, err)
	require.NoError(t, client.Submit(t.Context(), report))
	require.Equal(t, []string{string(report.Body)}, *bodies)
	require.EqualValues(t, len(away.last), away.ended.Load())
}

// TestAWrongClockIsNamed: a client whose report is for another epoch must learn by how much its clock differs. If the
// clocks agree, the error must not mention them.
func TestAWrongClockIsNamed(t *testing.T) {
	for off, want := range map[time.Duration]string{0: "", time.Minute: "",
		-20 * time.Minute: "about 20 minutes ahead of the relay's", 3 * time.Hour: "about 180 minutes behind the relay's",
	} {
		server, _ := flaky(t, problem.New(problem.EpochClosed, "").At(time.Now().Add(off)))
		cascade := newCascade(t, nil)
		cascade.Open.Relays[0].URL = server.URL
		client, err := shufflerclient.New(cascade.Open, options(cascade))
		require.NoError(t, err)
		report, err := client.Report(0, []float64{5})
		require.NoError(t, err)
		err = client.Submit(t.Context(), report)
		require.ErrorIs(t, err, problem.New(problem.EpochClosed, ""))
		require.ErrorContains(t, err, want)
		require.Equal(t, want == "", !strings.Contains(err.Error(), "clock"), "%v", err)
	}
}

// TestSubmitDoesNotOutwaitItsContext: if the relay asks for a wait beyond ctx's deadline, Submit must return at once.
func TestSubmitDoesNotOutwaitItsContext(t *testing.T) {
	server, bodies := flaky(t, problem.New(problem.Overloaded, "").Retry(50*time.Second))
	cascade := newCascade(t, nil)
	cascade.Open.Relays[0].URL = server.URL
	client, err := shufflerclient.New(cascade.Open, options(cascade))
	require.NoError(t, err)
	report, err := client.Report(0, []float64{5})
	require.NoError(t, err)
	ctx, cancel := context.WithTimeout(t.Context(), 40*time.Second)
	defer cancel()
	require.ErrorIs(t, client.Submit(ctx, report), problem.New(problem.Overloaded, ""))
	require.NoError(t, ctx.Err(), "Submit must return before the deadline")
	require.Len(t, *bodies, 1)
}

func TestRedirectsAreNotFollowed(t *testing.T) {
	other := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter,
		*http.Request) {
		t.Error("another host got a request")
	}))
	defer other.Close()
	server := httptest.NewServer(http.RedirectHandler(other.URL, http.StatusTemporaryRedirect))
	defer server.Close()
	_, err := shufflerclient.Connect(t.Context(),
		shufflerclient.Options{Task: server.URL + "/v1/tasks/x", Owner: newCascade(t, nil).Owner, MaxEpsilon: 4})
	require.Error(t, err)
}
