package main

import (
	"crypto/ed25519"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/doona-dp/doona/internal/cli"
	"github.com/doona-dp/doona/internal/taskstream"
	"github.com/doona-dp/doona/internal/testing/relaytest"
	"github.com/doona-dp/doona/relay"
	"github.com/doona-dp/doona/wire/handover"
	"github.com/doona-dp/doona/wire/keyfile"
	"github.com/doona-dp/doona/wire/task"
	"github.com/doona-dp/doona/wire/taskfile"
)

// retired is a stream with two relays. From position 1 on, another relay replaces its first relay, which still runs.
type retired struct {
	*relaytest.Cascade
	next     *relaytest.Cascade // The task at position 1.
	recovery task.SignKey
	dir      string
	stop     func() // Stops the replaced relay.
	second   func() // Stops the second relay.
	owner    *handover.Requester
}

// newRetired makes such a stream, and the key files "recovery", "next" and "candidate" in its folder.
func newRetired(t *testing.T) *retired {
	t.Helper()
	r := &retired{dir: t.TempDir()}
	keys := map[string]task.SignKey{}
	for _, name := range []string{"recovery", "next", "candidate"} {
		key, err := keyfile.NewSign(r.path(name))
		require.NoError(t, err)
		keys[name] = task.SignKey(key.Public().(ed25519.PublicKey))
	}
	r.recovery = keys["recovery"]
	r.Cascade = relaytest.New(t, relaytest.Options{Task: relaytest.Mean(10, relaytest.InStream("relays.signKey")),
		Config: func(_ int, cfg *relay.Config) { cfg.Tasks[0].Recovery = taskfile.FormatKey(r.recovery) }})
	r.second = r.Start(t, 1)
	r.stop = r.Start(t, 0)
	cfg := r.Config(t, 0)
	cfg.Listen, cfg.Admin, cfg.SignKey = relaytest.FreeAddress(t), relaytest.FreeAddress(t), r.path("candidate")
	cfg.Store, cfg.Secret, cfg.HPKEKeys = "sqlite:"+r.path("store.db"), r.path("secret"), ""
	cfg.Tasks[0].HPKEKeys, cfg.Tasks[0].Successors = "", r.path("successors")
	candidate, err := relay.New(cfg)
	require.NoError(t, err)
	r.Serve(t, candidate, cfg.Admin)
	_, r.owner = r.AsOwner(t)
	bundle, raw := r.renew(t, 1, map[int]task.Party{0: {URL: "http://" + cfg.Listen, SignKey: keys["candidate"]}})
	r.next = r.After(t, bundle)
	require.NoError(t, os.WriteFile(r.path("1.bundle"), raw, 0o600))
	for hop := range r.next.Open.Relays {
		require.NoError(t, r.owner.Succeed(t.Context(), r.Open, r.next.Open.Task, hop, raw))
	}
	require.NoError(t, r.owner.Succeed(t.Context(), r.Open, r.Open.Task, 0, raw)) // as 'task renew' does
	return r
}

func (r *retired) path(name string) string { return filepath.Join(r.dir, name) }

// renew signs the task at this position of the stream, and replaces the relays in replace.
func (r *retired) renew(t *testing.T, position uint64, replace map[int]task.Party) (*taskfile.Bundle, []byte) {
	t.Helper()
	bundle, err := r.owner.Renew(t.Context(), r.Open, handover.Renewal{Count: 1, Now: r.Clock.Now(),
		Recovery: r.recovery, Verifier: r.NextVerifierKeys(t, position, 1), Replace: replace})
	require.NoError(t, err)
	raw, err := bundle.Bytes()
	require.NoError(t, err)
	return bundle, raw
}

// state runs `task transfer`, `stop` or `recover`.
func (r *retired) state(command string, args ...string) int {
	args = append([]string{"task", command, filepath.Join(r.Dir, "task0.bundle")}, args...)
	if command != "recover" {
		args = append(args, "--recovery", taskfile.FormatKey(r.recovery))
	}
	return cli.Run(root(), args)
}

// to returns the public half of the key in this file of the folder, as --to takes it.
func (r *retired) to(t *testing.T, name string) string {
	t.Helper()
	key, err := keyfile.LoadSign(r.path(name))
	require.NoError(t, err)
	return taskfile.FormatKey(task.SignKey(key.Public().(ed25519.PublicKey)))
}

// served returns the stream that the relay at a hop of a task serves.
func (r *retired) served(t *testing.T, at *task.Task, hop int) *handover.RelayStream {
	t.Helper()
	s, err := r.owner.StreamAt(t.Context(), r.Open, at, hop, r.Open.Trust(r.recovery))
	require.NoError(t, err)
	return s
}

// TestStatementAfterReplacement: an owner ends a stream whose first relay was replaced. The command must send the
// statement to the replaced relay too, because pages may still ask this relay.
func TestStatementAfterReplacement(t *testing.T) {
	r := newRetired(t)
	require.Zero(t, r.state("stop", "--sign-key", filepath.Join(r.Dir, "owner.key"), "--out", r.path("end")))
	for hop := range r.next.Open.Relays {
		require.True(t, r.served(t, r.next.Open.Task, hop).Authority.Stopped)
	}
	require.True(t, r.served(t, r.Open.Task, 0).Authority.Stopped)
}

// TestStatementWithoutTheRetired: the replaced relay no longer runs. The commands must find the relays of the newest
// task by the second relay. If no relay of the first task runs, they must find them by the task of --latest-task.
func TestStatementWithoutTheRetired(t *testing.T) {
	r := newRetired(t)
	r.stop()
	owner := filepath.Join(r.Dir, "owner.key")
	require.Zero(t, r.state("transfer", "--sign-key", owner, "--to", r.to(t, "next"), "--out", r.path("on")))
	require.EqualValues(t, 1, r.served(t, r.next.Open.Task, 0).Authority.Number)

	r.second()
	late := []string{"--sign-key", r.path("recovery"), "--to", r.to(t, "next"), "--out", r.path("late")}
	require.Equal(t, 1, r.state("recover", late...))
	require.NoFileExists(t, r.path("late"), "no relay of the first task runs")
	require.Equal(t, 1, r.state("recover", append(late, "--latest-task", r.Dir+"/task0.bundle")...))
	require.NoFileExists(t, r.path("late"))
	require.Equal(t, 1, r.state("recover", append(late, "--latest-task", r.path("1.bundle"))...), "the second relay is down")
	require.FileExists(t, r.path("late"))
	require.EqualValues(t, 1, r.served(t, r.next.Open.Task, 0).Authority.Era)
	_, err := r.owner.Renew(t.Context(), r.Open, handover.Renewal{Newest: r.next.Open, Recovery: r.recovery})
	require.ErrorContains(t, err, "owner-key", "the new first relay serves a statement that changed the owner's key")
}

// TestRecoveryAfterReplacement: a thief of the owner's key sends a task to the new first relay only. The recovery
// key's statement must name this task, although no relay of the first task has it.
func TestRecoveryAfterReplacement(t *testing.T) {
	r := newRetired(t)
	r.Clock.Advance(2 * relaytest.Epoch)
	bundle, raw := r.renew(t, 2, nil)
	stolen, err := bundle.Open(nil)
	require.NoError(t, err)
	require.NoError(t, r.owner.Succeed(t.Context(), r.Open, stolen.Task, 0, raw))
	require.Zero(t, r.state("recover", "--sign-key", r.path("recovery"), "--to", r.to(t, "next"), "--out", r.path("back")))
	require.FileExists(t, r.path("back.2.bundle"), "the command must write the task that the second relay lacks")
	now := r.served(t, r.next.Open.Task, 0).Authority
	require.EqualValues(t, 1, now.Era)
	require.EqualValues(t, 2, now.Position)
}

// TestShorterStream: a first relay that hides later tasks, or sends the wrong bundle, must stop neither the owner nor a
// party that follows the stream.
func TestShorterStream(t *testing.T) {
	r := newRetired(t)
	r.stop()
	first := r.Bundle(t)
	chain, err := (&taskfile.Chain{Tasks: []*taskfile.Bundle{first}}).Bytes()
	require.NoError(t, err)
	raw, err := first.Bytes()
	require.NoError(t, err)
	r.Listen(t, 0, http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		if strings.HasPrefix(req.URL.Path, "/v1/streams/") {
			_, _ = w.Write(chain)
			return
		}
		_, _ = w.Write(raw)
	}))
	r.Clock.Advance(2 * relaytest.Epoch)
	bundle, _ := r.renew(t, 2, nil)
	third, err := bundle.Open(nil)
	require.NoError(t, err)
	require.EqualValues(t, 2, third.Stream.Position)

	folder, err := taskstream.Open(r.path("follower"), raw, r.recovery)
	require.NoError(t, err)
	ready := func(*taskstream.StreamTask) error { return nil }
	require.NoError(t, folder.Follow(t.Context(), r.owner, uint64(r.Clock.Now().Unix()), ready))
	require.Len(t, folder.Tasks(), 2)
	got, _, err := r.owner.BundleOf(t.Context(), r.Open)
	require.NoError(t, err)
	require.Equal(t, raw, got)
	_, _, err = r.owner.Bundle(t.Context(), r.next.Open.ID, handover.StreamRelay{Task: r.Open.Task})
	require.ErrorContains(t, err, "as was asked for")
}
