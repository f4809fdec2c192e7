package relay_test

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/doona-dp/doona/internal/testing/relaytest"
	"github.com/doona-dp/doona/relay"
	"github.com/doona-dp/doona/wire/handover"
	"github.com/doona-dp/doona/wire/signing"
	"github.com/doona-dp/doona/wire/task"
)

// FuzzHandler passes any request that net/http accepts to a running relay. In the text of a request, {task} stands for
// the task's id, {report} for a new submission, {pull} and {confirm} for the next hop's signatures for batches 1 and 0,
// and {length} for the length of the body. No request may make the relay fail. The relay may acknowledge only unchanged
// submissions, serve batches only to the next hop, and must refuse everything else with a known problem.
func FuzzHandler(f *testing.F) {
	r, c := fuzzedRelay(f)
	handler := r.Handler()
	next := c.SignKey(f, 1)
	batch, err := handover.NewRequester(next, nil).Pull(f.Context(), c.Open, 0, 0, 0)
	require.NoError(f, err)
	for _, seed := range requests {
		f.Add([]byte(strings.ReplaceAll(seed, "\n", "\r\n")))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		pull := handover.Signed(next, signing.Pull, handover.Body(c.Open.ID, 0, 1, 0, handover.HistoryDigest{}))
		confirm := handover.Signed(next, signing.Confirm, handover.ConfirmBody(c.Open.ID, 0, 0, batch.Manifest))
		report := []byte{}
		if bytes.Contains(text, []byte("{report}")) {
			report = c.Seal(t, 0, 7)
		}
		for _, part := range []struct {
			name string
			text []byte
		}{
			{"{task}", []byte(c.Open.ID.String())}, {"{report}", report},
			{"{pull}", []byte(pull)}, {"{confirm}", []byte(confirm)},
		} {
			text = bytes.Replace(text, []byte(part.name), part.text, 1)
		}
		_, body, _ := bytes.Cut(text, []byte("\r\n\r\n"))
		text = bytes.Replace(text, []byte("{length}"), fmt.Append(nil, len(body)), 1)
		req, err := http.ReadRequest(bufio.NewReader(bytes.NewReader(text)))
		if err != nil {
			return
		}
		sent, bodyErr := io.ReadAll(req.Body)
		req.Body = io.NopCloser(io.MultiReader(bytes.NewReader(sent), failing{bodyErr}))
		req.RemoteAddr = "127.0.0.1:999"
		w := httptest.NewRecorder()
		handler.ServeHTTP(w, req)
		resp := w.Result()
		signature := req.Header.Get(handover.Header)
		switch {
		case resp.StatusCode == http.StatusCreated:
			require.NoError(t, bodyErr)
			require.Equal(t, report, sent, "the relay accepted a changed submission")
		case strings.Contains(req.URL.Path, "/batches/") && resp.StatusCode/100 == 2:
			require.Contains(t, []string{pull, confirm}, signature)
		case resp.StatusCode/100 == 2: // a task, key lists, a preflight
		case resp.StatusCode/100 != 3 && (req.Method == http.MethodConnect || req.RequestURI == "*"):
			// net/http's own answer
		default:
			requireRefusal(t, w)
		}
	})
}

// failing ends a body with the error err, or with io.EOF if err is nil.
type failing struct{ err error }

func (f failing) Read([]byte) (int, error) {
	if f.err != nil {
		return 0, f.err
	}
	return 0, io.EOF
}

// fuzzedRelay runs a first relay that has sealed two batches.
func fuzzedRelay(f *testing.F) (*relay.Relay, *relaytest.Cascade) {
	f.Helper()
	c := relaytest.New(f, relaytest.Options{
		Task: func(t *task.Task) { t.Clients.Quota = 65535 },
		Config: func(_ int, cfg *relay.Config) {
			cfg.Log, cfg.PullInterval = slog.New(slog.DiscardHandler), time.Hour
		},
	})
	r, _ := c.StartRelay(f, 0)
	for i := range 20 {
		require.NoError(f, c.Post(f.Context(), 0, c.Seal(f, 0, uint64(i)), relaytest.Network(i)))
	}
	next := handover.NewRequester(c.SignKey(f, 1), nil)
	require.Eventually(f, func() bool {
		_, err := next.Pull(f.Context(), c.Open, 0, 0, 1)
		return err == nil
	}, relaytest.Patience, 10*time.Millisecond)
	return r, c
}

// requests are the seeds of FuzzHandler.
var requests = []string{
	"GET /v1/tasks/{task} HTTP/1.1\nHost: relay\n\n",
	"GET /v1/keys HTTP/1.1\nHost: relay\n\n",
	"OPTIONS /v1/tasks/{task}/epochs/0/reports HTTP/1.1\nHost: relay\n\n",
	"POST /v1/tasks/{task}/epochs/0/reports HTTP/1.1\nHost: relay\nContent-Type: " +
		"application/msgpack\nX-Forwarded-For: 1.2.3.4\nContent-Length: {length}\n\n{report}",
	"POST /v1/tasks/{task}/epochs/0/reports HTTP/1.1\nHost: relay\nContent-Type: application/msgpack; " +
		"x=y\nTransfer-Encoding: chunked\n\n2\n\x92\x01\n0\n\n",
	"POST /v1/tasks/{task}/epochs/0/reports HTTP/1.1\nHost: relay\nContent-Type: " +
		"application/msgpack\nContent-Length: 99\n\n\x92\x01",
	"POST /v1/tasks/{task}/epochs/1/reports HTTP/1.1\nHost: relay\nContent-Type: " +
		"application/msgpack\nContent-Length: {length}\n\n{report}",
	"POST /v1/tasks/{task}/epochs/18446744073709551615/reports HTTP/1.1\nHost: relay\nContent-Type: " +
		"text/plain\nContent-Length: 0\n\n",
	"POST /v1/tasks/{task}/epochs/-0/reports HTTP/1.1\nHost: relay\nContent-Type: " +
		"application/msgpack\nContent-Length: {length}\n\n{report}",
	"GET /v1/tasks/{task}/epochs/0/batches/1 HTTP/1.1\nHost: relay\nDoona-Signature: {pull}\n\n",
	"GET /v1/tasks/{task}/epochs/0/batches/0 HTTP/1.1\nHost: relay\nDoona-Signature: {pull}\n\n",
	"GET /v1/tasks/{task}/epochs/00/batches/01 HTTP/1.1\nHost: relay\nDoona-Signature: {pull}\n\n",
	"GET /v1/tasks/{task}/epochs/0/batches/9223372036854775807 HTTP/1.1\nHost: relay\nDoona-Signature: AAAA\n\n",
	"POST /v1/tasks/{task}/epochs/0/batches/0/confirm HTTP/1.1\nHost: relay\nDoona-Signature: {confirm}\n\n",
	"POST /v1/tasks/{task}/epochs/0/batches/1/confirm HTTP/1.1\nHost: relay\nDoona-Signature: {confirm}\n\n",
	"GET /v1/tasks/{task}/epochs/0%2f..%2f/batches//1 HTTP/1.1\nHost: relay\n\n",
	"GET //evil.example/.. HTTP/1.1\nHost: relay\n\n",
	"CONNECT evil.example:443 HTTP/1.1\nHost: evil.example:443\n\n",
	"GET * HTTP/1.0\n\n",
}
