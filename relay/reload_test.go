package relay_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/doona-dp/doona/internal/testing/relaytest"
	"github.com/doona-dp/doona/relay"
	"github.com/doona-dp/doona/wire/handover"
	"github.com/doona-dp/doona/wire/problem"
	"github.com/doona-dp/doona/wire/task"
	"github.com/doona-dp/doona/wire/taskfile"
)

// reloading is a cascade whose running relays reload their owners.
type reloading struct {
	*relaytest.Cascade
	relays []*relay.Relay
	owners []relay.OwnerConfig // folders are relative to folder, and to the relay
	folder string
}

// startReloading starts relays that approve c's owner for up to 2 tasks.
func startReloading(t *testing.T, o relaytest.Options) *reloading {
	c := relaytest.New(t, o.Approving(t, 2))
	all := &reloading{Cascade: c, owners: c.Config(t, 0).Owners, folder: t.TempDir()}
	all.owners[0].Folder = "first"
	for hop := range c.Open.Relays {
		cfg := all.config(t, hop)
		r, err := relay.New(cfg)
		require.NoError(t, err)
		c.Serve(t, r, cfg.Admin)
		all.relays = append(all.relays, r)
	}
	return all
}

func (c *reloading) config(t testing.TB, hop int) relay.Config {
	cfg := c.Config(t, hop)
	cfg.Owners = nil
	for _, o := range c.owners {
		o.Folder = c.folderOf(o, hop)
		cfg.Owners = append(cfg.Owners, o)
	}
	return cfg
}

func (c *reloading) folderOf(o relay.OwnerConfig, hop int) string {
	return filepath.Join(c.folder, fmt.Sprint(hop), o.Folder)
}

// reload makes all relays read the owners again, and returns the errors.
func (c *reloading) reload(t testing.TB, owners ...relay.OwnerConfig) (failed error) {
	t.Helper()
	c.owners = owners
	for hop, r := range c.relays {
		failed = errors.Join(failed, r.Reload(func() (relay.Config, error) { return c.config(t, hop), nil }))
	}
	return failed
}

func statusOf(t *testing.T, c *relaytest.Cascade) (status relay.Status) {
	t.Helper()
	_, text := get(t, c, 0, "/status")
	require.NoError(t, json.Unmarshal([]byte(text), &status))
	return status
}

// reporters sends reports of clients, each from its own network, until stop is called, which returns how many. No
// report may be refused.
func reporters(t *testing.T, c *relaytest.Cascade) (stop func() int) {
	ctx, end := context.WithCancel(t.Context())
	var clients sync.WaitGroup
	var sent atomic.Int64
	failed := make(chan error, 4)
	for range cap(failed) {
		clients.Go(func() {
			for ctx.Err() == nil {
				n := sent.Add(1)
				err := c.Post(context.Background(), 0, c.Seal(t, 0, uint64(n)), relaytest.Network(int(n)))
				if err != nil {
					failed <- fmt.Errorf("report %d: %w", n, err)
					return
				}
			}
		})
	}
	return func() int {
		end()
		clients.Wait()
		close(failed)
		require.NoError(t, <-failed)
		return int(sent.Load())
	}
}

// requireAll requires that n reports come out of the cascade. It first fills the last batch.
func requireAll(t *testing.T, c *relaytest.Cascade, n int) {
	t.Helper()
	size := int(c.Open.Batch.Size)
	for ; n%size != 0; n++ {
		require.NoError(t, c.Post(t.Context(), 0, c.Seal(t, 0, uint64(n+1)), relaytest.Network(n+1)))
	}
	for seq := range n / size {
		b, _ := c.Pull(t, 0, uint64(seq))
		require.Len(t, b.Ciphertexts[0], size)
	}
	requireSoon(t, func() bool {
		epochs := c.Status(t, 0).Epochs
		return len(epochs) == 1 && epochs[0].Batches == uint64(n/size)
	})
}

// TestOwnersChangeUnderLoad: an owner is added, limited and suspended, withdraws its task, and an owner is removed,
// while clients report to another owner's task. No report of that task may be refused or lost.
func TestOwnersChangeUnderLoad(t *testing.T) {
	all := startReloading(t, relaytest.Options{})
	first := all.owners[0]
	busy := begin(t, all.Cascade, all.Named("busy"))
	stop := reporters(t, busy)

	second := all.OfOwner(t)
	_, err := second.Ask(t, 0, second.Named("one"))
	requireProblem(t, problem.Unauthorized, err)
	added := relay.OwnerConfig{Owner: second.Owner, Folder: "second", Tasks: 2}
	require.NoError(t, all.reload(t, first, added))
	one := begin(t, second, second.Named("one"))
	fillEpoch(t, one, 0)
	waiting := second.Sign(t, second.Named("waiting"))

	added.Tasks = 1
	require.NoError(t, all.reload(t, first, added))
	err = second.Begin(t.Context(), t, 0, waiting)
	requireProblem(t, problem.OwnerTaskLimit, err)
	require.ErrorContains(t, err, "limit 1")

	collected := 10
	for i := range collected {
		require.NoError(t, one.Post(t.Context(), 0, one.Seal(t, 0, uint64(i)), relaytest.Network(100+i)))
	}
	added.Suspended = true
	require.NoError(t, all.reload(t, first, added))
	body := one.Seal(t, 0, 1)
	p := requireProblem(t, problem.Overloaded, one.Post(t.Context(), 0, body, relaytest.Network(200)))
	require.Equal(t, 10*time.Minute, p.RetryAfter, "clients keep the report and try again at a later visit")
	_, err = second.Ask(t, 0, second.Named("two"))
	requireProblem(t, problem.OwnerTaskLimit, err)
	require.ErrorContains(t, err, "suspended")
	requireProblem(t, problem.OwnerTaskLimit, second.Begin(t.Context(), t, 0, waiting))
	one.Pull(t, 0, 1) // collected before the suspension
	status := statusOf(t, all.Cascade)
	require.Equal(t, relay.OwnerStatus{Owner: second.Owner, Folder: filepath.Base(added.Folder), TaskLimit: 1, Tasks: 1,
		Asked: 1, Suspended: true, Batches: status.Owners[1].Batches, Confirmed: status.Owners[1].Confirmed,
		Reports: status.Owners[1].Reports}, status.Owners[1])
	_, table, _ := run(t, "owners", "--json", "--admin", "http://"+all.Config(t, 0).Admin)
	require.Contains(t, table, `"suspended":true`)
	require.Empty(t, status.Refusing)
	_, metrics := get(t, all.Cascade, 0, "/metrics")
	require.Contains(t, metrics, `doona_relay_owners{state="active"} 1`)
	require.Contains(t, metrics, `doona_relay_owners{state="suspended"} 1`)

	require.ErrorContains(t, all.reload(t, first), "has 1 tasks and 1 waiting key lists")
	require.Len(t, statusOf(t, all.Cascade).Owners, 2)
	added.Suspended = false
	require.NoError(t, all.reload(t, first, added))
	require.NoError(t, one.Post(t.Context(), 0, body, relaytest.Network(200)))
	for hop := range all.relays {
		require.NoError(t, withdraw(t, one, hop))
	}
	requireWithdrawn(t, one)
	requireSoon(t, func() bool {
		status := statusOf(t, all.Cascade)
		return status.Tasks[1].Withdrawn && status.Tasks[1].Erasing == 0 && status.Owners[1].Withdrawn == 1
	})

	third := all.OfOwner(t)
	idle := relay.OwnerConfig{Owner: third.Owner, Folder: "third", Tasks: 1}
	require.NoError(t, all.reload(t, first, added, idle))
	require.NoError(t, all.reload(t, first, added))
	_, err = third.Ask(t, 0, third.Named("one"))
	requireProblem(t, problem.Unauthorized, err)
	for hop := range all.relays {
		require.NoError(t, os.RemoveAll(all.folderOf(idle, hop)))
	}
	time.Sleep(2500 * time.Millisecond) // time to miss the folder wrongly
	all.WaitReady(t, all.Config(t, 0).Admin)
	requireAll(t, busy, stop())
}

// TestSuspendedStream: a suspended owner may not continue a stream, but can still stop it.
func TestSuspendedStream(t *testing.T) {
	all := startReloading(t, relaytest.Options{Hops: 1})
	first := begin(t, all.Cascade, all.Named("first", func(t *task.Task) { t.Stream = &task.StreamPosition{Name: "shop"} }))
	fillEpoch(t, first, 0)
	line := streamLine{first}
	line.renew(t)
	now := all.owners[0]
	now.Suspended = true
	require.NoError(t, all.reload(t, now))
	_, owner := all.AsOwner(t)
	_, err := owner.NextKeys(t.Context(), first.Open, first.Open.Task, 0, 2)
	requireProblem(t, problem.OwnerTaskLimit, err)
	raw, err := first.Bundle(t).Bytes()
	require.NoError(t, err)
	requireProblem(t, problem.OwnerTaskLimit, owner.Succeed(t.Context(), first.Open, first.Open.Task, 0, raw))
	requireProblem(t, problem.Malformed, owner.State(t.Context(), first.Open, first.Open.Task, 0, []byte("x")))
	body := line[1].Seal(t, 0, 1)
	requireProblem(t, problem.Overloaded, line[1].Post(t.Context(), 0, body, relaytest.Network(50)))
	now.Suspended = false
	require.NoError(t, all.reload(t, now))
	require.NoError(t, line[1].Post(t.Context(), 0, body, relaytest.Network(50)))
}

// slowBody sends a request's body only after do, so that the relay has read the header before.
type slowBody struct{ do func() }

func (s slowBody) RoundTrip(req *http.Request) (*http.Response, error) {
	body, sent := io.Pipe()
	whole := req.Body
	req = req.Clone(req.Context())
	req.Body, req.ContentLength = body, -1
	go func() {
		time.Sleep(500 * time.Millisecond) // net/http sends the header once a body is late for 200 ms
		s.do()
		_, err := io.Copy(sent, whole)
		sent.CloseWithError(err)
	}()
	return http.DefaultTransport.RoundTrip(req)
}

// TestSuspendedMeanwhile: an owner who is suspended while it sends a stream's next task may not continue the stream.
func TestSuspendedMeanwhile(t *testing.T) {
	all := startReloading(t, relaytest.Options{Hops: 1})
	first := begin(t, all.Cascade, all.Named("first", func(t *task.Task) { t.Stream = &task.StreamPosition{Name: "shop"} }))
	now := all.owners[0]
	now.Suspended = true
	key, owner := all.AsOwner(t)
	keys, err := owner.NextKeys(t.Context(), first.Open, first.Open.Task, 0, 2)
	require.NoError(t, err)
	require.NotEmpty(t, keys)
	raw, err := first.Bundle(t).Bytes()
	require.NoError(t, err)
	slow := handover.NewRequester(key, slowBody{func() { assert.NoError(t, all.reload(t, now)) }})
	requireProblem(t, problem.OwnerTaskLimit, slow.Succeed(t.Context(), first.Open, first.Open.Task, 0, raw))
}

// TestLowerTaskLimitByReload: an owner has more tasks than the new limit. The relay must serve them and refuse another.
// It must refuse a limit for which max_memory is too small.
func TestLowerTaskLimitByReload(t *testing.T) {
	all := startReloading(t, relaytest.Options{Hops: 1,
		Config: func(_ int, cfg *relay.Config) { cfg.MaxMemory = 1 << 20 }})
	one := begin(t, all.Cascade, all.Named("one"))
	two := begin(t, all.Cascade, all.Named("two"))
	now := all.owners[0]
	now.Tasks = 100
	require.ErrorContains(t, all.reload(t, now), "invalid max_memory 1MiB: want at least 2MiB")
	now.Tasks = 1
	require.NoError(t, all.reload(t, now))
	_, err := all.Ask(t, 0, all.Named("three"))
	requireProblem(t, problem.OwnerTaskLimit, err)
	require.ErrorContains(t, err, "2 tasks and 0 waiting key lists, limit 1")
	fillEpoch(t, one, 0)
	fillEpoch(t, two, 0)
}

// TestReloadRefuses: the relay must refuse every change of its configuration except of owners, and every invalid
// configuration. It must say so by name until a reload succeeds, stay ready, and change nothing.
func TestReloadRefuses(t *testing.T) {
	all := startReloading(t, relaytest.Options{Hops: 1})
	good := all.config(t, 0)
	other := all.OfOwner(t)
	for want, change := range map[string]func(cfg *relay.Config) error{
		"max_memory has changed":      func(cfg *relay.Config) error { cfg.MaxMemory = 1 << 30; return nil },
		"idle_timeout has changed":    func(cfg *relay.Config) error { cfg.IdleTimeout = time.Minute; return nil },
		"secret has changed":          func(cfg *relay.Config) error { cfg.Secret += ".2"; return nil },
		"sign_key has changed":        func(cfg *relay.Config) error { cfg.SignKey += ".2"; return nil },
		"retention has changed":       func(cfg *relay.Config) error { cfg.Retention = 9000 * time.Hour; return nil },
		"trusted_proxies has changed": func(cfg *relay.Config) error { cfg.TrustedProxies = nil; return nil },
		"tasks has changed":           func(cfg *relay.Config) error { cfg.Tasks = make([]relay.TaskConfig, 1); return nil },
		"invalid group -1":            func(cfg *relay.Config) error { cfg.Group = -1; return nil },
		"at least one task":           func(cfg *relay.Config) error { cfg.Owners = nil; return nil },
		"unknown field":               func(*relay.Config) error { return errors.New(`unknown field "owner"`) },
		"each owner only once":        func(cfg *relay.Config) error { cfg.Owners[1].Owner = cfg.Owners[0].Owner; return nil },
		"a separate folder":           func(cfg *relay.Config) error { cfg.Owners[1].Folder = cfg.Owners[0].Folder; return nil },
		"invalid owners.tasks 0":      func(cfg *relay.Config) error { cfg.Owners[1].Tasks = 0; return nil },
		"invalid owners.owner":        func(cfg *relay.Config) error { cfg.Owners[1].Owner = "x"; return nil },
		"invalid owners.folder":       func(cfg *relay.Config) error { cfg.Owners[0].Folder += "2"; return nil },
		"invalid owners.recovery":     func(cfg *relay.Config) error { cfg.Owners[0].Recovery = other.Owner; return nil },
		"invalid owners.candidates":   func(cfg *relay.Config) error { cfg.Owners[0].Candidates = []string{other.Owner}; return nil },
		"not a directory":             func(cfg *relay.Config) error { cfg.Owners[1].Folder = cfg.SignKey + "/x"; return nil },
	} {
		cfg := good
		cfg.Owners = []relay.OwnerConfig{good.Owners[0],
			{Owner: other.Owner, Folder: filepath.Join(all.folder, "other"), Tasks: 1}}
		cfg.Owners[0].Tasks, cfg.Owners[0].Suspended = 7, true
		read := change(&cfg)
		require.ErrorContains(t, all.relays[0].Reload(func() (relay.Config, error) { return cfg, read }), want)
		status := statusOf(t, all.Cascade)
		require.Contains(t, status.Reload.Failed, want)
		require.Equal(t, []relay.OwnerStatus{{Owner: all.Owner, Folder: "first", TaskLimit: 2}},
			status.Owners, want)
		_, text, _ := run(t, "status", "--admin", "http://"+good.Admin)
		require.Contains(t, text, want)
		code, _ := getAdmin(t, all.Cascade, 0, "readyz")
		require.Equal(t, http.StatusNoContent, code)
		_, metrics := getAdmin(t, all.Cascade, 0, "metrics")
		require.Contains(t, metrics, "doona_relay_reload_failed 1")
		require.Contains(t, metrics, "doona_relay_last_reload_timestamp_seconds 0")
	}
	require.NoError(t, all.reload(t, all.owners...))
	require.Empty(t, statusOf(t, all.Cascade).Reload.Failed)
	_, metrics := getAdmin(t, all.Cascade, 0, "metrics")
	require.Contains(t, metrics, "doona_relay_reload_failed 0")
	require.NotContains(t, metrics, "doona_relay_last_reload_timestamp_seconds 0")
	_, text, _ := run(t, "status", "--admin", "http://"+good.Admin)
	require.Contains(t, text, "the configuration was reloaded at ")
	fillEpoch(t, begin(t, all.Cascade, all.Named("one")), 0)
}

// TestOwnersVolumeIsAwayAtReload: the volume with an owner's folder is not mounted. A reload must not remove the owner.
func TestOwnersVolumeIsAwayAtReload(t *testing.T) {
	all := startReloading(t, relaytest.Options{Hops: 1})
	begin(t, all.Cascade, all.Named("one"))
	folder := all.config(t, 0).Owners[0].Folder
	require.NoError(t, os.Rename(folder, folder+".away"))
	other := all.OfOwner(t)
	err := all.reload(t, relay.OwnerConfig{Owner: other.Owner, Folder: "other", Tasks: 1})
	require.ErrorContains(t, err, "is missing: mount its volume")
	require.NoError(t, os.RemoveAll(folder)) // the relay may have made files there
	require.NoError(t, os.Rename(folder+".away", folder))
}

// TestReloadTakesNoOldTasks: the folder of a new owner already has a task. A reload must refuse it, because only a
// start compares its keys with the store before the relay serves it.
func TestReloadTakesNoOldTasks(t *testing.T) {
	all := startReloading(t, relaytest.Options{Hops: 1})
	begin(t, all.Cascade, all.Named("one"))
	folder := filepath.Join(all.folder, "0", "copy")
	require.NoError(t, os.CopyFS(folder, os.DirFS(all.config(t, 0).Owners[0].Folder)))
	other := all.OfOwner(t)
	err := all.reload(t, all.owners[0], relay.OwnerConfig{Owner: other.Owner, Folder: "copy", Tasks: 1})
	require.ErrorContains(t, err, "has 1 tasks and 0 waiting key lists: start the relay again")
}

// TestReloadsAreAtomic: reloads, owners' requests and reports run at the same time. An owner's limit must hold at each
// moment, and no report of another owner may be refused or lost.
func TestReloadsAreAtomic(t *testing.T) {
	all := startReloading(t, relaytest.Options{Hops: 1})
	first, second := all.owners[0], all.OfOwner(t)
	busy := begin(t, all.Cascade, all.Named("busy"))
	stop := reporters(t, busy)
	var working sync.WaitGroup
	ended := make(chan struct{})
	for n := range 2 {
		working.Go(func() {
			r := all.relays[0]
			for i := n; ; i++ {
				select {
				case <-ended:
					return
				default:
				}
				cfg := all.config(t, 0)
				if i%3 > 0 {
					cfg.Owners = append(cfg.Owners, relay.OwnerConfig{Owner: second.Owner,
						Folder: filepath.Join(all.folder, "second"), Tasks: 1 + i%2, Suspended: i%5 == 0})
				}
				if err := r.Reload(func() (relay.Config, error) { return cfg, nil }); err != nil &&
					!strings.Contains(err.Error(), "waiting key lists") {
					t.Error(err)
				}
			}
		})
	}
	for i := range 60 {
		_, err := second.Ask(t, 0, second.Named(fmt.Sprint("task ", i)))
		if p := new(problem.Problem); errors.As(err, &p) {
			require.Contains(t, []problem.Name{problem.OwnerTaskLimit, problem.Unauthorized}, p.Name)
		} else {
			require.NoError(t, err)
		}
	}
	close(ended)
	working.Wait()
	waiting, err := filepath.Glob(filepath.Join(all.folder, "second", "asked-*"))
	require.NoError(t, err)
	require.LessOrEqual(t, len(waiting), 2)
	require.NoError(t, all.reload(t, first, relay.OwnerConfig{Owner: second.Owner, Folder: "../second", Tasks: 2}))
	requireAll(t, busy, stop())
}

// TestReloadBySignal: a real process must apply a changed file at SIGHUP, and refuse an invalid one, while clients
// report.
func TestReloadBySignal(t *testing.T) {
	c := relaytest.New(t, relaytest.Options{Hops: 1})
	p := startProcess(t, c, 0)
	stop := reporters(t, c)
	other := c.OfOwner(t)
	text, err := os.ReadFile(p.config)
	require.NoError(t, err)
	hangup := func(more string) {
		t.Helper()
		require.NoError(t, os.WriteFile(p.config, append(text, more...), 0o600))
		require.NoError(t, p.cmd.Process.Signal(syscall.SIGHUP))
	}
	status := func() string {
		_, text, _ := run(t, "status", "--admin", "http://"+p.admin)
		return text
	}
	says := func(want string) {
		t.Helper()
		requireSoon(t, func() bool { return strings.Contains(status(), want) })
	}
	entry := func(rest string) string {
		return "owners: [{owner: \"" + other.Owner + "\", folder: shop, " + rest + "}]\n"
	}
	hangup(entry("task: 1"))
	says(`unknown field "task"`)
	hangup(entry("tasks: 1"))
	says("owner " + other.Owner + ": 0 tasks and 0 waiting key lists, limit 1\n")
	require.NotContains(t, status(), "not applied")
	one := begin(t, other, other.Named("one"))
	fillEpoch(t, one, 0)
	hangup(entry("tasks: 1, suspended: true"))
	says("limit 1, suspended\n")
	requireProblem(t, problem.Overloaded, one.Post(t.Context(), 0, one.Seal(t, 0, 1), relaytest.Network(300)))
	hangup("")
	says("has 1 tasks and 0 waiting key lists: suspend the owner")
	hangup(entry("tasks: 1") + "group: 7\n")
	says("group has changed: without a restart, only owners may change")
	requireProblem(t, problem.Overloaded, one.Post(t.Context(), 0, one.Seal(t, 0, 1), relaytest.Network(300)))
	hangup(entry("tasks: 1"))
	requireSoon(t, func() bool { return !strings.Contains(status(), "suspended") })
	require.NoError(t, one.Post(t.Context(), 0, one.Seal(t, 0, 1), relaytest.Network(300)))
	requireAll(t, c, stop())
	require.NotContains(t, taskfile.FormatKey(c.Open.Owner), other.Owner)
}
