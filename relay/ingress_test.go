package relay_test

import (
	"bytes"
	"crypto/ecdh"
	"crypto/hpke"
	"crypto/sha256"
	"encoding/binary"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/doona-dp/doona/internal/testing/relaytest"
	"github.com/doona-dp/doona/relay"
	"github.com/doona-dp/doona/wire/codec"
	"github.com/doona-dp/doona/wire/onion"
	"github.com/doona-dp/doona/wire/problem"
	"github.com/doona-dp/doona/wire/task"
)

func requireProblem(t *testing.T, name problem.Name, err error) *problem.Problem {
	t.Helper()
	var p *problem.Problem
	require.ErrorAs(t, err, &p)
	require.Equal(t, name, p.Name, "%v", err)
	return p
}

// sealEnvelope makes a submission by hand, as docs/SPEC.md describes it: an envelope with a tag and slots, for an
// epoch.
func sealEnvelope(t *testing.T, c *relaytest.Cascade, epoch uint64, tag []byte, lanes [][][]byte) []byte {
	t.Helper()
	return sealFor(t, c, c.Open.ID, epoch, tag, lanes)
}

func sealFor(t *testing.T, c *relaytest.Cascade, id task.ID, epoch uint64, tag []byte, lanes [][][]byte) []byte {
	t.Helper()
	raw := c.PublicKey(t, 0, epoch)
	key, err := hpke.DHKEM(ecdh.X25519()).NewPublicKey(raw)
	require.NoError(t, err)
	keyID := sha256.Sum256(append([]byte{0x00, 0x20}, raw...))
	info := slices.Concat([]byte("doona-v1 onion"), id[:], binary.BigEndian.AppendUint64(nil, epoch), []byte{0},
		keyID[:])
	enc, sender, err := hpke.NewSender(key, hpke.HKDFSHA256(), hpke.AES128GCM(), info)
	require.NoError(t, err)
	content := struct {
		Tag   []byte
		Lanes [][][]byte
	}{tag, lanes}
	plain, err := codec.Marshal(&content)
	require.NoError(t, err)
	sealed, err := sender.Seal([]byte{0, 0, 1}, plain)
	require.NoError(t, err)
	return submission(t, append(enc, sealed...))
}

// submission wraps an envelope in a request body.
func submission(t *testing.T, envelope []byte) []byte {
	t.Helper()
	body, err := codec.Marshal(&struct {
		Version  uint64
		Envelope []byte
	}{task.Version, envelope})
	require.NoError(t, err)
	return body
}

func openEnvelope(t *testing.T, c *relaytest.Cascade, epoch uint64, body []byte) *onion.Envelope {
	t.Helper()
	envelope, err := c.Opener(t, 0, epoch).OpenEnvelope(body)
	require.NoError(t, err)
	return envelope
}

// TestBadReports posts reports that a first relay must refuse. None may be stored: afterwards, a batch must have
// exactly the valid reports.
func TestBadReports(t *testing.T) {
	c := relaytest.New(t, relaytest.Options{})
	c.StartAll(t)
	good := c.Seal(t, 0, 99)
	envelope := openEnvelope(t, c, 0, good)
	slot := envelope.Lanes[0][0]
	tag := envelope.Tag[:]
	future := c.Seal(t, 1, 99)
	flip := func(at int) []byte {
		b := bytes.Clone(good)
		b[len(b)+at] ^= 1
		return b
	}
	zeroShare := bytes.Clone(good)
	clear(zeroShare[4 : 4+32]) // the key share, after array, version and binary header
	tests := []struct {
		name  string
		epoch uint64
		body  []byte
		want  problem.Name
	}{
		{"sealed for another epoch", 0, future, problem.DoesNotOpen},
		{"sealed for another task", 0, sealFor(t, c, task.ID{1}, 0, tag, envelope.Lanes), problem.DoesNotOpen},
		{"from the future", 1, future, problem.EpochNotOpen},
		{"beyond the last epoch", 7, good, problem.EpochNotOpen},
		{"empty", 0, nil, problem.Malformed},
		{"truncated", 0, good[:len(good)-1], problem.Malformed},
		{"oversized by one byte", 0, append(bytes.Clone(good), 0), problem.TooLarge},
		{"oversized", 0, make([]byte, 1<<20), problem.TooLarge},
		{"bit flipped in the ciphertext", 0, flip(-1), problem.DoesNotOpen},
		{"bit flipped in the key share", 0, func() []byte { b := bytes.Clone(good); b[8] ^= 1; return b }(),
			problem.DoesNotOpen},
		{"all-zero key share", 0, zeroShare, problem.DoesNotOpen},
		{"another version", 0, func() []byte { b := bytes.Clone(good); b[1] = 2; return b }(), problem.Malformed},
		{"not msgpack", 0, bytes.Repeat([]byte{0xc1}, len(good)), problem.Malformed},
		{"two slots for one", 0, sealEnvelope(t, c, 0, tag, [][][]byte{{slot, slot}}), problem.TooLarge},
		{"no slot", 0, sealEnvelope(t, c, 0, tag, [][][]byte{{}}), problem.Malformed},
		{"two lanes for one", 0, sealEnvelope(t, c, 0, tag, [][][]byte{{slot[:40]}, {slot[43:]}}), problem.Malformed},
		{"a slot too short", 0, sealEnvelope(t, c, 0, tag, [][][]byte{{slot[1:]}}), problem.Malformed},
		{"a tag too short, the slot too long", 0,
			sealEnvelope(t, c, 0, tag[1:], [][][]byte{{append(bytes.Clone(slot), 0)}}), problem.Malformed},
	}
	for i, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			requireProblem(t, tt.want, c.Post(t.Context(), tt.epoch, tt.body, relaytest.Network(100+i)))
		})
	}
	want := []uint64{}
	for i := range uint64(10) {
		require.NoError(t, c.Post(t.Context(), 0, c.Seal(t, 0, i), relaytest.Network(100+int(i))),
			"a refused report must not use quota")
		want = append(want, i)
	}
	batch, _ := c.Pull(t, 0, 0)
	require.ElementsMatch(t, want, c.Values(t, 0, batch)[0])
}

// TestBadRequests requests resources that do not exist, or with a bad method, media type, number or signature.
func TestBadRequests(t *testing.T) {
	c := relaytest.New(t, relaytest.Options{})
	c.StartAll(t)
	body := c.Seal(t, 0, 1)
	base := c.Open.Relays[0].URL + "/v1/tasks/"
	id := strings.TrimPrefix(c.TaskURL(0), base)
	second := c.Open.Relays[1].URL
	tests := []struct {
		name, method, url, kind string
		want                    problem.Name
	}{
		{"another task", "POST", base + strings.Repeat("00", 32) + "/epochs/0/reports", "application/msgpack",
			problem.UnknownTask},
		{"task in capitals", "POST", base + strings.ToUpper(id) + "/epochs/0/reports", "application/msgpack",
			problem.UnknownTask},
		{"task too short", "GET", base + id[1:], "", problem.UnknownTask},
		{"not the first relay", "POST", second + "/v1/tasks/" + id + "/epochs/0/reports", "application/msgpack",
			problem.NotIngress},
		{"media type", "POST", base + id + "/epochs/0/reports", "application/json", problem.MediaType},
		{"bad media type", "POST", base + id + "/epochs/0/reports", "application/", problem.MediaType},
		{"epoch not a number", "POST", base + id + "/epochs/+0/reports", "application/msgpack", problem.Malformed},
		{"epoch beyond 64 bits", "POST", base + id + "/epochs/99999999999999999999/reports", "application/msgpack",
			problem.Malformed},
		{"batch number negative", "GET", base + id + "/epochs/0/batches/-1", "", problem.Malformed},
		{"unsigned pull", "GET", base + id + "/epochs/0/batches/0", "", problem.Unauthorized},
		{"unsigned confirmation", "POST", base + id + "/epochs/0/batches/0/confirm", "", problem.Unauthorized},
		{"no such resource", "GET", second + "/v2", "", problem.NotFound},
		{"no such method", "DELETE", base + id, "", problem.NotFound},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			req, err := http.NewRequestWithContext(t.Context(), tt.method, tt.url, bytes.NewReader(body))
			require.NoError(t, err)
			if tt.kind != "" {
				req.Header.Set("Content-Type", tt.kind)
			}
			resp, err := http.DefaultClient.Do(req)
			require.NoError(t, err)
			defer resp.Body.Close()
			require.Equal(t, "application/problem+json", resp.Header.Get("Content-Type"))
			require.Equal(t, "no-store", resp.Header.Get("Cache-Control"))
			require.Equal(t, "Retry-After, WWW-Authenticate", resp.Header.Get("Access-Control-Expose-Headers"))
			p := problem.Read(resp)
			require.Equal(t, tt.want, p.Name)
			require.Equal(t, resp.StatusCode, p.Status)
			require.NotEmpty(t, p.Title)
		})
	}
}

// TestPublicResources reads the resources that clients need before they report.
func TestPublicResources(t *testing.T) {
	c := relaytest.New(t, relaytest.Options{})
	c.StartAll(t)
	for hop, party := range c.Open.Relays {
		resp, err := http.Get(party.URL + "/v1/tasks/" + strings.TrimPrefix(c.TaskURL(0),
			c.Open.Relays[0].URL+"/v1/tasks/"))
		require.NoError(t, err)
		raw, err := io.ReadAll(resp.Body)
		require.NoError(t, err)
		require.Equal(t, "*", resp.Header.Get("Access-Control-Allow-Origin"))
		require.Equal(t, "application/msgpack", resp.Header.Get("Content-Type"))
		require.Equal(t, []string{"no-store"}, resp.Header.Values("Cache-Control"), "a cache reveals returning clients")
		for _, name := range []string{"ETag", "Last-Modified", "Set-Cookie"} {
			require.Empty(t, resp.Header.Values(name))
		}
		sum := task.ID(sha256.Sum256(c.Open.Canonical()))
		require.Equal(t, c.Open.ID, sum)
		require.Contains(t, string(raw), string(c.Open.Canonical()))

		resp, err = http.Get(party.URL + "/v1/keys")
		require.NoError(t, err)
		require.Equal(t, []string{"no-store"}, resp.Header.Values("Cache-Control"))
		raw, err = io.ReadAll(resp.Body)
		require.NoError(t, err)
		head, err := c.Open.KeyLists[hop].Head()
		require.NoError(t, err)
		require.Equal(t, append([]byte{0x91}, head...), raw, "a list of one signed list")
	}
	req, err := http.NewRequest(http.MethodOptions, c.ReportsURL(0), nil)
	require.NoError(t, err)
	resp, err := http.DefaultClient.Do(req)
	require.NoError(t, err)
	require.Equal(t, http.StatusNoContent, resp.StatusCode)
	require.Equal(t, "*", resp.Header.Get("Access-Control-Allow-Origin"))
	require.Equal(t, "86400", resp.Header.Get("Access-Control-Max-Age"))
}

// TestChunkedReport sends a report without a length, as edge workers do, and without a media type, as browsers do to
// avoid a preflight.
func TestChunkedReport(t *testing.T) {
	c := relaytest.New(t, relaytest.Options{})
	c.Start(t, 0)
	for name, body := range map[string][]byte{"good": c.Seal(t, 0, 1), "oversized": make([]byte, 1<<20)} {
		t.Run(name, func(t *testing.T) {
			req, err := http.NewRequest(http.MethodPost, c.ReportsURL(0), io.MultiReader(bytes.NewReader(body)))
			require.NoError(t, err)
			require.EqualValues(t, 0, req.ContentLength)
			require.Empty(t, req.Header.Get("Content-Type"))
			resp, err := http.DefaultClient.Do(req)
			require.NoError(t, err)
			defer resp.Body.Close()
			want := map[string]int{"good": http.StatusCreated, "oversized": http.StatusRequestEntityTooLarge}[name]
			require.Equal(t, want, resp.StatusCode)
			require.Equal(t, "*", resp.Header.Get("Access-Control-Allow-Origin"), "a page may read the answer")
		})
	}
}

// TestLimitAndReplay: a client may send as many reports as its quota, and repeat each freely. Nobody may send another
// client's envelope or reuse its tag. A restart must not change this.
func TestLimitAndReplay(t *testing.T) {
	c := relaytest.New(t, relaytest.Options{Task: func(t *task.Task) { t.Clients.Quota = 2 }})
	stop := c.Start(t, 0)
	values := []uint64{1, 2}
	const alice, neighbour, mallory = "198.51.100.1", "198.51.100.200", "203.0.113.1"
	post := func(body []byte, from string) error { return c.Post(t.Context(), 0, body, from) }
	first, second, third := c.Seal(t, 0, 1), c.Seal(t, 0, 2), c.Seal(t, 0, 3)
	envelope := openEnvelope(t, c, 0, first)
	sameTag := sealEnvelope(t, c, 0, envelope.Tag[:], openEnvelope(t, c, 0, third).Lanes)

	require.NoError(t, post(first, alice))
	require.NoError(t, post(first, alice), "a retry is acknowledged as before")
	require.NoError(t, post(first, neighbour), "the same network is the same client")
	require.NoError(t, post(second, alice))
	if post(c.Seal(t, 0, 4), alice) == nil { // the relay draws a network's quota: 2 or 3
		values = append(values, 4)
	}
	for range 2 {
		requireProblem(t, problem.Replayed, post(first, mallory))
		requireProblem(t, problem.Replayed, post(sameTag, mallory))
		requireProblem(t, problem.Replayed, post(sameTag, alice))
		require.NoError(t, post(second, alice), "retries use no quota")
		requireProblem(t, problem.Limit, post(third, neighbour))
		require.NoError(t, post(first, alice), "a retry must succeed when the quota is used up")
		stop()
		stop = c.Start(t, 0)
	}
	for i := range 10 - len(values) {
		require.NoError(t, post(c.Seal(t, 0, uint64(10+i)), relaytest.Network(i)))
		values = append(values, uint64(10+i))
	}
	c.Start(t, 1)
	batch, chain := c.Pull(t, 0, 0)
	require.EqualValues(t, 10, chain[0].Submissions)
	require.ElementsMatch(t, values, c.Values(t, 0, batch)[0])
}

// TestParallelLimit races many reports of one client, and copies of another client's report. The relay must accept one
// report and all copies.
func TestParallelLimit(t *testing.T) {
	c := relaytest.New(t, relaytest.Options{Task: func(t *task.Task) { t.Batch.Size = 100 }})
	c.Start(t, 0)
	copied := c.Seal(t, 0, 1)
	var clients sync.WaitGroup
	var mu sync.Mutex
	var accepted, limited, copies int
	for i := range 40 {
		body := c.Seal(t, 0, uint64(100+i))
		clients.Go(func() {
			err := c.Post(t.Context(), 0, body, "198.51.100.1")
			again := c.Post(t.Context(), 0, copied, "203.0.113.1")
			mu.Lock()
			defer mu.Unlock()
			switch {
			case err == nil:
				accepted++
			case err.(*problem.Problem).Name == problem.Limit:
				limited++
			}
			if again == nil {
				copies++
			}
		})
	}
	clients.Wait()
	require.Equal(t, []int{1, 39, 40}, []int{accepted, limited, copies})
}

// TestClockSkew: without a setting, an epoch must accept reports from 5 minutes before its start to 5 minutes after its
// end.
func TestClockSkew(t *testing.T) {
	const skew = 5 * time.Minute
	c := relaytest.New(t, relaytest.Options{
		Task:   func(t *task.Task) { t.Epochs.Start = uint64(time.Now().Add(time.Hour).Unix()) },
		Config: func(_ int, cfg *relay.Config) { cfg.Skew = 0 },
	})
	c.Start(t, 0)
	post := func(epoch uint64, n int) error {
		return c.Post(t.Context(), epoch, c.Seal(t, epoch, 1), relaytest.Network(n))
	}
	p := requireProblem(t, problem.EpochNotOpen, post(0, 1))
	require.InDelta(t, float64(55*time.Minute), float64(p.RetryAfter), float64(time.Minute))
	c.Clock.Advance(time.Hour - skew + 2*time.Second)
	require.NoError(t, post(0, 1))
	requireProblem(t, problem.EpochNotOpen, post(1, 1))
	c.Clock.Advance(relaytest.Epoch) // now 5 minutes before the end of epoch 0
	require.NoError(t, post(0, 2))
	require.NoError(t, post(1, 2))
	c.Clock.Advance(2*skew - 20*time.Second) // just before epoch 0 closes
	require.NoError(t, post(0, 3))
	c.Clock.Advance(30 * time.Second)
	requireProblem(t, problem.EpochClosed, post(0, 4))
	require.NoError(t, post(1, 4))
}
