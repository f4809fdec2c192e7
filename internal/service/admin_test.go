package service_test

import (
	"context"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/doona-dp/doona/internal/service"
)

// TestAdminIsPlainAndItsOwn: answers of an admin address do not control a terminal. A web page whose host name resolves
// to the address cannot read the answers, unless admin_hosts lists that name.
func TestAdminIsPlainAndItsOwn(t *testing.T) {
	const hostile = "a\u202eb\x1b[2J"
	metrics := service.NewMetrics([]service.Metric{service.Gauge("x", service.UnitCount, "help", "neighbour")})
	metrics.Set("x", 1, hostile)
	admin := service.Admin{Ready: func(context.Context) error { return nil },
		Status: func(context.Context) (any, error) { return hostile, nil }, UpdateGauges: func(context.Context) {},
		Metrics: metrics, Address: "relay.example:9081", Hosts: []string{"scraped"}}
	handler := admin.Handler(slog.New(slog.DiscardHandler))
	get := func(host, path string) *httptest.ResponseRecorder {
		w := httptest.NewRecorder()
		handler.ServeHTTP(w, httptest.NewRequest("GET", "http://"+host+path, nil))
		return w
	}
	require.Equal(t, `"a\u202eb\u001b[2J"`, get("127.0.0.1:9081", "/status").Body.String())
	require.Contains(t, get("scraped:9081", "/metrics").Body.String(), `x{neighbour="a\\u202eb\\x1b[2J"} 1`)
	for _, path := range []string{"/healthz", "/readyz", "/metrics", "/status"} {
		require.Less(t, get("relay.example:9081", path).Code, 300)
		require.Equal(t, http.StatusMisdirectedRequest, get("evil.example:9081", path).Code)
	}
}
