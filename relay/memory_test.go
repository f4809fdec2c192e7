package relay_test

import (
	"io"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/doona-dp/doona/internal/testing/relaytest"
	"github.com/doona-dp/doona/relay"
	"github.com/doona-dp/doona/wire/handover"
	"github.com/doona-dp/doona/wire/onion"
	"github.com/doona-dp/doona/wire/signing"
)

// cut returns a handler that sends a batch without its last 10 bytes.
func cut(t *testing.T, b *onion.Batch) http.HandlerFunc {
	t.Helper()
	raw, err := b.Bytes()
	require.NoError(t, err)
	return func(w http.ResponseWriter, _ *http.Request) { w.Write(raw[:len(raw)-10]) }
}

// TestOneManifestOfANumber: once a mix has seen a manifest, it must accept no other manifest of that number, even after
// a restart, and even if it got no complete batch. It must end the epoch and keep both manifests as evidence.
func TestOneManifestOfANumber(t *testing.T) {
	for name, restart := range map[string]bool{"running": false, "restarted": true} {
		t.Run(name, func(t *testing.T) {
			eachEngine(t, func(t *testing.T, o relaytest.Options) {
				c := relaytest.New(t, o)
				first := c.StartFirst(t)
				offers := make([]*onion.Batch, 3)
				for i := range offers {
					offers[i] = first.Batch(t, 0, uint64(min(i, 1)), 10, c.Slots(t, 0, span(uint64(10*i), 10)...))
				}
				first.Serve(t, 0, 0, offers[0])
				first.Answer(0, 1, cut(t, offers[1]))
				stop := c.Start(t, 1)
				requireSoon(t, func() bool { return first.Pulls(0, 1) > 1 })
				if restart {
					stop()
				}
				first.Serve(t, 0, 1, offers[2])
				if restart {
					c.Start(t, 1)
				}
				waitState(t, c, 1, 0, "complete")
				status := c.Status(t, 1)
				require.Equal(t, []relay.Finding{{Epoch: 0, Batch: 1, Reason: "two manifests of one number"}},
					status.Findings)
				require.Equal(t, []relay.Equivocation{{Epoch: 0, Batch: 1, First: *offers[1].Signed(),
					Second: *offers[2].Signed()}}, status.Equivocations)
				for _, s := range []onion.SignedManifest{status.Equivocations[0].First,
					status.Equivocations[0].Second} {
					m, err := s.Open(c.Open.Task, 0)
					require.NoError(t, err, "both are signed")
					require.EqualValues(t, 1, m.Seq)
				}
				require.False(t, first.Confirmed(0, 1))
				batch, _ := c.Pull(t, 0, 0)
				require.ElementsMatch(t, span(0, 10), c.Values(t, 0, batch)[0], "batch 0 remains")
				_, err := c.Verifier.Pull(t.Context(), c.Open, 1, 0, 1)
				require.ErrorIs(t, err, handover.ErrEpochComplete)
				first.Serve(t, 0, 1, offers[1])
				pulls := first.Pulls(0, 1)
				time.Sleep(200 * time.Millisecond)
				require.Equal(t, pulls, first.Pulls(0, 1), "the epoch is over")
			})
		})
	}
}

// TestSameManifestAfterRestart: after a restart, a relay must pull an interrupted batch again, without a finding.
func TestSameManifestAfterRestart(t *testing.T) {
	c := relaytest.New(t, relaytest.Options{})
	first := c.StartFirst(t)
	b := first.Batch(t, 0, 0, 10, c.Slots(t, 0, span(0, 10)...))
	first.Answer(0, 0, cut(t, b))
	stop := c.Start(t, 1)
	requireSoon(t, func() bool { return first.Pulls(0, 0) > 1 })
	stop()
	first.Serve(t, 0, 0, b)
	c.Start(t, 1)
	batch, _ := c.Pull(t, 0, 0)
	require.ElementsMatch(t, span(0, 10), c.Values(t, 0, batch)[0])
	require.Empty(t, c.Status(t, 1).Findings)
}

// TestEndOfFewerBatches: a signed end with fewer batches than were signed must not end the epoch, and must cause a
// finding.
func TestEndOfFewerBatches(t *testing.T) {
	c := relaytest.New(t, relaytest.Options{})
	first := c.StartFirst(t)
	first.Answer(0, 0, cut(t, first.Batch(t, 0, 0, 10, c.Slots(t, 0, span(0, 10)...))))
	c.Start(t, 1)
	requireSoon(t, func() bool { return first.Pulls(0, 0) > 1 })
	first.Answer(0, 0, nil)
	first.End(0)
	c.Clock.Advance(relaytest.Epoch + time.Minute)
	requireSoon(t, func() bool { return len(c.Status(t, 1).Findings) == 1 })
	require.Equal(t, relay.Reason("the signed end of the epoch does not match its batches"),
		c.Status(t, 1).Findings[0].Reason)
	require.Equal(t, "open", c.Status(t, 1).Epochs[0].State)
}

// TestAnEndOfOtherTotals: a signed end whose totals differ from the batches that came must not end the epoch. The
// correct end must end it.
func TestAnEndOfOtherTotals(t *testing.T) {
	c := relaytest.New(t, relaytest.Options{})
	first := c.StartFirst(t)
	b := first.Batch(t, 0, 0, 10, c.Slots(t, 0, span(0, 10)...))
	first.Serve(t, 0, 0, b)
	c.Start(t, 1)
	c.Pull(t, 0, 0)
	first.Serve(t, 0, 0, first.Batch(t, 0, 0, 10, c.Slots(t, 0, span(20, 9)...))) // the end describes this batch
	first.End(0)
	c.Clock.Advance(relaytest.Epoch + time.Minute)
	requireSoon(t, func() bool { return len(c.Status(t, 1).Findings) == 1 })
	require.Equal(t, relay.Finding{Epoch: 0, Batch: 1, Reason: "the signed end of the epoch does not match its batches"},
		c.Status(t, 1).Findings[0])
	require.Equal(t, "open", c.Status(t, 1).Epochs[0].State)
	first.Serve(t, 0, 0, b)
	waitState(t, c, 1, 0, "erased")
}

// rawPull returns the first relay's answer to a pull of batch 0, signed by the relay at hop next.
func rawPull(t *testing.T, c *relaytest.Cascade, next int) []byte {
	t.Helper()
	req, err := http.NewRequest(http.MethodGet, c.Open.BatchURL(0, 0, 0), nil)
	require.NoError(t, err)
	req.Header.Set(handover.Header,
		handover.Signed(c.SignKey(t, next), signing.Pull, handover.Body(c.Open.ID, 0, 0, 0, handover.HistoryDigest{})))
	req.Close = true
	resp, err := http.DefaultClient.Do(req)
	require.NoError(t, err)
	defer resp.Body.Close()
	require.Equal(t, http.StatusOK, resp.StatusCode)
	raw, err := io.ReadAll(resp.Body)
	require.NoError(t, err)
	return raw
}

// TestLostConfirmation: a confirmation is lost and the relay restarts. It must hand out the same bytes again until it
// is confirmed.
func TestLostConfirmation(t *testing.T) {
	eachEngine(t, func(t *testing.T, o relaytest.Options) {
		c := relaytest.New(t, o)
		p := startProcess(t, c, 0)
		for i := range 10 {
			require.NoError(t, c.Post(t.Context(), 0, c.Seal(t, 0, uint64(i)), relaytest.Network(i)))
		}
		requireSoon(t, func() bool { return c.Status(t, 0).Epochs[0].Batches == 1 })
		raw := rawPull(t, c, 1)
		for range 3 {
			p.crash(t)
			require.Equal(t, raw, rawPull(t, c, 1))
		}
		b, err := onion.ParseBatch(raw)
		require.NoError(t, err)
		next := handover.NewRequester(c.SignKey(t, 1), nil)
		for range 2 { // as if the first answer was lost
			require.NoError(t, next.Confirm(t.Context(), c.Open, 0, 0, 0, b.Manifest))
			_, err = next.Pull(t.Context(), c.Open, 0, 0, 0)
			require.ErrorIs(t, err, handover.ErrConfirmed)
			p.crash(t)
		}
	})
}

// TestConfirmsUntilAnswered: a mix whose confirmations get no answer must confirm again, even after a restart, and make
// its batch once.
func TestConfirmsUntilAnswered(t *testing.T) {
	eachEngine(t, func(t *testing.T, o relaytest.Options) {
		c := relaytest.New(t, o)
		first := c.StartFirst(t)
		first.Serve(t, 0, 0, first.Batch(t, 0, 0, 10, c.Slots(t, 0, span(0, 10)...)))
		first.Deaf(true)
		stop := c.Start(t, 1)
		made, _ := c.Pull(t, 0, 0)
		for range 2 {
			lost := first.Deaf(true)
			requireSoon(t, func() bool { return first.Deaf(true) > lost })
			stop()
			stop = c.Start(t, 1)
		}
		require.False(t, first.Confirmed(0, 0))
		first.Deaf(false)
		requireSoon(t, func() bool { return first.Confirmed(0, 0) })
		require.Equal(t, 1, first.Pulls(0, 0), "the mix must pull the batch only once")
		again, _ := c.Pull(t, 0, 0)
		require.Equal(t, made, again)
		require.Empty(t, c.Status(t, 1).Findings)
	})
}

// TestTwoCopies: a copy of a first relay's whole folder runs beside the original, and an attacker directs the next
// hop's requests to either. The next hop is honest. It must release no slot twice, and detect the copy.
func TestTwoCopies(t *testing.T) {
	for name, torn := range map[string]bool{"between batches": false, "within a batch": true} {
		t.Run(name, func(t *testing.T) {
			c := relaytest.New(t, relaytest.Options{})
			var at atomic.Pointer[url.URL]
			var cutting atomic.Bool
			c.Listen(t, 0, &httputil.ReverseProxy{
				Rewrite: func(req *httputil.ProxyRequest) {
					req.Out.Header["X-Forwarded-For"] = req.In.Header["X-Forwarded-For"]
					req.SetURL(at.Load())
				},
				ModifyResponse: func(resp *http.Response) error {
					if resp.ContentLength > 1000 && cutting.Load() {
						resp.Body = io.NopCloser(io.LimitReader(resp.Body, resp.ContentLength-10))
						resp.Header.Del("Content-Length")
						resp.ContentLength = -1
					}
					return nil
				},
			})
			start := func(cfg relay.Config) (*url.URL, func()) {
				listener, err := net.Listen("tcp", "127.0.0.1:0")
				require.NoError(t, err)
				cfg.Listener, cfg.Clock = listener, c.Clock.Now
				r, err := relay.New(cfg)
				require.NoError(t, err)
				return &url.URL{Scheme: "http", Host: listener.Addr().String()}, c.Serve(t, r, cfg.Admin)
			}
			post := func(values ...uint64) {
				for _, v := range values {
					require.NoError(t, c.Post(t.Context(), 0, c.Seal(t, 0, v), relaytest.Network(int(v))))
				}
			}
			original, stop := start(c.Config(t, 0))
			at.Store(original)
			post(span(0, 5)...)
			stop()
			path, _ := c.Twin(t, 0)
			twin, err := relay.LoadConfig(path)
			require.NoError(t, err)
			copied, _ := start(twin)
			original, _ = start(c.Config(t, 0))

			at.Store(original)
			shared := c.Seal(t, 0, 5) // its client sends it to both relays
			require.NoError(t, c.Post(t.Context(), 0, shared, relaytest.Network(5)))
			post(span(6, 4)...)
			cutting.Store(torn)
			at.Store(copied)
			post(span(10, 5)...) // with the first five, this fills another batch 0
			require.NoError(t, c.Post(t.Context(), 0, shared, relaytest.Network(5)))
			post(span(15, 9)...)
			at.Store(original)
			stopMix := c.Start(t, 1)
			if torn {
				requireSoon(t, func() bool {
					s := c.Status(t, 1)
					return len(s.Epochs) > 0
				})
				at.Store(copied)
				waitState(t, c, 1, 0, "complete")
				stopMix()
				c.Start(t, 1)
				hasFinding(t, c, relay.Finding{Reason: "two manifests of one number"})
				_, err := c.Verifier.Pull(t.Context(), c.Open, 1, 0, 0)
				require.ErrorIs(t, err, handover.ErrEpochComplete, "nothing was released")
				return
			}
			first, _ := c.Pull(t, 0, 0)
			require.ElementsMatch(t, span(0, 10), c.Values(t, 0, first)[0])
			at.Store(copied)
			requireSoon(t, func() bool { // the pull tells the copy that the next hop has another batch 0
				resp, err := http.Get("http://" + twin.Admin + "/status")
				require.NoError(t, err)
				defer resp.Body.Close()
				status, err := io.ReadAll(resp.Body)
				require.NoError(t, err)
				return strings.Contains(string(status), "the next hop has a batch that this relay lost")
			})
			_, err = c.Verifier.Pull(t.Context(), c.Open, 1, 0, 1)
			require.ErrorIs(t, err, handover.ErrNotSealed, "the next hop must release nothing of the copy")
		})
	}
}
