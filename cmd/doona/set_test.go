package main

import (
	"bytes"
	"crypto/ed25519"
	"crypto/rand"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/doona-dp/doona/internal/testing/relaytest"
	"github.com/doona-dp/doona/issuer"
	"github.com/doona-dp/doona/shufflerclient"
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

// TestSetWithTokens: a set whose submissions need tokens of an issuer, and its renewal. A client gets one token a day,
// and the first relay refuses a submission without one.
func TestSetWithTokens(t *testing.T) {
	c := relaytest.New(t, relaytest.Options{Hops: 2}.Approving(t, 3))
	c.Start(t, 1)
	c.Start(t, 0)
	dir := t.TempDir()
	site, owner := filepath.Join(dir, "site"), filepath.Join(c.Dir, "owner.key")
	require.NoError(t, os.WriteFile(site+".yaml", []byte(siteFile), 0o600))
	_, sign, err := ed25519.GenerateKey(rand.Reader)
	require.NoError(t, err)
	address := relaytest.FreeAddress(t)
	tokens := func(name string, days uint64) string {
		list, err := issuer.NewKeys(filepath.Join(dir, name), days, sign, nil)
		require.NoError(t, err)
		raw, err := list.Bytes()
		require.NoError(t, err)
		require.NoError(t, os.WriteFile(filepath.Join(dir, name+".pub"), raw, 0o600))
		return filepath.Join(dir, name+".pub")
	}
	keys := func(name string, days int) string {
		makeEpochKeys(t, c.VerifierSign(), days, filepath.Join(dir, name))
		return taskfile.FormatKey(c.Open.Verifier.SignKey) + "," + filepath.Join(dir, name) + ".pub"
	}
	args := []string{"set", "new", site + ".yaml", "--owner-key", owner, "--days", "3", "--out", site,
		"--start", time.Now().UTC().Format(time.DateOnly), "--verifier", keys("first.keys", 3),
		"--issuer", "http://" + address + "," + taskfile.FormatKey(task.SignKey(sign.Public().(ed25519.PublicKey))) + "," + tokens("first.tokens", 3)}
	for _, r := range c.Open.Relays {
		args = append(args, "--relay", r.URL+","+taskfile.FormatKey(r.SignKey))
	}
	run(t, 2, append(args, "--quota", "2")...)
	run(t, 0, args...)
	set := setIn(t, site)

	cfg := issuer.Config{Store: "sqlite:" + filepath.Join(dir, "issuer.db"), Clients: "address", Listen: address,
		Tasks: []issuer.TaskConfig{{File: filepath.Join(site, set.Tables[0].Name+bundleSuffix), Owner: c.Owner,
			TokenKeys: filepath.Join(dir, "first.tokens"), Successors: filepath.Join(dir, "next")}}}
	i, err := issuer.New(cfg)
	require.NoError(t, err)
	relaytest.Run(t, i.Run)
	client, err := shufflerclient.ConnectSet(t.Context(), shufflerclient.Options{Task: set.URL(), Owner: c.Owner,
		MaxEpsilon: 10, MaxDelta: 1e-4})
	require.NoError(t, err)
	day, ok := client.Day(time.Now())
	require.True(t, ok)
	report, err := client.Seal(t.Context(), day, map[string][]float64{"clicked": {1}})
	require.NoError(t, err)
	require.Eventually(t, func() bool { // The relay asks the other one for the time, and the issuer for its key.
		return post(t, set.ReportsURL(day), report.Body) == http.StatusUnauthorized
	}, relaytest.Patience, 100*time.Millisecond, "no token")
	require.NoError(t, client.Submit(t.Context(), report))
	again, err := client.Seal(t.Context(), day, nil)
	require.NoError(t, err)
	again.Token = report.Token
	require.ErrorContains(t, client.Submit(t.Context(), again), "limit", "a token is for one submission")

	renew := []string{"set", "renew", site, "--owner-key", owner, "--days", "2", "--verifier", keys("second.keys", 2)}
	run(t, 2, renew...)
	run(t, 0, append(renew, "--issuer-keys", tokens("second.tokens", 2))...)
	second := setIn(t, filepath.Join(site, "1"))
	require.NoError(t, set.CheckRenewal(set, second))
	require.Len(t, second.Lists[0], 4)
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
