package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/doona-dp/doona/internal/testing/relaytest"
	"github.com/doona-dp/doona/relay"
	"github.com/doona-dp/doona/wire/taskfile"
)

// ownersFolder is a folder of an owner's tasks and sets, with all that `doona renew` needs.
type ownersFolder struct {
	*relaytest.Cascade
	t                *testing.T
	path, successors string
}

func newOwnersFolder(t *testing.T) *ownersFolder {
	c := relaytest.New(t, relaytest.Options{}.Approving(t, 8))
	f := &ownersFolder{c, t, filepath.Join(t.TempDir(), "tasks"), filepath.Join(c.Dir, "verifier", "successors")}
	require.NoError(t, os.Mkdir(f.path, 0o700))
	return f
}

// parties returns the flags of the owner's key and the verifier, with a new key list, and of a cascade's relays.
func (f *ownersFolder) parties(name string, epochs int, at *relaytest.Cascade) []string {
	keys := filepath.Join(f.t.TempDir(), name)
	makeEpochKeys(f.t, f.VerifierSign(), epochs, keys)
	args := []string{"--owner-key", filepath.Join(f.Dir, "owner.key"), "--verifier",
		taskfile.FormatKey(f.Open.Verifier.SignKey) + "," + keys + ".pub"}
	for _, r := range at.Open.Relays {
		args = append(args, "--relay", r.URL+","+taskfile.FormatKey(r.SignKey))
	}
	return args
}

// task makes a task that ends in two hours, at the relays of a cascade.
func (f *ownersFolder) task(name string, at *relaytest.Cascade, more ...string) {
	args := []string{"task", "new", "--query", "count", "--protocol", "splitmix", "--batch", "1000", "--epsilon", "1",
		"--delta", "1e-6", "--epoch-length", "1h", "--epochs", "2", "--name", name, "--out",
		filepath.Join(f.path, name+".bundle")}
	run(f.t, 0, append(append(args, f.parties(name, 2, at)...), more...)...)
}

// renew runs `doona renew`, and returns the state of each series and what failed.
func (f *ownersFolder) renew(status int, more ...string) (states, failed map[string]string) {
	f.t.Helper()
	out := run(f.t, status, append([]string{"renew", f.path, "--owner-key", filepath.Join(f.Dir, "owner.key"),
		"--verifier-keys", f.successors, "--json"}, more...)...)
	var results []renewResult
	require.NoError(f.t, json.Unmarshal([]byte(out), &results))
	states, failed = map[string]string{}, map[string]string{}
	for _, r := range results {
		states[r.Name] = r.State
		if r.Error != "" {
			failed[r.Name] = r.Error
		}
	}
	return states, failed
}

// files returns the content of all files in the owner's folder and the verifier's folder of successors.
func (f *ownersFolder) files() map[string]string {
	all := map[string]string{}
	for _, folder := range []string{f.path, f.successors} {
		require.NoError(f.t, filepath.WalkDir(folder, func(path string, entry os.DirEntry, err error) error {
			if err != nil || entry.IsDir() {
				return err
			}
			text, err := os.ReadFile(path)
			name, _ := filepath.Rel(filepath.Dir(folder), path)
			all[name] = string(text)
			return err
		}))
	}
	return all
}

// TestRenewAll: one command renews all streams and sets of a folder that end soon, and makes the verifier's keys. A
// second run changes nothing. One relay that is away stops only its own task, which the command names, until a later
// run. A stream that its owner has ended, and a task that ends later, stay as they are.
func TestRenewAll(t *testing.T) {
	f := newOwnersFolder(t)
	f.StartAll(t)
	approve := func(_ int, cfg *relay.Config) { cfg.Owners[0].Owner = f.Owner }
	other := relaytest.New(t, relaytest.Options{Config: approve}.Approving(t, 4))
	stops := []func(){other.Start(t, 0), other.Start(t, 1)}
	sign := f.VerifierSign()
	f.task("may", f.Cascade, "--stream", "may")
	f.task("june", f.Cascade, "--stream", "june")
	f.task("away", other, "--stream", "away")
	f.task("ended", f.Cascade, "--stream", "ended")
	f.task("later", f.Cascade, "--stream", "later", "--start", time.Now().Add(time.Hour).UTC().Format(time.RFC3339))
	run(t, 0, "task", "stop", filepath.Join(f.path, "ended.bundle"), "--sign-key", filepath.Join(f.Dir, "owner.key"),
		"--out", filepath.Join(t.TempDir(), "end.statement"))
	site := filepath.Join(f.path, "site")
	require.NoError(t, os.WriteFile(site+".yaml", []byte(siteFile), 0o600))
	run(t, 0, append([]string{"set", "new", site + ".yaml", "--name", "example.org", "--days", "3", "--out", site, "--start",
		time.Now().UTC().Format(time.DateOnly)}, f.parties("days", 3, f.Cascade)...)...)

	_, failed := f.renew(1)
	require.Contains(t, failed["may"], "the verifier's key list")
	require.NoFileExists(t, filepath.Join(f.path, "may.1.bundle"))
	_, failed = f.renew(1, "--verifier-sign-key", filepath.Join(f.Dir, "owner.key"))
	require.Contains(t, failed["june"], ", as in the task")

	stops[0]()
	stops[1]()
	states, failed := f.renew(1, "--verifier-sign-key", sign)
	require.Equal(t, map[string]string{"may": stateRenewed, "june": stateRenewed, "away": stateFailed,
		"ended": stateEnded, "later": stateCurrent, "site": stateRenewed}, states)
	require.Len(t, failed, 1)
	require.Contains(t, failed["away"], other.Open.Relays[0].URL)
	for _, name := range []string{"may.1.bundle", "june.1.bundle", "site/1/set.bundle"} {
		require.FileExists(t, filepath.Join(f.path, name))
	}
	set := setIn(t, site)
	one, two := f.keysOf(set.FirstTasks()[0].String(), "1-3"), f.keysOf(set.FirstTasks()[1].String(), "1-3")
	require.Equal(t, one, two, "tables of one clock have the same keys")
	served := f.Statuses(t, 0)
	renewed := f.files()

	states, _ = f.renew(1, "--verifier-sign-key", sign)
	require.Equal(t, map[string]string{"may": stateCurrent, "june": stateCurrent, "away": stateFailed,
		"ended": stateEnded, "later": stateCurrent, "site": stateCurrent}, states)
	require.Equal(t, renewed, f.files())
	require.Equal(t, len(served), len(f.Statuses(t, 0)))

	other.Start(t, 0)
	stop := other.Start(t, 1)
	states, _ = f.renew(0, "--verifier-sign-key", sign)
	require.Equal(t, stateRenewed, states["away"])
	renewed = f.files()
	stop()
	_, failed = f.renew(1, "--verifier-sign-key", sign)
	require.Contains(t, failed["away"], other.Open.Relays[1].URL, "the newest task is sent again")
	other.Start(t, 1)
	f.renew(0, "--verifier-sign-key", sign)
	require.Equal(t, renewed, f.files())
	require.Len(t, other.Statuses(t, 1), 2)

	run(t, 0, "task", "stop", filepath.Join(f.path, "may.bundle"), "--sign-key", filepath.Join(f.Dir, "owner.key"),
		"--out", filepath.Join(t.TempDir(), "end.statement"))
	run(t, 0, "set", "withdraw", site, "--owner-key", filepath.Join(f.Dir, "owner.key"))
	states, _ = f.renew(0, "--verifier-sign-key", sign)
	require.Equal(t, map[string]string{"may": stateEnded, "june": stateCurrent, "away": stateCurrent,
		"ended": stateEnded, "later": stateCurrent, "site": stateCurrent}, states, "relays take a set's last renewal again")
}

func (f *ownersFolder) keysOf(root, name string) string {
	text, err := os.ReadFile(filepath.Join(f.successors, root, name+".keys"))
	require.NoError(f.t, err)
	return string(text)
}

// TestRenewAllRefuses: a folder without tasks is an error. So is a task that cannot go on, or a file that is no task.
// Without the file of the newest task nothing is signed.
func TestRenewAllRefuses(t *testing.T) {
	f := newOwnersFolder(t)
	f.StartAll(t)
	owner := filepath.Join(f.Dir, "owner.key")
	run(t, 1, "renew", f.path, "--owner-key", owner, "--verifier-keys", f.successors)
	run(t, 2, "renew", f.path, "--owner-key", owner, "--verifier-keys", f.successors, "--within", "59m")
	f.task("single", f.Cascade)
	f.task("may", f.Cascade, "--stream", "may")
	require.NoError(t, os.WriteFile(filepath.Join(f.path, "broken.bundle"), []byte("no task"), 0o600))
	run(t, 0, "task", "renew", filepath.Join(f.path, "may.bundle"), "--owner-key", owner, "--epochs", "2", "--verifier-keys",
		strings.Split(f.parties("next", 2, f.Cascade)[3], ",")[1], "--out", filepath.Join(t.TempDir(), "elsewhere"))
	_, failed := f.renew(1, "--verifier-sign-key", f.VerifierSign())
	require.Len(t, failed, 3)
	require.Contains(t, failed["single"], "the task is in no stream and ends on")
	require.Contains(t, failed["may"], "the relays' newest task has position 1")
	require.Contains(t, failed["broken"], "broken.bundle")
	require.NoFileExists(t, filepath.Join(f.path, "may.1.bundle"))
}
