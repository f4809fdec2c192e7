package service_test

import (
	"bytes"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/doona-dp/doona/internal/service"
)

// TestCoarseLog: if a store fails for a thousand clients, the log has one line in ten minutes, with times to the
// minute. Lines that differ are all logged.
func TestCoarseLog(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out bytes.Buffer
		log := service.Coarse(slog.New(slog.NewTextHandler(&out, nil)))
		require.Same(t, log, service.Coarse(log))
		full := errors.New("disk is full")
		for range 1000 {
			time.Sleep(137 * time.Millisecond)
			log.Error("couldn't store reports", "error", full)
		}
		log.Error("couldn't store reports", "error", errors.New("database is away"))
		log.With("task", "a").Error("couldn't store reports", "error", full)
		log.WithGroup("g").Error("couldn't store reports", "error", full)
		require.Equal(t, 4, strings.Count(out.String(), "\n"), out.String())
		time.Sleep(10 * time.Minute)
		log.Error("couldn't store reports", "error", full)
		lines := strings.Split(strings.TrimSpace(out.String()), "\n")
		require.Len(t, lines, 5)
		require.Contains(t, lines[4], "repeated=1024", "999, rounded up")
		for range 3 {
			time.Sleep(time.Second)
			log.Info("sealed", "batch", 1)
		}
		lines = strings.Split(strings.TrimSpace(out.String()), "\n")
		require.Len(t, lines, 8, "what goes well is said each time")
		for _, line := range lines {
			require.Regexp(t, `^time=\S+:00\.000Z? `, regexp.MustCompile(`\+00:00 `).ReplaceAllString(line, "Z "))
		}
		for i := range 5000 {
			time.Sleep(time.Microsecond)
			log.Warn("finding", "batch", i)
		}
		require.Equal(t, 5008, strings.Count(out.String(), "\n"), "no limit on what differs")
		for i := range 1000 {
			log.Warn("finding", "batch", 4999-i)
		}
		require.Equal(t, 5008, strings.Count(out.String(), "\n"), "what was said last is not said again")
	})
}

// TestServiceManager: the program notifies its service manager when it starts, twice per watchdog interval, and when it
// stops.
func TestServiceManager(t *testing.T) {
	path := filepath.Join(t.TempDir(), "notify")
	manager, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: path, Net: "unixgram"})
	require.NoError(t, err)
	defer manager.Close()
	t.Setenv("NOTIFY_SOCKET", path)
	t.Setenv("WATCHDOG_USEC", "20000")
	hear := func() string {
		buffer := make([]byte, 64)
		n, err := manager.Read(buffer)
		require.NoError(t, err)
		return string(buffer[:n])
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	end := serve(t, l, slog.New(slog.DiscardHandler), func(http.ResponseWriter, *http.Request) {}, service.Timing{})
	require.Equal(t, "READY=1", hear())
	for range 3 {
		require.Equal(t, "WATCHDOG=1", hear())
	}
	go end()
	for state := hear(); state != "STOPPING=1"; state = hear() {
		require.Equal(t, "WATCHDOG=1", state)
	}
	t.Setenv("WATCHDOG_PID", "1") // the watchdog of another process
	l, err = net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	end = serve(t, l, slog.New(slog.DiscardHandler), func(http.ResponseWriter, *http.Request) {}, service.Timing{})
	require.Equal(t, "READY=1", hear())
	end()
	require.Equal(t, "STOPPING=1", hear())
}
