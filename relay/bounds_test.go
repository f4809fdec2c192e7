package relay_test

import (
	"encoding/base64"
	"io/fs"
	"math"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/doona-dp/doona/internal/relaytest"
	"github.com/doona-dp/doona/relay"
	"github.com/doona-dp/doona/wire/handover"
	"github.com/doona-dp/doona/wire/onion"
	"github.com/doona-dp/doona/wire/problem"
)

// filesIn returns the content of all files below a folder.
func filesIn(t *testing.T, folder string) map[string]string {
	t.Helper()
	files := map[string]string{}
	require.NoError(t, filepath.WalkDir(folder, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || !entry.Type().IsRegular() {
			return err
		}
		raw, err := os.ReadFile(path)
		files[path] = string(raw)
		return err
	}))
	return files
}

// relayFolder is where a relay's store, secret and keys are.
func relayFolder(c *relaytest.Cascade, hop int) string { return filepath.Dir(c.RelayConfig(hop + 1)) }

// stillRelay returns a relay whose handlers answer, and which does nothing by itself.
func stillRelay(t *testing.T, c *relaytest.Cascade, hop int) *relay.Relay {
	t.Helper()
	r, err := relay.New(c.Config(t, hop))
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, r.Close()) })
	return r
}

// answerOf returns what a handler answers, and the problem in it.
func answerOf(handler http.Handler, req *http.Request) (*http.Response, *problem.Problem) {
	w := httptest.NewRecorder()
	handler.ServeHTTP(w, req)
	resp := w.Result()
	if resp.StatusCode/100 == 2 {
		return resp, nil
	}
	return resp, problem.Read(resp)
}

// at returns a request for the path of a URL.
func at(method, url string) *http.Request {
	_, rest, _ := strings.Cut(url, "://")
	return httptest.NewRequest(method, rest[strings.Index(rest, "/"):], nil)
}

// TestPullBeyondTheTasksEpochs: a next hop that asks for an epoch that the task does not have is refused, whatever it
// says that it has had, and nothing is written: no epoch, no finding and no mark.
func TestPullBeyondTheTasksEpochs(t *testing.T) {
	c := relaytest.New(t, relaytest.Options{})
	key := c.SignKey(t, 1)
	r := stillRelay(t, c, 0)
	handler := r.Handler()
	before := filesIn(t, relayFolder(c, 0))
	for _, had := range []handover.Before{{}, {1}} {
		for _, epoch := range []uint64{c.Open.Epochs.Count, c.Open.Epochs.Count + 1, math.MaxInt64, math.MaxUint64} {
			for _, seq := range []uint64{0, 1, 2, 65536} {
				req := at(http.MethodGet, c.Open.BatchURL(0, epoch, seq))
				body := handover.Body(c.Open.ID, epoch, seq, 0, had)
				req.Header.Set(handover.Header, handover.Signed(key, onion.SignPull, body))
				if had != (handover.Before{}) {
					req.Header.Set(handover.BeforeHeader, base64.RawURLEncoding.EncodeToString(had[:]))
				}
				_, p := answerOf(handler, req)
				require.ErrorIs(t, p, problem.New(problem.EpochNotOpen, ""))
				require.Contains(t, p.Detail, "epochs 0 to "+strconv.FormatUint(c.Open.Epochs.Count-1, 10))
			}
		}
	}
	require.Equal(t, before, filesIn(t, relayFolder(c, 0)))
}
