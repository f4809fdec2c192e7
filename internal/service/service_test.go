package service_test

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"io"
	"io/fs"
	"log"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/doona-dp/doona/internal/durable"
	"github.com/doona-dp/doona/internal/service"
	"github.com/doona-dp/doona/internal/testing/relaytest"
)

// serve serves a handler until the caller calls end, which waits for the drain.
func serve(t *testing.T, l net.Listener, to *slog.Logger, handler http.HandlerFunc, timing service.Timing) (
	end func()) {
	t.Helper()
	servers, err := service.Listen(to, timing, service.Endpoint{Listener: l, Handler: handler}, service.Endpoint{})
	require.NoError(t, err)
	require.Len(t, servers, 1)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- service.Serve(ctx, servers) }()
	return func() {
		cancel()
		require.NoError(t, <-ended)
		service.Drain(servers, timing, nil)
	}
}

// TestPanicsAreLoggedWithoutAddresses: the log must not have the client's address, which net/http would log.
func TestPanicsAreLoggedWithoutAddresses(t *testing.T) {
	var ours, standard bytes.Buffer
	defer log.SetOutput(log.Writer())
	log.SetOutput(&standard)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	end := serve(t, l, slog.New(slog.NewTextHandler(&ours, nil)),
		func(_ http.ResponseWriter, r *http.Request) { panic("bad " + r.RemoteAddr) }, service.Timing{})
	_, err = http.Get("http://" + l.Addr().String())
	require.Error(t, err)
	end()
	require.Contains(t, ours.String(), "service_test.go")
	require.NotContains(t, ours.String(), "127.0.0.1")
	require.Empty(t, standard.String())
}

// TestListenAllOrNone: if one address is in use, Listen must close the other listeners.
func TestListenAllOrNone(t *testing.T) {
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer taken.Close()
	free, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	_, err = service.Listen(slog.New(slog.DiscardHandler), service.Timing{}, service.Endpoint{Listener: free},
		service.Endpoint{Address: taken.Addr().String()})
	require.ErrorContains(t, err, "couldn't listen")
	_, err = free.Accept()
	require.ErrorIs(t, err, net.ErrClosed)
}

// TestDrain runs in virtual time. Requests that have begun are answered. A connection without a request, such as
// browsers open in advance, must not delay the shutdown by the 5 s that net/http would wait.
func TestDrain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		network := relaytest.ListenPipe()
		end := serve(t, network, slog.New(slog.DiscardHandler),
			func(http.ResponseWriter, *http.Request) { time.Sleep(time.Second) }, service.Timing{})
		begun, silent := network.Dial("192.0.2.1:1"), network.Dial("192.0.2.2:1")
		answer := make(chan string, 1)
		go func() {
			io.WriteString(begun, "GET / HTTP/1.1\r\nHost: x\r\n\r\n")
			all, _ := io.ReadAll(begun)
			answer <- string(all)
		}()
		synctest.Wait()
		at := time.Now()
		end()
		require.Less(t, time.Since(at), 3*time.Second) // net/http checks twice per second for open requests
		require.Contains(t, <-answer, "200 OK")
		_, err := silent.Read(make([]byte, 1))
		require.ErrorIs(t, err, io.EOF)
	})
}

// TestTiming runs in virtual time. A connection must stay open while it is idle for less than IdleTimeout, also during
// DrainDelay, in which requests are still answered.
func TestTiming(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		network := relaytest.ListenPipe()
		end := serve(t, network, slog.New(slog.DiscardHandler), func(http.ResponseWriter, *http.Request) {},
			service.Timing{IdleTimeout: 2 * time.Minute, DrainDelay: 10 * time.Second})
		conn := network.Dial("192.0.2.1:1")
		answers := bufio.NewReader(conn)
		ask := func() error {
			io.WriteString(conn, "GET / HTTP/1.1\r\nHost: x\r\n\r\n")
			resp, err := http.ReadResponse(answers, nil)
			if err == nil {
				require.Equal(t, http.StatusOK, resp.StatusCode)
			}
			return err
		}
		require.NoError(t, ask())
		time.Sleep(119 * time.Second)
		require.NoError(t, ask())
		at := time.Now()
		ended := make(chan time.Duration)
		go func() {
			end()
			ended <- time.Since(at)
		}()
		time.Sleep(9 * time.Second)
		require.NoError(t, ask())
		took := <-ended
		require.GreaterOrEqual(t, took, 10*time.Second)
		require.Less(t, took, 12*time.Second)
		require.Error(t, ask())
	})
}

// TestFailedServerEndsAtOnce: if a server fails, the program must not wait for a balancer before it ends.
func TestFailedServerEndsAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		network := relaytest.ListenPipe()
		timing := service.Timing{IdleTimeout: time.Minute, DrainDelay: 10 * time.Minute}
		servers, err := service.Listen(slog.New(slog.DiscardHandler), timing,
			service.Endpoint{Listener: network, Handler: http.NotFoundHandler()})
		require.NoError(t, err)
		require.NoError(t, network.Close())
		at := time.Now()
		err = service.Serve(t.Context(), servers)
		require.ErrorContains(t, err, "couldn't serve")
		service.Drain(servers, timing, err)
		require.Less(t, time.Since(at), time.Minute)
	})
}

// TestHealth: whoever asks often must not make the program look at its disk or database more than once a second. The
// answer must name no reason.
func TestHealth(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		calls := 0
		var fault error
		mux := &service.Mux{}
		mux.HandleHealth(func(context.Context) error { calls++; return fault })
		ask := func() (int, string) {
			w := httptest.NewRecorder()
			mux.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/healthz", nil))
			require.Equal(t, "no-store", w.Header().Get("Cache-Control"))
			return w.Code, w.Body.String()
		}
		for range 100 {
			code, _ := ask()
			require.Equal(t, http.StatusNoContent, code)
		}
		require.Equal(t, 1, calls)
		fault = errors.New("the disk of /var is full")
		time.Sleep(time.Second)
		code, body := ask()
		require.Equal(t, http.StatusServiceUnavailable, code)
		require.Equal(t, "not ready\n", body)
		require.Equal(t, 2, calls)
	})
}

// TestClaimSQLite: only one process at a time can claim a file, even before the file exists and by any of its names.
// release frees the file.
func TestClaimSQLite(t *testing.T) {
	folder := t.TempDir()
	path, link := filepath.Join(folder, "a.db"), filepath.Join(folder, "link.db")
	require.NoError(t, os.Symlink("a.db", link))
	release, err := service.ClaimSQLite(link)
	require.NoError(t, err)
	for _, name := range []string{path, link} {
		_, err = service.ClaimSQLite(name)
		require.ErrorIs(t, err, durable.ErrClaimed)
		require.ErrorContains(t, err, name+": another process uses it: one process at a time can serve")
	}
	info, err := os.Stat(path)
	require.NoError(t, err)
	require.EqualValues(t, 0o600, info.Mode().Perm())
	require.NoError(t, release())
	release, err = service.ClaimSQLite(path)
	require.NoError(t, err)
	require.NoError(t, release())
	_, err = service.ClaimSQLite(filepath.Join(folder, "none", "a.db"))
	require.ErrorIs(t, err, fs.ErrNotExist)
}

// TestClaimSQLiteSyncs: a killed process may have left unsynced data in the file and its log. ClaimSQLite must sync
// both, by any name of the file, or fail.
func TestClaimSQLiteSyncs(t *testing.T) {
	folder := t.TempDir()
	path, link := filepath.Join(folder, "a.db"), filepath.Join(folder, "link.db")
	require.NoError(t, os.Symlink("a.db", link))
	for _, name := range []string{path, path + "-wal"} {
		require.NoError(t, os.WriteFile(name, []byte("left"), 0o600))
	}
	synced := map[string]int{}
	asked := errors.New("as the test asked")
	var fail error
	durable.Watch(func(s durable.Step) (bool, error) {
		if filepath.Dir(s.Path) == folder {
			synced[string(s.Op)+" "+filepath.Base(s.Path)]++
		}
		return false, fail
	})
	defer durable.Watch(func(durable.Step) (bool, error) { return false, nil })
	release, err := service.ClaimSQLite(link)
	require.NoError(t, err)
	require.Equal(t, map[string]int{"sync a.db": 1, "sync a.db-wal": 1, "sync folder a.db": 1,
		"sync folder a.db-wal": 1}, synced)
	require.NoError(t, release())
	fail = asked
	_, err = service.ClaimSQLite(path)
	require.ErrorIs(t, err, asked)
	fail = nil
	release, err = service.ClaimSQLite(path)
	require.NoError(t, err, "it was given back")
	require.NoError(t, release())
}
