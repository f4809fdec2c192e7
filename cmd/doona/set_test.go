package main

import (
	"bytes"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/doona-dp/doona/internal/testing/relaytest"
	"github.com/doona-dp/doona/wire/onion"
	"github.com/doona-dp/doona/wire/tableset"
	"github.com/doona-dp/doona/wire/task"
	"github.com/doona-dp/doona/wire/taskfile"
)

const siteFile = `
users: 100
days: 30
total_epsilon: 5
total_delta: 1e-5
queries:
  - {name: visitors, bare: true}
  - {name: clicked, query: count, cap: 2/30}
`

// TestSetCommands: an owner makes a set with one command, and running relays serve it and take its submissions. Another
// command renews it: its tables go on in their streams. A third one ends it. A command that a relay did not answer is
// run again.
func TestSetCommands(t *testing.T) {
	c := relaytest.New(t, relaytest.Options{Hops: 2}.Approving(t, 3)) // Two tables, and keys that wait for a renewal.
	c.Start(t, 1)
	stop := c.Start(t, 0)
	dir := t.TempDir()
	site, owner := filepath.Join(dir, "site"), filepath.Join(c.Dir, "owner.key")
	require.NoError(t, os.WriteFile(site+".yaml", []byte(siteFile), 0o600))
	keys := func(name string, days int) string {
		makeEpochKeys(t, c.VerifierSign(), days, filepath.Join(dir, name))
		return taskfile.FormatKey(c.Open.Verifier.SignKey) + "," + filepath.Join(dir, name) + ".pub"
	}
	args := []string{"set", "new", site + ".yaml", "--name", "example.org", "--owner-key", owner, "--days", "3", "--out", site,
		"--start", time.Now().UTC().Format(time.DateOnly), "--verifier", keys("first.keys", 3)}
	for _, r := range c.Open.Relays {
		args = append(args, "--relay", r.URL+","+taskfile.FormatKey(r.SignKey))
	}
	run(t, 0, args...)
	signed, err := os.ReadFile(filepath.Join(site, setBundleFile))
	require.NoError(t, err)
	stop()
	run(t, 1, args...)
	stop = c.Start(t, 0)
	run(t, 0, args...)
	again, err := os.ReadFile(filepath.Join(site, setBundleFile))
	require.NoError(t, err)
	require.Equal(t, signed, again, "the owner must sign a set only once")

	first := setIn(t, site)
	require.Equal(t, tableset.Pack(signed), get(t, first.URL()))
	day, ok := first.Tasks[0].Epochs.At(uint64(time.Now().Unix()))
	require.True(t, ok)
	body := sealDay(t, first, day)
	require.Equal(t, http.StatusCreated, post(t, first.ReportsURL(day), body))
	require.Equal(t, http.StatusNotFound, post(t, first.Tasks[1].Relays[0].URL+"/v1/tasks/"+first.Tables[1].Task.String()+
		"/epochs/0/reports", body), "single reports to a table")

	renew := []string{"set", "renew", site, "--owner-key", owner, "--days", "2", "--verifier", keys("second.keys", 2),
		"--origin", "https://example.org"}
	stop()
	run(t, 1, renew...)
	c.Start(t, 0)
	run(t, 0, renew...)
	run(t, 0, renew...)
	require.NoDirExists(t, filepath.Join(site, "2"), "the renewal has not begun: it is sent again")
	second := setIn(t, filepath.Join(site, "1"))
	require.NoError(t, first.CheckRenewal(first, second))
	require.Equal(t, first.ID, second.Root)
	require.Equal(t, []string{"https://example.org"}, second.Tasks[0].Clients.Origins)
	require.Equal(t, tableset.Pack(signed), get(t, first.URL()), "the renewal has not begun")
	renewed, err := os.ReadFile(filepath.Join(site, "1", setBundleFile))
	require.NoError(t, err)
	require.Equal(t, tableset.Pack(renewed), get(t, second.URL()))
	run(t, 0, "set", "check", site)
	run(t, 0, "set", "files", site, "--out", filepath.Join(dir, "public"))
	served, err := os.ReadFile(filepath.Join(dir, "public", "v1", "sets", first.ID.String()))
	require.NoError(t, err)
	require.Equal(t, tableset.Pack(signed), served)

	run(t, 0, "set", "withdraw", site, "--owner-key", owner)
	run(t, 0, "set", "withdraw", site, "--owner-key", owner)
	require.Equal(t, http.StatusGone, post(t, first.ReportsURL(day), sealDay(t, first, day)))
	run(t, 1, "set", "renew", site, "--owner-key", filepath.Join(c.Dir, "verifier", "sign.key"), "--verifier", keys("x", 2))
}

func setIn(t *testing.T, path string) *tableset.Open {
	t.Helper()
	f, err := readSetFolder(path)
	require.NoError(t, err)
	return f.set
}

func get(t *testing.T, url string) []byte {
	t.Helper()
	resp, err := http.Get(url)
	require.NoError(t, err)
	defer resp.Body.Close()
	raw, err := io.ReadAll(resp.Body)
	require.NoError(t, err)
	require.Equal(t, http.StatusOK, resp.StatusCode, "%s", raw)
	return raw
}

func post(t *testing.T, url string, body []byte) int {
	t.Helper()
	resp, err := http.Post(url, "application/msgpack", bytes.NewReader(body))
	require.NoError(t, err)
	resp.Body.Close()
	return resp.StatusCode
}

// sealDay seals a submission of a day with a cover for each table.
func sealDay(t *testing.T, set *tableset.Open, day uint64) []byte {
	t.Helper()
	var sealers []*onion.Sealer
	var slots []onion.SetSlot
	for i, of := range set.Tasks {
		epoch, _ := set.At(i, day)
		keys, err := tableset.ParseKeys(get(t, set.KeysURL(set.Clock[i], epoch/onion.BlockEpochs)))
		require.NoError(t, err)
		lists, err := set.Keys(set.Clock[i], keys)
		require.NoError(t, err)
		sealer, err := onion.NewSealer(of, set.Tables[i].Task, lists)
		require.NoError(t, err)
		sealers = append(sealers, sealer)
		slots = append(slots, onion.SetSlot{Epoch: epoch, Message: task.Message{Cover: true}})
	}
	body, err := onion.NewSetSealer(set.ID, sealers).Seal(day, slots)
	require.NoError(t, err)
	return body
}
