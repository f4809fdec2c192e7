package relay_test

import (
	"bufio"
	"bytes"
	"context"
	"crypto/ed25519"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/doona-dp/doona/internal/testing/relaytest"
	"github.com/doona-dp/doona/relay"
	"github.com/doona-dp/doona/wire/handover"
	"github.com/doona-dp/doona/wire/keyfile"
	"github.com/doona-dp/doona/wire/signing"
	"github.com/doona-dp/doona/wire/task"
)

// slowLane is a first relay with a real store, on a simulated network in virtual time.
type slowLane struct {
	*relaytest.Cascade
	relay   *relay.Relay
	network *relaytest.PipeListener
	clients int
}

// inSlowLane runs a test with a relay that handles 16 reports at a time, each with 20 slots of 1 kB.
func inSlowLane(t *testing.T, test func(t *testing.T, l *slowLane)) {
	synctest.Test(t, func(t *testing.T) {
		l := &slowLane{network: relaytest.ListenPipe()}
		l.Cascade = relaytest.New(t, relaytest.Options{Hops: 1,
			Task: func(t *task.Task) { t.Slots.PerLane, t.Slots.MessageBytes = 20, 1000 },
			Config: func(_ int, cfg *relay.Config) {
				cfg.Listener, cfg.Admin, cfg.TrustedProxies, cfg.MaxConcurrent = l.network, "", nil, 16
			}})
		var err error
		l.relay, err = relay.New(l.Config(t, 0))
		require.NoError(t, err)
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- l.relay.Run(ctx) }()
		test(t, l)
		cancel()
		require.NoError(t, <-ended)
		time.Sleep(time.Second) // slow clients notice that the test is over
	})
}

// path returns the path of a resource of epoch 0.
func (l *slowLane) path(of string) string {
	return fmt.Sprintf("/v1/tasks/%s/epochs/0/%s", l.Open.ID, of)
}

// report posts a report as a new client and requires that it is accepted.
func (l *slowLane) report(t *testing.T) {
	t.Helper()
	l.clients++
	client := http.Client{Transport: &http.Transport{DisableKeepAlives: true,
		DialContext: func(context.Context, string, string) (net.Conn, error) {
			return l.network.Dial(relaytest.Network(l.clients) + ":1"), nil
		}}}
	resp, err := client.Post("http://relay"+l.path("reports"), "application/msgpack",
		bytes.NewReader(l.Seal(t, 0, uint64(l.clients))))
	require.NoError(t, err)
	resp.Body.Close()
	require.Equal(t, http.StatusCreated, resp.StatusCode)
}

// lasts returns how long a slow client keeps its connection. Meanwhile other clients report every 5 seconds.
func (l *slowLane) lasts(t *testing.T, slow func(conn net.Conn)) time.Duration {
	t.Helper()
	before, ended := relay.FreeMemory(l.relay), make(chan time.Duration, 1)
	go func() {
		conn, begun := l.network.Dial("198.51.100.1:1"), time.Now()
		defer conn.Close()
		defer func() { ended <- time.Since(begun) }() // also if slow fails the test
		slow(conn)
	}()
	tick := time.NewTicker(5 * time.Second)
	defer tick.Stop()
	for {
		l.report(t)
		select {
		case lasted := <-ended:
			synctest.Wait()
			require.Equal(t, before, relay.FreeMemory(l.relay))
			return lasted
		case <-tick.C:
		}
	}
}

// drip writes one byte every quarter of a second until the connection is closed.
func drip(conn net.Conn, text io.Reader) {
	for one := make([]byte, 1); ; time.Sleep(time.Second / 4) {
		text.Read(one)
		if _, err := conn.Write(one); err != nil {
			return
		}
	}
}

// endless is a reader that repeats a text.
type endless struct {
	text string
	at   int
}

func (e *endless) Read(p []byte) (int, error) {
	p[0] = e.text[e.at%len(e.text)]
	e.at++
	return 1, nil
}

// read reads until the connection is closed.
func read(conn net.Conn) string {
	all, _ := io.ReadAll(conn)
	return string(all)
}

// TestSlowClients: each kind of slow client must lose its connection at the time that docs/relay.md states, to within a
// second, while other clients report. Time is virtual.
func TestSlowClients(t *testing.T) {
	header := func(l *slowLane, size int) string {
		return fmt.Sprintf("POST %s HTTP/1.1\r\nHost: relay\r\nContent-Length: %d\r\n\r\n", l.path("reports"), size)
	}
	const grace = time.Second
	for name, tt := range map[string]struct {
		slow func(l *slowLane, conn net.Conn)
		want time.Duration
	}{
		"never speaks": {func(_ *slowLane, conn net.Conn) { read(conn) }, 10 * time.Second},
		"headers trickle": {func(l *slowLane, conn net.Conn) {
			go read(conn)
			drip(conn, io.MultiReader(strings.NewReader("GET / HTTP/1.1\r\nHost: relay\r\n"),
				&endless{text: "A: b\r\n"}))
		}, 10 * time.Second},
		"headers trickle after a request": {func(l *slowLane, conn net.Conn) {
			io.WriteString(conn, "GET /v1/keys HTTP/1.1\r\nHost: relay\r\n\r\n")
			resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
			if err == nil {
				io.Copy(io.Discard, resp.Body)
			}
			go read(conn)
			drip(conn, &endless{text: "A"})
		}, 10 * time.Second},
		"a body trickles": {func(l *slowLane, conn net.Conn) {
			io.WriteString(conn, header(l, 16<<10))
			go drip(conn, &endless{text: "A"})
			read(conn)
		}, 16 * time.Second}, // 15 s, and 16 KiB at 16 kB/s
		"a body never comes": {func(l *slowLane, conn net.Conn) {
			io.WriteString(conn, header(l, 160))
			read(conn)
		}, 15 * time.Second},
		"never reads an answer": {func(l *slowLane, conn net.Conn) {
			io.WriteString(conn, "GET /v1/keys HTTP/1.1\r\nHost: relay\r\n\r\n")
			time.Sleep(time.Minute)
			_, err := conn.Read(make([]byte, 1))
			require.Error(t, err)
			_, err = conn.Write([]byte("x"))
			require.Error(t, err)
		}, time.Minute},
		"says nothing more": {func(l *slowLane, conn net.Conn) {
			io.WriteString(conn, "GET /v1/keys HTTP/1.1\r\nHost: relay\r\n\r\n")
			read(conn)
		}, 2 * time.Minute}, // idle_timeout
	} {
		t.Run(name, func(t *testing.T) {
			inSlowLane(t, func(t *testing.T, l *slowLane) {
				lasted := l.lasts(t, func(conn net.Conn) { tt.slow(l, conn) })
				require.GreaterOrEqual(t, lasted, tt.want)
				require.LessOrEqual(t, lasted, tt.want+grace)
			})
		})
	}
}

// TestSlowNextHop: a next hop that pulls a batch and reads it too slowly must lose its connection after 30 s plus the
// time that the batch takes at 64 KiB/s.
func TestSlowNextHop(t *testing.T) {
	inSlowLane(t, func(t *testing.T, l *slowLane) {
		for range l.Open.Batch.Size {
			l.report(t)
		}
		time.Sleep(5 * time.Second) // until the batch is sealed
		signature := handover.Signed(verifierKey(t, l.Cascade), signing.Pull,
			handover.Body(l.Open.ID, 0, 0, 0, handover.HistoryDigest{}))
		var batch int64
		lasted := l.lasts(t, func(conn net.Conn) {
			fmt.Fprintf(conn, "GET %s HTTP/1.1\r\nHost: relay\r\n%s: %s\r\n\r\n", l.path("batches/0"), handover.Header,
				signature)
			in := bufio.NewReaderSize(conn, 1)
			resp, err := http.ReadResponse(in, nil)
			if err != nil || resp.StatusCode != http.StatusOK {
				return
			}
			batch = resp.ContentLength
			for err == nil { // 16 bytes, the buffer's size, per second
				time.Sleep(time.Second)
				_, err = in.Discard(16)
			}
		})
		require.Greater(t, batch, int64(l.Open.Batch.Size*20_000))
		bound := 30*time.Second + time.Duration(batch)*time.Second/(64<<10)
		require.GreaterOrEqual(t, lasted, bound)
		require.LessOrEqual(t, lasted, bound+2*time.Second)
	})
}

func verifierKey(t *testing.T, c *relaytest.Cascade) ed25519.PrivateKey {
	t.Helper()
	key, err := keyfile.LoadSign(c.VerifierSign())
	require.NoError(t, err)
	return key
}
