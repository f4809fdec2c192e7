package report_test

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/doona-dp/doona/internal/testing/relaytest"
	"github.com/doona-dp/doona/verifier/report"
)

// TestPagesNameOnlyTasks: requests for unknown tasks, for paths and numbers that only relays know, and for 10,000
// made-up tasks must get no answer. The list of tasks must not change.
func TestPagesNameOnlyTasks(t *testing.T) {
	c := newCascade(t)
	id := c.Open.ID.String()
	handler := report.NewSite(newVerifier(t, c)).Handler()
	list := func() string {
		w := httptest.NewRecorder()
		handler.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "http://127.0.0.1/api/tasks", nil))
		require.Equal(t, http.StatusOK, w.Code)
		return w.Body.String()
	}
	before := list()
	require.Contains(t, before, id)
	var kinds [][]*http.Request
	for _, path := range []string{"/tasks/" + id + "00/", "/tasks/" + strings.ToUpper(id) + "/", "/tasks/" + id[:62] + "/",
		"/tasks/18446744073709551615/", "/tasks/" + strings.Repeat("0", 1<<12) + "/", "/tasks/" + id + "/api/report/1",
		"/tasks/" + id + "/epochs/0/batches/9223372036854775807", "/v1/tasks/" + id + "/epochs/0/reports"} {
		kinds = append(kinds, []*http.Request{httptest.NewRequest(http.MethodGet, path, nil),
			httptest.NewRequest(http.MethodPost, path, strings.NewReader("x"))})
	}
	relaytest.Flood(t, handler, kinds)
	require.Equal(t, before, list())
}
