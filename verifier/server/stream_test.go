package server_test

import (
	"context"
	"crypto/ed25519"
	"encoding/json"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/doona-dp/doona/internal/testing/relaytest"
	"github.com/doona-dp/doona/shufflerclient"
	"github.com/doona-dp/doona/verifier/server"
	"github.com/doona-dp/doona/wire/codec"
	"github.com/doona-dp/doona/wire/handover"
	"github.com/doona-dp/doona/wire/task"
	"github.com/doona-dp/doona/wire/taskfile"
)

func streamConfig(t *testing.T, c *relaytest.Cascade, data string) server.Config {
	t.Helper()
	cfg := config(t, c, data, 0)
	cfg.Tasks[0].Successors = c.Successors("verifier")
	cfg.Clock = c.Clock.Now
	return cfg
}

// entry is an entry of the list at /api/tasks.
type entry struct {
	Task     string
	Users    uint64
	Batches  uint64
	Position *uint64
	Stream   string
	Tasks    []entry
}

func (r *running) list(t *testing.T) (out []entry) {
	t.Helper()
	status, body := fetch(t, r.pages+"/api/tasks")
	require.Equal(t, http.StatusOK, status, body)
	require.NoError(t, json.Unmarshal([]byte(body), &out))
	return out
}

func (r *running) awaitTask(t *testing.T, open *taskfile.Open) {
	t.Helper()
	require.Eventually(t, func() bool {
		status, _ := fetch(t, r.pages+"/tasks/"+open.ID.String()+"/api/report")
		return status == http.StatusOK
	}, relaytest.Patience, 10*time.Millisecond)
}

// awaitStuck waits until a party's metric says whether the stream with this first task is stuck: "1" or "0".
func awaitStuck(t *testing.T, admin, party string, first *taskfile.Open, want string) {
	t.Helper()
	line := "doona_" + party + `_stream_stuck{task="` + first.ID.String()[:8] + `"} ` + want + "\n"
	require.Eventually(t, func() bool {
		_, metrics := fetch(t, admin+"/metrics")
		return strings.Contains(metrics, line)
	}, relaytest.Patience, 10*time.Millisecond)
}

// playEpoch sends one batch of reports of a task, with tokens if the task needs them.
func playEpoch(t *testing.T, c *relaytest.Cascade, epoch uint64) {
	t.Helper()
	header := http.Header{"X-Forwarded-For": {""}}
	client, err := shufflerclient.New(c.Open, shufflerclient.Options{MaxEpsilon: 100, Header: header, MaxDelta: 1,
		Tokens: func(ctx context.Context, uri string, request []byte) ([]byte, error) {
			return shufflerclient.IssuerTokens(http.DefaultClient, header)(ctx, uri, request)
		}})
	require.NoError(t, err)
	for n := range batchSize {
		header.Set("X-Forwarded-For", relaytest.Network(n))
		r, err := client.Report(epoch, []float64{7})
		require.NoError(t, err)
		require.NoError(t, client.Submit(t.Context(), r))
	}
}

// TestStreamGoesOn: a verifier and an issuer must host two later tasks without a restart or a gap between epochs, and
// again after a restart. The list must show the stream as one entry.
func TestStreamGoesOn(t *testing.T) {
	c := newCascade(t, 2, 1, relaytest.InStream("name"), relaytest.WithTokens)
	c.StartAll(t)
	c.StartIssuer(t, c.IssuerConfig())
	data := t.TempDir()
	v := serve(t, streamConfig(t, c, data))
	now, tasks := c, []*taskfile.Open{c.Open}
	for position := range uint64(3) {
		if position > 0 {
			before := now.Open
			next := c.Renew(t, position, 1)
			for hop := len(c.Open.Relays) - 1; hop >= 0; hop-- {
				require.NoError(t, c.Hand(t.Context(), t, hop, next))
			}
			now = c.After(t, next)
			tasks = append(tasks, now.Open)
			require.Equal(t, before.Epochs.Over(), now.Open.Epochs.Start)
			v.awaitTask(t, now.Open)
			require.Eventually(t, func() bool { // until the issuer hosts the task, too
				status, _ := fetch(t, now.Open.DirectoryURL(0))
				return status != http.StatusNotFound
			}, relaytest.Patience, 10*time.Millisecond)
			c.Clock.Advance(relaytest.Epoch)
		}
		for epoch := range now.Open.Epochs.Count {
			if epoch > 0 {
				c.Clock.Advance(relaytest.Epoch)
			}
			playEpoch(t, now, epoch)
			require.Empty(t, v.wait(t, now.Open, batches(epoch+1)).Findings)
		}
	}
	check := func(v *running) {
		list := v.list(t)
		require.Len(t, list, 1)
		require.Equal(t, "site", list[0].Stream)
		require.Equal(t, tasks[2].ID.String(), list[0].Task, "the newest with batches is shown")
		require.EqualValues(t, 4, list[0].Batches)
		require.EqualValues(t, 4*batchSize, list[0].Users)
		require.Len(t, list[0].Tasks, 3)
		for i, of := range list[0].Tasks {
			require.Equal(t, tasks[i].ID.String(), of.Task)
			require.EqualValues(t, i, *of.Position)
		}
		_, page := fetch(t, v.pages+"/")
		require.Equal(t, 1, strings.Count(page, "<section"))
		for _, open := range tasks {
			require.Contains(t, page, `<a href="tasks/`+open.ID.String()+`/">`)
		}
	}
	check(v)
	v.stop()
	v = serve(t, streamConfig(t, c, data))
	check(v)
	_, metrics := fetch(t, v.admin+"/metrics")
	require.Contains(t, metrics, `doona_verifier_stream_stuck{task="`+c.Open.ID.String()[:8]+`"} 0`)
}

// TestStreamGoesOnBeforeAnyResult: a verifier must host position 2 even if nothing was charged, so that no ledger shows
// the task's stream.
func TestStreamGoesOnBeforeAnyResult(t *testing.T) {
	c := newCascade(t, 1, 1, relaytest.InStream())
	c.StartAll(t)
	cfg := streamConfig(t, c, t.TempDir())
	v := serve(t, cfg)
	now := c
	for position := range uint64(2) {
		bundle := c.Renew(t, position+1, 1)
		require.NoError(t, c.Hand(t.Context(), t, 0, bundle))
		now = c.After(t, bundle)
		v.awaitTask(t, now.Open)
		c.Clock.Advance(time.Unix(int64(now.Open.Epochs.Start), 0).Sub(c.Clock.Now()))
	}
	playEpoch(t, now, 0)
	require.EqualValues(t, 1, v.wait(t, now.Open, batches(1)).Ledger.Published.Epochs)
	require.FileExists(t, filepath.Join(cfg.Data, "ledger", c.Open.ID.String()+".ledger"))
}

// TestStreamWithoutKeys: a verifier must not host a later task until it has its keys. It must refuse a forked stream,
// and its metric must show that.
func TestStreamWithoutKeys(t *testing.T) {
	c := newCascade(t, 1, 1, relaytest.InStream())
	c.StartAll(t)
	data := t.TempDir()
	cfg := streamConfig(t, c, data)
	v := serve(t, cfg)
	awaitStuck(t, v.admin, "verifier", c.Open, "0")
	bundle := c.Renew(t, 1, 2)
	keys := filepath.Join(c.Successors("verifier"), "1-2.keys")
	require.NoError(t, os.Rename(keys, keys+".away"))
	require.NoError(t, c.Hand(t.Context(), t, 0, bundle))
	awaitStuck(t, v.admin, "verifier", c.Open, "1")
	require.NoFileExists(t, filepath.Join(c.Successors("verifier"), "1.bundle"))
	require.NoError(t, os.Rename(keys+".away", keys))
	next := c.After(t, bundle)
	v.awaitTask(t, next.Open)
	awaitStuck(t, v.admin, "verifier", c.Open, "0")
	require.FileExists(t, filepath.Join(c.Successors("verifier"), "1.bundle"))

	v.stop()
	owner, _ := c.AsOwner(t)
	other := *next.Open.Task
	other.Epochs.Start++
	forged, err := taskfile.Sign(&other, owner, next.Open.KeyLists)
	require.NoError(t, err)
	raw, err := forged.Bytes()
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(filepath.Join(c.Successors("verifier"), "1.bundle"), raw, 0o600))
	v = serve(t, cfg)
	awaitStuck(t, v.admin, "verifier", c.Open, "1")
}

// TestProcessFollows makes the same test with `verifier serve` processes, without a restart. The stream's first task
// has already ended.
func TestProcessFollows(t *testing.T) {
	past := func(draft *task.Task) {
		draft.Epochs.Count = 1 // with more ended epochs, the relay would doubt its clock
		draft.Epochs.Start -= uint64(draft.Epochs.Length * 3 / 2)
		relaytest.InStream()(draft)
	}
	c := newCascade(t, 1, 1, past)
	c.StartAll(t)
	file := filepath.Join(c.Dir, "verifier", "verifier.yaml")
	pages, admin := relaytest.FreeAddress(t), relaytest.FreeAddress(t)
	text := strings.NewReplacer("PAGES", pages, "ADMIN", admin).Replace(`{listen: "PAGES", admin: "ADMIN",
  sign_key: sign.key, data: data, pull_interval: 20ms,
  tasks: [{file: ../task0.bundle, hpke_keys: task0.keys, successors: task0.next}]}`)
	require.NoError(t, os.WriteFile(file, []byte(text), 0o600))
	p := startConfig(t, file, pages, admin)
	bundle := c.Renew(t, 1, 2)
	require.NoError(t, c.Hand(t.Context(), t, 0, bundle))
	next := c.After(t, bundle)
	p.awaitTask(t, next.Open)
	epoch, open := next.Open.Epochs.At(uint64(time.Now().Unix()))
	require.True(t, open)
	playEpoch(t, next, epoch)
	require.Empty(t, p.wait(t, next.Open, batches(1)).Findings)
}

// TestStreamIsHandedOn: a verifier must continue a stream under the owner whom the previous owner names, in the same
// ledger.
func TestStreamIsHandedOn(t *testing.T) {
	c := newCascade(t, 1, 1, relaytest.InStream())
	c.StartAll(t)
	v := serve(t, streamConfig(t, c, t.TempDir()))
	old, _ := c.AsOwner(t)
	public, private, err := ed25519.GenerateKey(nil)
	require.NoError(t, err)
	trust := c.Open.Trust(task.SignKey{})
	one, err := taskfile.NewStatement(trust, taskfile.Authority{Key: c.Open.Owner}, c.Open, task.SignKey(public), old)
	require.NoError(t, err)
	raw, err := codec.Marshal(one)
	require.NoError(t, err)
	require.NoError(t, c.Verifier.State(t.Context(), c.Open, c.Open.Task, 0, raw))
	owner := handover.NewRequester(private, nil)
	bundle, err := owner.Renew(t.Context(), c.Open, handover.Renewal{Count: 1, Now: c.Clock.Now(),
		Verifier: c.NextVerifierKeys(t, 1, 1)})
	require.NoError(t, err)
	next := c.After(t, bundle)
	raw, err = bundle.Bytes()
	require.NoError(t, err)
	require.NoError(t, owner.Succeed(t.Context(), c.Open, next.Open.Task, 0, raw))
	playEpoch(t, c, 0)
	v.wait(t, c.Open, batches(1))
	v.awaitTask(t, next.Open)
	c.Clock.Advance(2 * relaytest.Epoch)
	playEpoch(t, next, 0)
	got := v.wait(t, next.Open, batches(1))
	require.EqualValues(t, 2, got.Ledger.Published.Epochs, "of the whole stream")
	require.FileExists(t, filepath.Join(c.Successors("verifier"), "statements"))
}
