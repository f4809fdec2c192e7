package service_test

import (
	"bytes"
	"log"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/doona-dp/doona/internal/service"
)

// TestPanicsAreLoggedWithoutAddresses: net/http would log the client's.
func TestPanicsAreLoggedWithoutAddresses(t *testing.T) {
	var ours, standard bytes.Buffer
	defer log.SetOutput(log.Writer())
	log.SetOutput(&standard)
	server := httptest.NewServer(service.Guard(slog.New(slog.NewTextHandler(&ours, nil)),
		http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { panic("bad " + r.RemoteAddr) })))
	_, err := http.Get(server.URL)
	require.Error(t, err)
	server.Close()
	require.Contains(t, ours.String(), "service_test.go")
	require.NotContains(t, ours.String(), "127.0.0.1")
	require.Empty(t, standard.String())
}
