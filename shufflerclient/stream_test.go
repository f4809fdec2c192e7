package shufflerclient_test

import (
	"bytes"
	"crypto/ed25519"
	"crypto/sha256"
	"encoding/hex"
	"io"
	"math"
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/doona-dp/doona/internal/testing/fixture"
	"github.com/doona-dp/doona/internal/testing/relaytest"
	"github.com/doona-dp/doona/planner"
	"github.com/doona-dp/doona/shufflerclient"
	"github.com/doona-dp/doona/wire/endpoint"
	"github.com/doona-dp/doona/wire/signing"
	"github.com/doona-dp/doona/wire/task"
	"github.com/doona-dp/doona/wire/taskfile"
)

// recorder is an HTTP client that records requests. It may answer requests for a stream and its tasks itself.
type recorder struct {
	asked []string
	chain []byte             // answer to requests for a stream; if nil, the relay answers
	later []*taskfile.Bundle // tasks that the relay does not serve
}

func (r *recorder) Do(req *http.Request) (*http.Response, error) {
	r.asked = append(r.asked, req.Method+" "+req.URL.String())
	if r.chain != nil && strings.Contains(req.URL.Path, "/v1/streams/") {
		return &http.Response{StatusCode: http.StatusOK, Body: io.NopCloser(bytes.NewReader(r.chain))}, nil
	}
	for _, b := range r.later {
		if id := task.ID(sha256.Sum256(b.Task)); strings.HasSuffix(req.URL.Path, endpoint.PathOf(id)+endpoint.AllKeys) {
			raw, err := b.Bytes()
			return &http.Response{StatusCode: http.StatusOK, Body: io.NopCloser(bytes.NewReader(raw))}, err
		}
	}
	return http.DefaultClient.Do(req)
}

// ofStream returns the options of a client that follows a cascade's stream.
func ofStream(c *relaytest.Cascade, via *recorder) shufflerclient.Options {
	return shufflerclient.Options{Stream: c.Open.StreamURL(c.Open.Task, 0), Owner: c.Owner, MaxEpsilon: math.Inf(1),
		MaxDelta: 1,
		HTTP:     via, Allow: []string{"name"}, Header: http.Header{"X-Forwarded-For": {"10.0.0.1"}}}
}

// TestFollow: a client reports in every epoch of a stream's first task and of its two successors. It must ask the first
// relay for the stream once per epoch, and for the keys once per task.
func TestFollow(t *testing.T) {
	c := relaytest.New(t, relaytest.Options{Task: relaytest.Mean(10, relaytest.InStream("name"))})
	c.StartAll(t)
	via := &recorder{}
	o := ofStream(c, via)
	o.Ledger = shufflerclient.LedgerFile(filepath.Join(t.TempDir(), "ledger"))
	o.Budget = shufflerclient.Budget{Epsilon: 1000, Delta: 1e-2, Days: 30}
	for _, bad := range []string{"", "https://r.example/v1/streams/", c.Open.URL(),
		"https://r.example/" + c.Open.ID.String()} {
		other := o
		other.Stream = bad
		_, err := shufflerclient.Follow(t.Context(), other)
		require.ErrorContains(t, err, "an address that ends in /v1/streams/", bad)
	}
	stream, err := shufflerclient.Follow(t.Context(), o)
	require.NoError(t, err)
	now, epochs := c, 0
	report := func() {
		for range 2 { // the second call must not fetch the stream again
			client, epoch, err := stream.At(t.Context(), c.Clock.Now())
			require.NoError(t, err)
			require.Equal(t, now.Open.ID, client.Task().ID)
			want, _ := now.Open.Epochs.At(uint64(c.Clock.Now().Unix()))
			require.Equal(t, want, epoch)
		}
		client, epoch, err := stream.At(t.Context(), c.Clock.Now())
		require.NoError(t, err)
		r, err := client.Report(epoch, []float64{7})
		require.NoError(t, err)
		require.NoError(t, client.Submit(t.Context(), r))
		_, err = client.Report(epoch, []float64{7})
		require.ErrorIs(t, err, shufflerclient.ErrReported)
		epochs++
	}
	report()
	c.Clock.Advance(relaytest.Epoch)
	report()
	for position := range uint64(2) {
		bundle := c.Renew(t, position+1, 1)
		next := c.After(t, bundle)
		for hop := range c.Open.Relays {
			require.NoError(t, c.Hand(t.Context(), t, hop, bundle))
		}
		c.Clock.Advance(relaytest.Epoch)
		now = next
		report()
	}
	first := c.Open.Relays[0].URL + "/"
	require.True(t, slices.ContainsFunc(via.asked, func(s string) bool { return strings.HasPrefix(s, "POST "+first) }))
	fetched, keys := 0, 0
	for _, asked := range via.asked {
		require.Contains(t, asked, " "+first, "only the first relay is asked")
		switch {
		case asked == "GET "+o.Stream:
			fetched++
		case strings.HasPrefix(asked, "GET "):
			require.True(t, strings.HasSuffix(asked, endpoint.AllKeys), asked)
			keys++
		}
	}
	require.Equal(t, []int{epochs, 3}, []int{fetched, keys})

	require.NoError(t, o.Ledger.Update(func(l *shufflerclient.Ledger) error {
		require.Equal(t, []shufflerclient.Seen{{Stream: c.Open.ID.String(), Position: 2, Task: now.Open.ID.String()}},
			l.Streams)
		require.Len(t, l.Lines, 1, "all tasks of a stream must share one line")
		require.EqualValues(t, 4, l.Lines[0].Runs[0].Count)
		return nil
	}))
	c.Clock.Advance(relaytest.Epoch)
	_, _, err = stream.At(t.Context(), c.Clock.Now())
	require.ErrorContains(t, err, "invalid now", "the stream is over")
}

// chainOf returns a stream in the form that relays serve.
func chainOf(t *testing.T, bundles ...*taskfile.Bundle) []byte {
	t.Helper()
	chain := &taskfile.Chain{}
	for _, b := range bundles {
		chain.Tasks = append(chain.Tasks, b.Bare())
	}
	raw, err := chain.Bytes()
	require.NoError(t, err)
	return raw
}

// TestFollowRefuses: a client must refuse forged, forked, replayed and misplaced successors, also after a restart, and
// in another process with the same ledger.
func TestFollowRefuses(t *testing.T) {
	c := relaytest.New(t, relaytest.Options{Hops: 1, Task: relaytest.Mean(10, relaytest.InStream("name"))})
	c.StartAll(t)
	owner, _ := c.AsOwner(t)
	root := c.Bundle(t)
	sign := func(change func(*task.Task)) *taskfile.Bundle {
		next := *c.Open.Task
		next.Stream = &task.StreamPosition{Name: "site", Position: 1, Before: c.Open.ID, Allow: []string{"name"}}
		next.Epochs.Start = c.Open.Epochs.Over()
		change(&next)
		b, err := taskfile.Sign(&next, owner, c.Open.KeyLists)
		require.NoError(t, err)
		return b
	}
	good, other := sign(func(*task.Task) {}), sign(func(t *task.Task) { t.Epochs.Start++ })
	forged := *good
	forged.Signature = bytes.Clone(good.Signature)
	forged.Signature[0] ^= 1
	stranger := *good
	key, _ := relaytest.New(t, relaytest.Options{Hops: 1}).AsOwner(t)
	stranger.Owner, stranger.Signature = key.Public().(ed25519.PublicKey), signing.Sign(key, signing.Task, good.Task)

	via := &recorder{}
	o := ofStream(c, via)
	follow := func(bundles ...*taskfile.Bundle) error {
		via.chain = chainOf(t, bundles...)
		_, err := shufflerclient.Follow(t.Context(), o)
		return err
	}
	for _, c2 := range []struct {
		name, want string
		bundles    []*taskfile.Bundle
	}{
		{"forged", "stranger", []*taskfile.Bundle{root, &forged}},
		{"another owner", "owner", []*taskfile.Bundle{root, &stranger}},
		{"out of order", "stream", []*taskfile.Bundle{good, root}},
		{"without the first", "stream", []*taskfile.Bundle{good}},
		{"twice", "stream.position", []*taskfile.Bundle{root, good, good}},
		{"too early", "epochs.start", []*taskfile.Bundle{root, sign(func(t *task.Task) { t.Epochs.Start-- })}},
		{"frozen", "clients.quota", []*taskfile.Bundle{root, sign(func(t *task.Task) { t.Clients.Quota++ })}},
	} {
		require.ErrorContains(t, follow(c2.bundles...), c2.want, c2.name)
	}
	renamed := sign(func(t *task.Task) { t.Name = "another" })
	require.NoError(t, follow(root, renamed))
	o.Allow = nil
	require.ErrorContains(t, follow(root, renamed), "name", "the page does not allow it")

	o.Ledger = shufflerclient.LedgerFile(filepath.Join(t.TempDir(), "ledger"))
	o.Budget = shufflerclient.Budget{Epsilon: 1000, Delta: 1e-2, Days: 30}
	require.NoError(t, follow(root))
	require.NoError(t, follow(root, good))
	require.ErrorIs(t, follow(root, other), shufflerclient.ErrForked)
	require.ErrorIs(t, follow(root), shufflerclient.ErrReplayed)
	via.chain = chainOf(t, root, good)
	stream, err := shufflerclient.Follow(t.Context(), o)
	require.NoError(t, err)
	o.Ledger = nil
	via.chain = chainOf(t, root, other)
	_, _, err = stream.At(t.Context(), c.Clock.Now().Add(relaytest.Epoch))
	require.ErrorIs(t, err, shufflerclient.ErrForked)
	_, err = shufflerclient.Follow(t.Context(), o)
	require.NoError(t, err, "a client without a record must accept it")

	id := hex.EncodeToString(c.Open.ID[:])
	for _, bad := range []func(){
		func() { o.Stream += "00" },
		func() { o.Stream = strings.Replace(o.Stream, id, "zz"+id[2:], 1) },
		func() { o.Allow = []string{"claim.epsilon"} },
		func() { o.Owner = "" },
	} {
		kept := o
		bad()
		_, err := shufflerclient.Follow(t.Context(), o)
		require.ErrorContains(t, err, "invalid ")
		o = kept
	}
}

// TestFollowRefusesOtherLimits: a renewal must keep the limits under which the stream's budget was composed, the total
// and the origins, whatever the page allows. The error must name the part.
func TestFollowRefusesOtherLimits(t *testing.T) {
	limits := task.Epochs{Cap: task.Cap{Reports: 21, Window: 60}, Pace: task.Cap{Reports: 1, Window: 3},
		Events: task.Events{Most: 2, Window: 30, Default: 3}}
	draft, err := planner.Draft(planner.Query{Name: "sign-ups", Query: task.Histogram, Bins: 8, Labels: true,
		Batch: 1000, Honest: .9, TotalEpsilon: 10, TotalDelta: 1e-5, Epochs: 60, Cap: limits.Cap, Pace: limits.Pace,
		Events: limits.Events, Relays: &planner.RelayNoise{}})
	require.NoError(t, err)
	draft.Stream = &task.StreamPosition{Name: "site"}
	epochs := limits
	epochs.Start, epochs.Length, epochs.Count = uint64(time.Now().Unix()), day, 60
	root, err := fixture.Sign(draft, []string{"https://a.example", "https://b.example"}, epochs)
	require.NoError(t, err)

	via := &recorder{}
	open := taskfile.Open{Task: root.Task, ID: root.ID}
	follow := func(change func(*task.Task)) error {
		via.chain = chainOf(t, root.Bundle, root.Succeed(root.Owner, change).Bundle)
		_, err := shufflerclient.Follow(t.Context(), shufflerclient.Options{Stream: open.StreamURL(root.Task, 0),
			Owner: root.OwnerText(), MaxEpsilon: 10, HTTP: via, Allow: []string{"clients.origins"}, Ledger: &kept{},
			Budget: shufflerclient.Budget{Epsilon: 10, Delta: 1e-5, Days: 365}})
		return err
	}
	require.NoError(t, follow(func(*task.Task) {}))
	for _, c := range []struct {
		part   string
		change func(*task.Task)
	}{
		{"cap", func(t *task.Task) { t.Epochs.Cap.Reports++ }},
		{"cap", func(t *task.Task) { t.Epochs.Cap.Window++ }},
		{"pace", func(t *task.Task) { t.Epochs.Pace.Window++ }},
		{"pace", func(t *task.Task) { t.Epochs.Pace = task.Cap{} }},
		{"pace", func(t *task.Task) { t.Epochs.Cap, t.Epochs.Pace = task.Cap{}, task.Cap{} }},
		{"events", func(t *task.Task) { t.Epochs.Events.Most++ }},
		{"events", func(t *task.Task) { t.Epochs.Events.Most-- }},
		{"events", func(t *task.Task) { t.Epochs.Events.Window++ }},
		{"events", func(t *task.Task) { t.Epochs.Events.Window-- }},
		{"events", func(t *task.Task) {
			noise, usual := *t.Noise, uint64(4)
			noise.Rest, t.Noise, t.Epochs.Events.Default = &usual, &noise, usual
		}},
		{"events", func(t *task.Task) {
			noise := *t.Noise
			noise.Rest, t.Noise, t.Epochs.Events = nil, &noise, task.Events{}
		}},
		{"epochs.length", func(t *task.Task) { t.Epochs.Length /= 2 }},
		{"claim.total", func(t *task.Task) { t.Claim.SetTotal("9.9", "1e-5") }},
		{"clients.origins", func(t *task.Task) { t.Clients.Origins = []string{"https://other.example"} }},
	} {
		require.ErrorContains(t, follow(c.change), "invalid "+c.part+" not the first task's")
	}
}

// TestStreamLedgerFromOutside: the client must check the records of streams in a ledger that the caller stored.
func TestStreamLedgerFromOutside(t *testing.T) {
	id := strings.Repeat("ab", 32)
	said := func(number uint64, hash string) []shufflerclient.Seen {
		newest := shufflerclient.Said{Number: number, Hash: hash}
		return []shufflerclient.Seen{{Stream: id, Task: id, Statements: newest}}
	}
	for _, streams := range [][]shufflerclient.Seen{
		{{Stream: "x", Task: id}}, {{Stream: id, Task: ""}}, {{Stream: id, Task: strings.Repeat("cd", 32)}},
		{{Stream: id, Task: id}, {Stream: id, Position: 1, Task: id}},
		said(0, id), said(1, strings.Repeat("00", 32)), said(1, ""), said(1, id[2:]),
	} {
		l := &shufflerclient.Ledger{Streams: streams}
		b := shufflerclient.Budget{Epsilon: 1, Delta: 1e-3, Days: 1}
		err := l.Spend(b, "line", shufflerclient.Price{}, 0, task.Epochs{Length: 1})
		require.ErrorContains(t, err, "want streams, each once")
	}
}

// TestFollowStatements: a client must accept the key that the owner's statement names. If a relay later hides
// statements, the client must refuse the stream, also in another process with the same ledger. It must not report to a
// stopped stream.
func TestFollowStatements(t *testing.T) {
	c := relaytest.New(t, relaytest.Options{Hops: 1, Task: relaytest.Mean(10, relaytest.InStream())})
	owner, _ := c.AsOwner(t)
	_, next, err := ed25519.GenerateKey(nil)
	require.NoError(t, err)
	_, rescue, err := ed25519.GenerateKey(nil)
	require.NoError(t, err)
	public := func(key ed25519.PrivateKey) task.SignKey { return task.SignKey(key.Public().(ed25519.PublicKey)) }
	trust := c.Open.Trust(public(rescue))
	says := func(all taskfile.Statements, key task.SignKey, signer ed25519.PrivateKey) taskfile.Statements {
		a, err := all.Authority(trust)
		require.NoError(t, err)
		one, err := taskfile.NewStatement(trust, a, c.Open, key, signer)
		require.NoError(t, err)
		all, err = all.With(one, trust)
		require.NoError(t, err)
		return all
	}
	on := says(nil, public(next), owner)
	end := says(on, task.SignKey{}, next)
	back := says(end, public(next), rescue)
	second := *c.Open.Task
	second.Stream = &task.StreamPosition{Name: "site", Position: 1, Before: c.Open.ID}
	second.Epochs.Start = c.Open.Epochs.Over()
	bundle, err := taskfile.Sign(&second, next, c.Open.KeyLists)
	require.NoError(t, err)

	via := &recorder{}
	o := ofStream(c, via)
	o.Allow = nil
	o.Ledger = shufflerclient.LedgerFile(filepath.Join(t.TempDir(), "ledger"))
	o.Budget = shufflerclient.Budget{Epsilon: 1000, Delta: 1e-2, Days: 30}
	follow := func(all taskfile.Statements, more ...*taskfile.Bundle) (*shufflerclient.Stream, error) {
		raw, err := (&taskfile.Chain{Tasks: append([]*taskfile.Bundle{c.Bundle(t)}, more...), Statements: all}).Bytes()
		require.NoError(t, err)
		via.chain, via.later = raw, append(more, c.Bundle(t))
		return shufflerclient.Follow(t.Context(), o)
	}
	_, err = follow(nil, bundle)
	require.ErrorContains(t, err, "invalid owner")
	_, err = follow(nil)
	require.NoError(t, err)
	stream, err := follow(on, bundle)
	require.NoError(t, err)
	client, epoch, err := stream.At(t.Context(), c.Clock.Now().Add(2*relaytest.Epoch))
	require.NoError(t, err)
	require.Equal(t, taskfile.ID(&second), client.Task().ID)
	require.Zero(t, epoch)
	_, err = follow(nil)
	require.ErrorIs(t, err, shufflerclient.ErrReplayed)

	o.Ledger = shufflerclient.LedgerFile(filepath.Join(t.TempDir(), "another"))
	stream, err = follow(end)
	require.NoError(t, err)
	_, _, err = stream.At(t.Context(), c.Clock.Now())
	require.ErrorIs(t, err, shufflerclient.ErrStopped)
	for _, older := range []taskfile.Statements{nil, on} {
		_, err = follow(older)
		require.ErrorIs(t, err, shufflerclient.ErrReplayed)
	}
	_, err = follow(back)
	require.ErrorContains(t, err, "invalid era", "this client has no recovery key")
	o.Recovery = taskfile.FormatKey(public(rescue))
	stream, err = follow(back, bundle)
	require.NoError(t, err)
	_, _, err = stream.At(t.Context(), c.Clock.Now())
	require.NoError(t, err)
	_, err = follow(end)
	require.ErrorIs(t, err, shufflerclient.ErrReplayed)
	o.Recovery = "x"
	_, err = follow(back)
	require.ErrorContains(t, err, "invalid recovery")
}
