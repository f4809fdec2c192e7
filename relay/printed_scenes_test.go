package relay_test

import (
	"bufio"
	"bytes"
	"encoding/hex"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/doona-dp/doona/internal/testing/relaytest"
	"github.com/doona-dp/doona/relay"
	"github.com/doona-dp/doona/wire/endpoint"
	"github.com/doona-dp/doona/wire/handover"
	"github.com/doona-dp/doona/wire/onion"
	"github.com/doona-dp/doona/wire/problem"
	"github.com/doona-dp/doona/wire/task"
	"github.com/doona-dp/doona/wire/taskfile"
	"github.com/doona-dp/doona/wire/token"
)

// expireSoon makes tasks expire within two days.
func expireSoon(_ int, cfg *relay.Config) { cfg.GiveUp, cfg.Retention = time.Hour, 48*time.Hour }

// TestPrintedLife records an epoch from its first report until it expires, and refused requests in each phase.
func TestPrintedLife(t *testing.T) {
	s := newScene(t, relaytest.Options{Tasks: 2, Config: expireSoon})
	s.StartAll(t)
	s.section("refused of clients")
	body, base := s.Seal(t, 0, 0), "http://"+s.Config(t, 0).Listen
	s.as("no such path").send(http.MethodGet, base+"/nothing", nil)
	s.as("no such method").send(http.MethodDelete, s.ReportsURL(0), nil)
	s.as("a task").send(http.MethodGet, s.TaskURL(0), nil)
	s.as("keys").send(http.MethodGet, base+endpoint.KeysPath, nil)
	unknown := strings.Repeat("00", 32)
	s.name(unknown, "<no task>")
	other := func(url string) string { return strings.Replace(url, s.Open.ID.String(), unknown, 1) }
	s.as("a task that is not served").send(http.MethodGet, other(s.TaskURL(0)), nil)
	s.as("a task's name that is none").send(http.MethodGet, base+"/v1/tasks/x", nil)
	s.as("a report of a task that is not served").send(http.MethodPost, other(s.ReportsURL(0)), body)
	s.as("preflight").send(http.MethodOptions, s.ReportsURL(0), nil, "Origin", "https://page.example",
		"Access-Control-Request-Method", "POST")
	second := strings.Replace(s.ReportsURL(0), base, "http://"+s.Config(t, 1).Listen, 1)
	s.as("a report for a later relay").send(http.MethodPost, second, body, "Content-Type", "application/msgpack")
	s.as("an epoch that is not open").report(1, s.Seal(t, 1, 0), 1)
	s.as("an epoch that there is not").report(99, body, 1)
	s.as("an epoch that is no number").send(http.MethodPost, strings.Replace(s.ReportsURL(0), "epochs/0", "epochs/x", 1),
		body)
	s.as("another media type").send(http.MethodPost, s.ReportsURL(0), body, "Content-Type", "text/plain")
	s.as("too long").report(0, make([]byte, 1<<20), 1)
	s.as("no report").report(0, []byte("x"), 1)
	s.as("empty").report(0, nil, 1)
	version := bytes.Clone(body)
	version[1]++
	s.as("another version").report(0, version, 1)
	damaged := bytes.Clone(body)
	damaged[len(damaged)-1] ^= 1
	s.as("damaged").report(0, damaged, 1)
	s.as("of another epoch").report(0, s.Seal(t, 1, 0), 1)
	s.as("of another task").report(0, s.Other(t, 1).Seal(t, 0, 0), 1)
	s.as("accepted").report(0, body, 0)
	s.as("accepted again").report(0, body, 0)
	s.as("another of the same client").report(0, s.Seal(t, 0, 1), 0)
	s.as("the same of another client").report(0, body, 99)

	s.section("refused of next hops")
	next, stranger := s.hop(1), s.client(s.VerifierSign())
	pull := func(c *handover.Requester, epoch, seq uint64) { c.Pull(t.Context(), s.Open, 0, epoch, seq) }
	batch := func(epoch, seq any) string {
		return fmt.Sprintf("%s/v1/tasks/%s/epochs/%v/batches/%v", base, s.Open.ID, epoch, seq)
	}
	s.as("not sealed")
	pull(next, 0, 0)
	s.as("not the next hop")
	pull(stranger, 0, 0)
	s.as("unsigned").send(http.MethodGet, batch(0, 0), nil)
	s.as("an epoch beyond the task's").send(http.MethodGet, batch(99, 0), nil)
	s.as("a number beyond the task's").send(http.MethodGet, batch(0, 1<<40), nil)
	s.as("a number that is none").send(http.MethodGet, batch(0, "x"), nil)
	s.as("a range that is none").send(http.MethodGet, batch(0, 0), nil, "Range", "bytes=1-2")
	s.as("a range too far").send(http.MethodGet, batch(0, 0), nil, "Range", "bytes=99999999-")
	s.as("what was before, and is none").send(http.MethodGet, batch(0, 0), nil, handover.HistoryHeader, "x")
	s.as("confirmed before it is there")
	next.Confirm(t.Context(), s.Open, 0, 0, 0, []byte("x"))
	s.as("an end that is not there yet")
	next.End(t.Context(), s.Open, 0, 0)
	s.as("an end, unsigned").send(http.MethodGet, strings.TrimSuffix(batch(0, ""), "/batches/")+"/end", nil)
	s.as("updates")
	_, _ = next.UpstreamStatus(t.Context(), s.Open.Relays[0], nil)
	s.as("updates for a stranger")
	_, _ = stranger.UpstreamStatus(t.Context(), s.Open.Relays[0], nil)
	s.as("the time")
	_, _ = next.Time(t.Context(), s.Open, 0)
	s.as("the time, without a nonce").send(http.MethodGet, base+"/v1/tasks/"+s.Open.ID.String()+"/time", nil)

	s.post(0, 1, 10)
	b, _ := s.Pull(t, 0, 0)
	require.NoError(t, s.Verifier.Confirm(t.Context(), s.Open, 1, 0, 0, b.Manifest))
	verifier := s.client(s.VerifierSign())
	s.as("confirmed")
	verifier.Pull(t.Context(), s.Open, 1, 0, 0)
	s.as("confirmed again")
	require.NoError(t, verifier.Confirm(t.Context(), s.Open, 1, 0, 0, b.Manifest))
	s.as("another manifest confirmed")
	verifier.Confirm(t.Context(), s.Open, 1, 0, 0, []byte("x"))
	s.post(0, 10, 13)
	s.Clock.Advance(relaytest.Epoch + 2*time.Second)
	b, chain := s.Pull(t, 0, 1)
	require.True(t, chain[1].Destroyed())
	require.NoError(t, s.Verifier.Confirm(t.Context(), s.Open, 1, 0, 1, b.Manifest))
	for hop := range 2 {
		s.epochIs(hop, 0, "erased")
	}
	s.section("refused after the end")
	s.as("a number that never was")
	verifier.Pull(t.Context(), s.Open, 1, 0, 2)
	s.as("an end")
	verifier.End(t.Context(), s.Open, 1, 0)
	s.as("a report too late").report(0, s.Seal(t, 0, 50), 50)
	for hop := range 2 {
		s.ready(hop)
		s.status(hop)
		s.metrics(hop)
	}
	s.Clock.Advance(72 * time.Hour)
	for hop := range 2 {
		s.epochIs(hop, 0, "expired")
		s.epochIs(hop, 1, "expired")
		s.logged(hop, "epoch expired", 4)
		s.status(hop)
		s.log(hop)
	}
	s.done("life")
}

// TestPrintedFindings records what a mix reports about a first relay that signs false manifests.
func TestPrintedFindings(t *testing.T) {
	s := newScene(t, relaytest.Options{})
	first := s.StartFirst(t)
	values := func(from uint64) (out []uint64) {
		for i := range uint64(10) {
			out = append(out, from+i)
		}
		return out
	}
	serve := func(seq, in uint64, lanes onion.Lanes) { first.Serve(t, 0, seq, first.Batch(t, 0, seq, in, lanes)) }
	replayed := s.Slots(t, 0, values(0)...)
	serve(0, 10, replayed)
	serve(1, 10, replayed)
	first.Serve(t, 0, 2, first.Batch(t, 0, 3, 10, s.Slots(t, 0, values(300)...)))
	s.Start(t, 1)
	for seq := range uint64(2) {
		s.Pull(t, 0, seq)
	}
	found := func(n int) { s.soon(func() bool { return len(s.Status(t, 1).Findings) == n }) }
	found(2)
	cut, err := first.Batch(t, 0, 2, 10, s.Slots(t, 0, values(100)...)).Bytes()
	require.NoError(t, err)
	first.Answer(0, 2, func(w http.ResponseWriter, _ *http.Request) { w.Write(cut[:len(cut)-10]) })
	pulls := first.Pulls(0, 2)
	s.soon(func() bool { return first.Pulls(0, 2) > pulls+2 })
	serve(2, 10, s.Slots(t, 0, values(200)...)) // another manifest of the same number
	found(3)
	s.epochIs(1, 0, "complete")
	s.ready(1)
	s.status(1)
	s.metrics(1)
	s.log(1)
	s.done("findings")
}

// TestPrintedTokens records a task whose clients need tokens and whose pages have an origin.
func TestPrintedTokens(t *testing.T) {
	s := newScene(t, relaytest.Options{Hops: 1, Task: func(draft *task.Task) {
		relaytest.WithTokens(draft)
		draft.Clients.Origins = []string{"https://shop.example"}
	}})
	s.StartIssuer(t, s.IssuerConfig())
	s.Start(t, 0)
	s.soon(func() bool {
		err := s.PostWith(t.Context(), 0, nil, nil)
		return problem.New(problem.TokenMissing, "").Is(err)
	})
	s.section("refused")
	tok, second, body := s.Token(t, 0), s.Token(t, 0), s.Seal(t, 0, 1)
	header := func(tok []byte) []string { return []string{"Authorization", token.Header(tok)} }
	changed := bytes.Clone(second)
	changed[len(changed)-1] ^= 1
	s.as("no token").report(0, body, 1)
	s.as("damaged").report(0, body, 1, header(changed)...)
	s.as("cut").report(0, body, 1, header(second[:9])...)
	s.as("of another epoch").report(0, body, 1, header(s.Token(t, 1))...)
	s.as("another scheme").report(0, body, 1, "Authorization", "Bearer x")
	s.as("accepted").report(0, body, 1, header(tok)...)
	s.as("accepted again").report(0, body, 1, header(tok)...)
	s.as("spent").report(0, s.Seal(t, 0, 2), 1, header(tok)...)
	s.as("the report of another").report(0, body, 1, header(second)...)
	s.as("of a page elsewhere").report(0, body, 1, "Origin", "https://other.example")
	s.as("of the task's page").report(0, body, 1, append(header(tok), "Origin", "https://shop.example")...)
	s.as("preflight elsewhere").send(http.MethodOptions, s.ReportsURL(0), nil, "Origin", "https://other.example")
	s.as("preflight").send(http.MethodOptions, s.ReportsURL(0), nil, "Origin", "https://shop.example")
	s.status(0)
	s.metrics(0)
	s.log(0)
	s.done("tokens")
}

// TestPrintedOwners records an approved owner who hands over a task.
func TestPrintedOwners(t *testing.T) {
	s := newScene(t, relaytest.Options{Hops: 1, Config: expireSoon, Task: relaytest.InStream("name")},
		func(o relaytest.Options) relaytest.Options { return o.Approving(t, 1) })
	s.Start(t, 0)
	named := s.Named("one")
	asked, label := s.client(filepath.Join(s.Dir, "owner.key")), taskfile.LabelOf(named)
	two := taskfile.LabelOf(s.Named("two"))
	s.name(hex.EncodeToString(label[:]), "<label one>")
	s.name(hex.EncodeToString(two[:]), "<label two>")
	s.section("refused")
	verifier := s.client(s.VerifierSign())
	s.as("keys for a stranger")
	verifier.KeysFor(t.Context(), named.Relays[0], label, named.KEM, 2)
	s.as("a stranger's task")
	verifier.Begin(t.Context(), named.Relays[0], []byte("x"))
	s.as("no such number of epochs")
	asked.KeysFor(t.Context(), named.Relays[0], label, named.KEM, 0)
	s.as("no such KEM")
	asked.KeysFor(t.Context(), named.Relays[0], label, "rot13", 2)
	s.as("no task")
	asked.Begin(t.Context(), named.Relays[0], []byte("x"))
	bundle := s.Sign(t, named)
	raw, err := bundle.Bytes()
	require.NoError(t, err)
	s.as("a task")
	require.NoError(t, asked.Begin(t.Context(), named.Relays[0], raw))
	s.as("the task again")
	require.NoError(t, asked.Begin(t.Context(), named.Relays[0], raw))
	s.as("keys beyond the task limit")
	asked.KeysFor(t.Context(), named.Relays[0], two, named.KEM, 2)
	one := s.After(t, bundle)
	s.name(one.Open.ID.String(), "<task one>")
	s.status(0)
	s.metrics(0)
	s.Clock.Advance(72 * time.Hour)
	s.soon(func() bool {
		resp, err := http.Get(one.TaskURL(0))
		require.NoError(t, err)
		resp.Body.Close()
		return resp.StatusCode == http.StatusNotFound
	})
	s.logged(0, "task dropped", 1)
	s.status(0)
	s.log(0)
	s.done("owners")
}

// TestPrintedStreams records how a stream continues with a second task.
func TestPrintedStreams(t *testing.T) {
	s := newScene(t, relaytest.Options{Hops: 1, Config: expireSoon, Task: relaytest.InStream("name")})
	s.Start(t, 0)
	next := s.Renew(t, 1, 2)
	open, err := next.Open(nil)
	require.NoError(t, err)
	s.name(open.ID.String(), "<task next>")
	raw, err := next.Bytes()
	require.NoError(t, err)
	owner, verifier := s.client(filepath.Join(s.Dir, "owner.key")), s.client(s.VerifierSign())
	s.section("answers")
	s.as("a stranger's")
	verifier.Succeed(t.Context(), s.Open, open.Task, 0, raw)
	s.as("keys for a stranger")
	verifier.NextKeys(t.Context(), s.Open, s.Open.Task, 0, 1)
	s.as("no task")
	owner.Succeed(t.Context(), s.Open, open.Task, 0, []byte("x"))
	s.as("the next")
	require.NoError(t, owner.Succeed(t.Context(), s.Open, open.Task, 0, raw))
	s.as("again")
	require.NoError(t, owner.Succeed(t.Context(), s.Open, open.Task, 0, raw))
	s.as("keys of a position that has a task")
	owner.NextKeys(t.Context(), s.Open, s.Open.Task, 0, 5)
	s.as("no statement")
	owner.State(t.Context(), s.Open, s.Open.Task, 0, []byte("x"))
	s.as("the stream").send(http.MethodGet, s.Open.StreamURL(s.Open.Task, 0), nil)
	s.Clock.Advance(2*relaytest.Epoch + 2*time.Second)
	after := s.After(t, next)
	require.NoError(t, after.Post(t.Context(), 0, after.Seal(t, 0, 1), relaytest.Network(1)))
	s.logged(0, "epoch erased", 2)
	s.status(0)
	s.metrics(0)
	s.log(0)
	s.done("streams")
}

// TestPrintedStateRollback records how an older store replaces a newer one, and how the operator repairs it.
func TestPrintedStateRollback(t *testing.T) {
	s := newScene(t, relaytest.Options{Hops: 1})
	store := func() map[string][]byte {
		out := map[string][]byte{}
		for _, name := range []string{"relay.db", "relay.db-wal"} {
			if in, err := os.ReadFile(filepath.Join(s.Dir, "relay1", name)); err == nil {
				out[name] = in
			}
		}
		return out
	}
	stop := s.Start(t, 0)
	s.post(0, 0, 3)
	stop()
	before := store()
	stop = s.Start(t, 0)
	s.post(0, 3, 6)
	stop()
	for _, name := range []string{"relay.db", "relay.db-wal", "relay.db-shm"} {
		os.Remove(filepath.Join(s.Dir, "relay1", name))
		if in, ok := before[name]; ok {
			require.NoError(t, os.WriteFile(filepath.Join(s.Dir, "relay1", name), in, 0o600))
		}
	}
	r, err := relay.New(s.Config(t, 0))
	require.NoError(t, err)
	stop = s.ServeUnready(t, r)
	s.ready(0)
	s.section("refused")
	s.as("a report").report(0, s.Seal(t, 0, 9), 9)
	verifier := s.client(s.VerifierSign())
	s.as("a pull")
	verifier.Pull(t.Context(), s.Open, 0, 0, 0)
	s.as("an end")
	verifier.End(t.Context(), s.Open, 0, 0)
	s.status(0)
	s.metrics(0)
	stop()
	back, err := relay.OpenRolledBack(s.Config(t, 0))
	require.NoError(t, err)
	require.NoError(t, back.End(t.Context()))
	require.NoError(t, back.Close())
	s.Start(t, 0)
	s.section("after the operator has ended the epoch: %s", back.Cause)
	s.as("a report").report(0, s.Seal(t, 0, 9), 9)
	s.as("a pull")
	verifier.Pull(t.Context(), s.Open, 0, 0, 0)
	s.as("an end")
	verifier.End(t.Context(), s.Open, 0, 0)
	s.status(0)
	s.log(0)
	s.done("rollback")
}

// TestPrintedClock records a relay whose clock is set ten years ahead while no other relay can confirm it.
func TestPrintedClock(t *testing.T) {
	var off atomic.Int64
	var s *scene
	begun := time.Now()
	s = newScene(t, relaytest.Options{Config: func(hop int, cfg *relay.Config) {
		cfg.Clock = func() time.Time { return time.Now().Round(0).Add(time.Duration(off.Load())) }
		cfg.Elapsed = func() time.Duration { return time.Since(begun) }
	}})
	s.StartAll(t)
	s.post(0, 0, 1)
	off.Store(int64(3653 * 24 * time.Hour))
	s.soon(func() bool {
		return problem.New(problem.ClockInDoubt, "").Is(s.Post(t.Context(), 0, s.Seal(t, 0, 2), relaytest.Network(2)))
	})
	s.ready(0)
	s.section("refused")
	s.as("a report").report(0, s.Seal(t, 0, 9), 9)
	s.log(0)
	s.done("clock")
}

// TestPrintedBusy records an overloaded relay.
func TestPrintedBusy(t *testing.T) {
	s := newScene(t, relaytest.Options{Hops: 1, Config: func(_ int, cfg *relay.Config) { cfg.MaxConcurrent = 16 }})
	s.Start(t, 0)
	begin := func(client string) bool {
		target, err := url.Parse(s.ReportsURL(0))
		require.NoError(t, err)
		conn, err := net.Dial("tcp", target.Host)
		require.NoError(t, err)
		t.Cleanup(func() { conn.Close() })
		_, err = fmt.Fprintf(conn, "POST %s HTTP/1.1\r\nHost: x\r\nX-Forwarded-For: %s\r\nContent-Type: "+
			"application/msgpack\r\nContent-Length: %d\r\nExpect: 100-continue\r\n\r\n", target.Path, client,
			len(s.Seal(t, 0, 0)))
		require.NoError(t, err)
		line, err := bufio.NewReader(conn).ReadString('\n')
		require.NoError(t, err)
		return strings.Contains(line, "100 Continue")
	}
	for range 2 {
		require.True(t, begin(relaytest.Network(1)))
	}
	s.section("refused")
	s.as("a third of one network").report(0, s.Seal(t, 0, 1), 1)
	for n := 2; begin(relaytest.Network(n)); n++ {
	}
	s.as("one more than there is room for").report(0, s.Seal(t, 0, 1), 99)
	s.metrics(0)
	s.log(0)
	s.done("busy")
}
