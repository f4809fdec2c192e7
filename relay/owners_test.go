package relay_test

import (
	"bytes"
	"crypto/ed25519"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/doona-dp/doona/internal/testing/relaytest"
	"github.com/doona-dp/doona/relay"
	"github.com/doona-dp/doona/wire/handover"
	"github.com/doona-dp/doona/wire/onion"
	"github.com/doona-dp/doona/wire/problem"
	"github.com/doona-dp/doona/wire/signing"
	"github.com/doona-dp/doona/wire/task"
	"github.com/doona-dp/doona/wire/taskfile"
)

// begin hands a task of the approved owner to all its relays, and returns a cascade that uses the task.
func begin(t *testing.T, c *relaytest.Cascade, next *task.Task) *relaytest.Cascade {
	t.Helper()
	bundle := c.Sign(t, next)
	for hop := len(next.Relays) - 1; hop >= 0; hop-- {
		require.NoError(t, c.Begin(t.Context(), t, hop, bundle))
	}
	return c.After(t, bundle)
}

// entriesOf lists the entries of an owner's folder that use a task slot.
func entriesOf(t *testing.T, c *relaytest.Cascade, hop int) (names []string) {
	t.Helper()
	folders, err := filepath.Glob(filepath.Join(c.Config(t, hop).Owners[0].Folder, "*", "hpke.keys"))
	require.NoError(t, err)
	for _, path := range folders {
		names = append(names, filepath.Base(filepath.Dir(path)))
	}
	return names
}

// settle lets a relay find that an owner's folder last changed long ago.
func settle(t *testing.T, c *relaytest.Cascade, hop int) {
	t.Helper()
	past := time.Now().Add(-time.Hour)
	require.NoError(t, os.Chtimes(c.Config(t, hop).Owners[0].Folder, past, past))
	time.Sleep(2 * time.Second) // two ticks of the relay's loop
}

// expiring configures relays whose tasks expire within two days.
func expiring(o relaytest.Options) relaytest.Options {
	o.Config = func(_ int, cfg *relay.Config) { cfg.GiveUp, cfg.Retention = time.Hour, 48*time.Hour }
	return o
}

// TestApprovedOwner: relays without configured tasks must serve their approved owner's tasks at once, and after a
// restart. They must refuse a task above the limit until another task has expired.
func TestApprovedOwner(t *testing.T) {
	c := relaytest.New(t, expiring(relaytest.Options{}).Approving(t, 2))
	stops := []func(){c.Start(t, 0), c.Start(t, 1)}
	one := begin(t, c, c.Named("one"))
	fillEpoch(t, one, 0)
	two := begin(t, c, c.Named("two", func(t *task.Task) { t.Epochs.Count = 4 }))
	fillEpoch(t, two, 0)
	require.NotEqual(t, one.Open.KeyLists[0].Hash(), two.Open.KeyLists[0].Hash())
	_, err := c.Ask(t, 0, c.Named("three"))
	require.Equal(t, http.StatusConflict, requireProblem(t, problem.OwnerTaskLimit, err).Status)
	require.ErrorContains(t, err, "2 tasks and 0 waiting key lists, limit 2")

	for _, stop := range stops {
		stop()
	}
	c.StartAll(t)
	c.Clock.Advance(relaytest.Epoch)
	fillEpoch(t, one, 1)
	fillEpoch(t, two, 1)
	require.ElementsMatch(t, []string{one.Open.ID.String(), two.Open.ID.String()}, entriesOf(t, c, 0))
	want := relay.OwnerStatus{Owner: c.Owner, Folder: "relay1", TaskLimit: 2, Tasks: 2, Batches: 4, Confirmed: 4,
		Reports: 40}
	requireSoon(t, func() bool { // the second relay confirms a batch after it has mixed it
		var status relay.Status
		_, text := get(t, c, 0, "/status")
		require.NoError(t, json.Unmarshal([]byte(text), &status))
		return len(status.Owners) == 1 && status.Owners[0] == want
	})
	code, table, log := run(t, "owners", "--admin", "http://"+c.Config(t, 0).Admin)
	require.Zero(t, code, log)
	require.Equal(t, [][]string{strings.Fields("OWNER FOLDER STATE TASKS KEYS LIMIT BATCHES CONFIRMED REPORTS RATE DISK DUMMIES"),
		{shortKey(c.Owner), "relay1", "active", "2", "0", "2", "4", "4", "40", "-", "-", "-"}}, fieldsOf(table))

	c.Clock.Advance(relaytest.Epoch)
	fillEpoch(t, two, 2)
	c.Clock.Advance(49 * time.Hour) // only the first task has expired
	base := "http://" + c.Config(t, 0).Listen
	requireSoon(t, func() bool { return !isServed(t, base, one.Open.ID) })
	require.True(t, isServed(t, base, two.Open.ID))
	for hop := range 2 {
		requireSoon(t, func() bool { return len(entriesOf(t, c, hop)) == 1 })
	}
	three := begin(t, c, c.Named("three", func(task *task.Task) { task.Epochs.Start = uint64(c.Clock.Now().Unix()) }))
	fillEpoch(t, three, 0)
}

// TestSlotsInMetrics: the metrics must show the task limit, the used slots and the rejected tasks of all owners.
func TestSlotsInMetrics(t *testing.T) {
	c := relaytest.New(t, relaytest.Options{Hops: 1}.Approving(t, 2))
	c.Start(t, 0)
	requireSlots := func(c *relaytest.Cascade, all, tasks, keys, missing int) {
		t.Helper()
		_, text := get(t, c, 0, "/metrics")
		for _, line := range []string{fmt.Sprintf("doona_relay_owner_task_limit %d", all),
			fmt.Sprintf(`doona_relay_owner_tasks{by="tasks"} %d`, tasks),
			fmt.Sprintf(`doona_relay_owner_tasks{by="keys"} %d`, keys),
			fmt.Sprintf("doona_relay_owner_tasks_rejected_total %d", missing)} {
			require.Contains(t, text, "\n"+line+"\n")
		}
	}
	requireSlots(c, 2, 0, 0, 0)
	begin(t, c, c.Named("one"))
	third := c.Sign(t, c.Named("two"))
	requireSlots(c, 2, 1, 1, 0)
	_, err := c.Ask(t, 0, c.Named("three"))
	requireProblem(t, problem.OwnerTaskLimit, err)
	requireSlots(c, 2, 1, 1, 1)
	require.NoError(t, c.Begin(t.Context(), t, 0, third))
	requireSlots(c, 2, 2, 0, 1)
	configured := relaytest.New(t, relaytest.Options{Hops: 1})
	configured.Start(t, 0)
	requireSlots(configured, 0, 0, 0, 0)
}

// fieldsOf returns the words of each line.
func fieldsOf(text string) (lines [][]string) {
	for line := range strings.Lines(text) {
		lines = append(lines, strings.Fields(line))
	}
	return lines
}

// shortKey returns the name of an owner in metrics.
func shortKey(owner string) string { return strings.TrimPrefix(owner, "ed25519:")[:8] }

// TestOwnersTasksShareSeries: in the metrics, all tasks of an approved owner must be one series, named by the owner's
// key. It must sum batches and refusals, and show the next end of a task. A configured task must have its own series.
func TestOwnersTasksShareSeries(t *testing.T) {
	c := relaytest.New(t, expiring(relaytest.Options{}).Approving(t, 2))
	c.StartAll(t)
	all := []*relaytest.Cascade{begin(t, c, c.Named("one")),
		begin(t, c, c.Named("two", func(t *task.Task) { t.Epochs.Count = 4 }))}
	owner := shortKey(c.Owner)
	shows := func(hop int, metric, labels string, want uint64) func() bool {
		return func() bool {
			_, text := get(t, c, hop, "/metrics")
			series := regexp.MustCompile(`(?m)^doona_relay_` + metric + `\{` + labels + `\} (\S+)$`)
			found := series.FindAllStringSubmatch(text, -1)
			if len(found) != 1 {
				return false
			}
			value, err := strconv.ParseFloat(found[0][1], 64)
			require.NoError(t, err)
			return value == float64(want)
		}
	}
	one := `owner="` + owner + `",task=""`
	for _, its := range all {
		fillEpoch(t, its, 0)
		requireProblem(t, problem.Limit, its.Post(t.Context(), 0, its.Seal(t, 0, 99), relaytest.Network(1)))
	}
	for hop := range 2 {
		requireSoon(t, shows(hop, "batches_total", `destroyed="no",`+one, 2))
		require.True(t, shows(hop, "epochs_end_timestamp_seconds", one, all[0].Open.Epochs.Over())())
	}
	requireSoon(t, shows(1, "unconfirmed_batches", one, 2))
	_, status := get(t, c, 1, "/status")
	require.Contains(t, status, `"batches":2,"confirmed":0,"reports":0`)
	c.Clock.Advance(2*relaytest.Epoch + time.Minute)
	requireSoon(t, shows(0, "refused", `owner="`+owner+`",reason="limit",task=""`, 2))
	requireSoon(t, shows(0, "epochs_end_timestamp_seconds", one, all[1].Open.Epochs.Over()))
	_, text := get(t, c, 0, "/metrics")
	require.NotContains(t, text, `task="`+all[0].Open.ID.String()[:8])
	c.Clock.Advance(100 * time.Hour)
	requireSoon(t, func() bool {
		_, text := get(t, c, 0, "/metrics")
		return !strings.Contains(text, owner)
	})

	configured := relaytest.New(t, relaytest.Options{Hops: 1})
	configured.Start(t, 0)
	_, text = get(t, configured, 0, "/metrics")
	require.Contains(t, text, `doona_relay_unconfirmed_batches{owner="",task="`+configured.Open.ID.String()[:8]+`"} 0`)
	require.NotContains(t, text, shortKey(configured.Owner))
}

// TestSeriesTimes: a series of several tasks must show the oldest answer of an upstream relay, the newest request of
// the next hop, and the next end of a task, or the last end if all tasks are over.
func TestSeriesTimes(t *testing.T) {
	const now = 1000
	for _, tt := range []struct{ one, other, want relay.Times }{
		{relay.NewTimes(7, 7, 2000), relay.NewTimes(5, 9, 3000), relay.NewTimes(5, 9, 2000)},
		{relay.NewTimes(0, 0, 2000), relay.NewTimes(5, 0, 900), relay.NewTimes(5, 0, 2000)}, // first relay of one task
		{relay.NewTimes(0, 0, 900), relay.NewTimes(0, 0, 800), relay.NewTimes(0, 0, 900)},   // all over
	} {
		require.Equal(t, tt.want, relay.CombineTimes(tt.one, tt.other, now))
		require.Equal(t, tt.want, relay.CombineTimes(tt.other, tt.one, now))
	}
}

// TestApprovedOwnersTaskTwice: an owner may hand over a task again. The relay must refuse a second task with the same
// keys, before and after a restart, because keys belong to one task.
func TestApprovedOwnersTaskTwice(t *testing.T) {
	c := relaytest.New(t, relaytest.Options{Hops: 1}.Approving(t, 3))
	stop := c.Start(t, 0)
	next := c.Named("one")
	bundle := c.Sign(t, next)
	open, err := bundle.Open(nil)
	require.NoError(t, err)
	other := c.Named("other")
	other.Relays[0].KeyList = open.Relays[0].KeyList
	second := c.SignWith(t, other, open.KeyLists[:1])
	_, err = c.Ask(t, 0, c.Named("third"))
	require.NoError(t, err)
	for range 2 {
		require.NoError(t, c.Begin(t.Context(), t, 0, bundle))
		err = c.Begin(t.Context(), t, 0, second)
		requireProblem(t, problem.Malformed, err)
		require.ErrorContains(t, err, "relays.keyList")
		stop()
		stop = c.Start(t, 0)
	}
	require.Len(t, entriesOf(t, c, 0), 2)
	fresh := c.Sign(t, c.Named("one"))
	again, err := fresh.Open(nil)
	require.NoError(t, err)
	require.NotEqual(t, open.Relays[0].KeyList, again.Relays[0].KeyList, "the relay makes new keys for each task")
}

// TestApprovedOwnerIsRefused: a relay must accept only complete tasks that its approved owner signed and that name the
// relay and the keys that it made.
func TestApprovedOwnerIsRefused(t *testing.T) {
	c := relaytest.New(t, relaytest.Options{}.Approving(t, 2))
	c.StartAll(t)
	key, _ := c.AsOwner(t)
	next := c.Named("one")
	relay0, label, public := next.Relays[0], taskfile.LabelOf(next), c.Open.Owner
	body := handover.OwnersKeysBody(relay0.SignKey, label, next.KEM, 2)
	get := func(relay task.Party, signature string) error {
		req, err := http.NewRequest(http.MethodGet, taskfile.OwnersKeysURL(relay, public, label, next.KEM, 2), nil)
		require.NoError(t, err)
		req.Header.Set(handover.Header, signature)
		resp, err := http.DefaultClient.Do(req)
		require.NoError(t, err)
		defer resp.Body.Close()
		if resp.StatusCode == http.StatusOK {
			return nil
		}
		return problem.Read(resp)
	}
	_, err := c.Verifier.KeysFor(t.Context(), relay0, label, next.KEM, 2)
	requireProblem(t, problem.Unauthorized, err)
	requireProblem(t, problem.Unauthorized, c.Verifier.Begin(t.Context(), relay0, nil))
	requireProblem(t, problem.Unauthorized, get(relay0, ""))
	requireProblem(t, problem.Unauthorized, get(relay0, handover.Signed(key, signing.Succeed, body)))
	strange, stranger, err := ed25519.GenerateKey(nil)
	require.NoError(t, err)
	requireProblem(t, problem.Unauthorized, get(relay0, handover.Signed(stranger, signing.Owner, body)))
	signature := handover.Signed(key, signing.Owner, body)
	requireProblem(t, problem.Unauthorized, get(next.Relays[1], signature))
	require.NoError(t, get(relay0, signature))
	requireProblem(t, problem.Unauthorized, get(relay0, signature))

	_, owner := c.AsOwner(t)
	for _, count := range []uint64{0, 65537} {
		_, err = owner.KeysFor(t.Context(), relay0, label, next.KEM, count)
		requireProblem(t, problem.Malformed, err)
		require.ErrorContains(t, err, "count: want a decimal number from 1 to 65536")
	}
	_, err = owner.KeysFor(t.Context(), relay0, label, "rot13", 1)
	requireProblem(t, problem.Malformed, err)
	require.ErrorContains(t, err, "kem")
	require.Len(t, entriesOf(t, c, 0), 1)

	good := c.Sign(t, next)
	refused := func(bundle *taskfile.Bundle, why string) {
		t.Helper()
		err := c.Begin(t.Context(), t, 0, bundle)
		requireProblem(t, problem.Malformed, err)
		require.ErrorContains(t, err, why)
	}
	lists := func() []*onion.SignedKeyList {
		open, err := good.Open(nil)
		require.NoError(t, err)
		return open.KeyLists[:2]
	}
	strangers := *good
	strangers.Owner, strangers.Signature = strange, signing.Sign(stranger, signing.Task, good.Task)
	refused(&strangers, "its owner is")
	unsigned := *good
	unsigned.Signature = bytes.Repeat([]byte{1}, 64)
	refused(&unsigned, "signed by a stranger")
	own := c.Bundle(t) // with keys that the relay has, and did not make for the owner
	refused(own, "relays.keyList")
	now := uint64(c.Clock.Now().Unix())
	refused(c.SignWith(t, c.Named("one", func(task *task.Task) {
		task.Relays, task.Epochs.Start = next.Relays, now-uint64(2*task.Epochs.Length)
	}), lists()), "epochs.start")
	refused(c.SignWith(t, c.Named("one", func(task *task.Task) {
		task.Relays, task.Epochs.Length = next.Relays, 119
	}), lists()), "epochs.length")
	elsewhere := relaytest.New(t, relaytest.Options{Hops: 1})
	raw, err := elsewhere.Bundle(t).Bytes()
	require.NoError(t, err)
	other, err := elsewhere.Bundle(t).Open(nil)
	require.NoError(t, err)
	err = owner.Begin(t.Context(), relay0, raw)
	requireProblem(t, problem.Malformed, err)
	require.NotEqual(t, other.Owner, public)
	refused(c.SignWith(t, c.Named("one", func(task *task.Task) {
		task.Relays = next.Relays[1:]
	}), lists()[1:]), "its relays do not include this one")
	requireProblem(t, problem.TooLarge, owner.Begin(t.Context(), relay0, make([]byte, 64<<20+1)))
	require.Len(t, entriesOf(t, c, 0), 1)

	require.NoError(t, c.Begin(t.Context(), t, 1, good))
	require.NoError(t, c.Begin(t.Context(), t, 0, good))
	fillEpoch(t, c.After(t, good), 0)
}

// TestApprovedOwnersNoise: relays must also add the demanded dummies to an approved owner's task.
func TestApprovedOwnersNoise(t *testing.T) {
	c := relaytest.New(t, relaytest.Options{Task: noisy}.Approving(t, 1))
	c.StartAll(t)
	noise := begin(t, c, c.Named("noise"))
	for i := range 10 {
		require.NoError(t, noise.Post(t.Context(), 0, noise.Seal(t, 0, 1000), relaytest.Network(i)))
	}
	_, chain := noise.Pull(t, 0, 0)
	require.Equal(t, []onion.LaneCount{{In: 10 + added, Added: added, Out: 10 + 2*added}}, chain[1].Lanes)
}

// TestKeysWithoutTaskExpire: keys without a task use a slot. If the owner asks again, the relay must answer with the
// same keys. After a day it must remove them.
func TestKeysWithoutTaskExpire(t *testing.T) {
	c := relaytest.New(t, relaytest.Options{Hops: 1, Task: func(t *task.Task) { t.Epochs.Count = 48 }}.Approving(t, 2))
	c.Start(t, 0)
	one := c.Named("one")
	bundle := c.Sign(t, one)
	same, err := c.Ask(t, 0, one)
	require.NoError(t, err)
	require.Equal(t, one.Relays[0].KeyList, same.Hash())
	_, err = c.Ask(t, 0, c.Named("two"))
	require.NoError(t, err)
	_, err = c.Ask(t, 0, c.Named("three"))
	requireProblem(t, problem.OwnerTaskLimit, err)
	c.Clock.Advance(23 * time.Hour)
	_, err = c.Ask(t, 0, c.Named("three"))
	requireProblem(t, problem.OwnerTaskLimit, err)
	settle(t, c, 0)
	c.Clock.Advance(time.Hour + time.Minute)
	requireSoon(t, func() bool { return len(entriesOf(t, c, 0)) == 0 })
	err = c.Begin(t.Context(), t, 0, bundle)
	requireProblem(t, problem.Malformed, err)
	require.ErrorContains(t, err, "relays.keyList")
	begin(t, c, c.Named("one"))
}

// TestLowerTaskLimit: an owner has more tasks than the new limit. The relay must serve them and refuse further tasks. A
// flooded task must leave room for the other one.
func TestLowerTaskLimit(t *testing.T) {
	const concurrent = 4
	limit := 3
	c := relaytest.New(t, relaytest.Options{Hops: 1,
		Config: func(_ int, cfg *relay.Config) { cfg.MaxConcurrent = concurrent }}.Approving(t, 0))
	start := func() (stop func()) {
		cfg := c.Config(t, 0)
		cfg.Owners[0].Tasks = limit
		r, err := relay.New(cfg)
		require.NoError(t, err)
		return c.Serve(t, r, cfg.Admin)
	}
	stop := start()
	one := begin(t, c, c.Named("one"))
	two := begin(t, c, c.Named("two"))
	third := c.Sign(t, c.Named("three"))
	stop()
	limit = 1
	start()
	requireProblem(t, problem.OwnerTaskLimit, c.Begin(t.Context(), t, 0, third))
	fillEpoch(t, one, 0)
	fillEpoch(t, two, 0)
	body := two.Seal(t, 0, 1)
	for i := range concurrent {
		startReport(t, one, relaytest.Network(900+i), len(body))
	}
	require.NoError(t, two.Post(t.Context(), 0, body, relaytest.Network(990)))
}

// TestApprovedOwnersStream: the tasks of a stream must share one slot, even after a restart. The slot must be free when
// the stream's last task has expired.
func TestApprovedOwnersStream(t *testing.T) {
	c := relaytest.New(t, expiring(relaytest.Options{Hops: 1}).Approving(t, 1))
	stop := c.Start(t, 0)
	first := begin(t, c, c.Named("first", func(t *task.Task) { t.Stream = &task.StreamPosition{Name: "shop"} }))
	fillEpoch(t, first, 0)
	line := streamLine{first}
	line.renew(t)
	stop()
	c.Start(t, 0)
	second := line.renew(t)
	base := "http://" + c.Config(t, 0).Listen
	c.Clock.Advance(48*time.Hour + relaytest.Epoch/2)
	requireSoon(t, func() bool { return !isServed(t, base, line[1].Open.ID) })
	require.True(t, isServed(t, base, second.Open.ID))
	_, err := c.Ask(t, 0, c.Named("other"))
	requireProblem(t, problem.OwnerTaskLimit, err)
	last := line.renew(t)
	c.Clock.Advance(50 * time.Hour)
	requireSoon(t, func() bool { return len(entriesOf(t, c, 0)) == 0 })
	requireSoon(t, func() bool { return !isServed(t, base, last.Open.ID) })
	_, owner := c.AsOwner(t)
	_, err = owner.Stream(t.Context(), first.Open, first.Open.Trust(task.SignKey{}))
	require.ErrorIs(t, err, problem.New(problem.UnknownTask, ""))
	_, err = c.Ask(t, 0, c.Named("other"))
	require.NoError(t, err)
}

// TestTwinsFollowOwners: one process of a relay accepts a task. The other must serve it without a restart, and both
// must drop it.
func TestTwinsFollowOwners(t *testing.T) {
	c := relaytest.New(t, expiring(relaytest.Options{Hops: 1, Postgres: true}).Approving(t, 1))
	cfg := c.Config(t, 0)
	c.Start(t, 0)
	beside := cfg
	beside.Listen, beside.Admin = relaytest.FreeAddress(t), relaytest.FreeAddress(t)
	runBeside(t, c, beside)
	settle(t, c, 0)
	one := begin(t, c, c.Named("one"))
	for _, at := range []string{cfg.Listen, beside.Listen} {
		requireSoon(t, func() bool { return isServed(t, "http://"+at, one.Open.ID) })
	}
	fillEpoch(t, one, 0)
	c.Clock.Advance(60 * time.Hour)
	for _, at := range []string{cfg.Listen, beside.Listen} {
		requireSoon(t, func() bool { return !isServed(t, "http://"+at, one.Open.ID) })
	}
	require.Empty(t, entriesOf(t, c, 0))
	two := begin(t, c, c.Named("two", func(task *task.Task) { task.Epochs.Start = uint64(c.Clock.Now().Unix()) }))
	fillEpoch(t, two, 0)
}

// TestOwnersShareMemory: the memory limit must suffice for all tasks that owners may have. The relay must refuse a task
// that does not fit when the owner hands it over, and not at the next start.
func TestOwnersShareMemory(t *testing.T) {
	c := relaytest.New(t, relaytest.Options{Hops: 1,
		Config: func(_ int, cfg *relay.Config) { cfg.MaxMemory = 4 << 20 }}.Approving(t, 100))
	c.Start(t, 0)
	begin(t, c, c.Named("small"))
	large := c.Sign(t, c.Named("large", func(t *task.Task) { t.Slots.PerLane = 1000 }))
	err := c.Begin(t.Context(), t, 0, large)
	requireProblem(t, problem.Malformed, err)
	require.ErrorContains(t, err, "max_memory")
	cfg := c.Config(t, 0)
	cfg.MaxMemory, cfg.Owners[0].Tasks = 1<<20, 1000
	_, err = relay.New(cfg)
	require.ErrorContains(t, err, "max_memory")
}

// TestOwnersConfig: the relay must refuse each bad configuration of owners, and check-config must create no folder.
func TestOwnersConfig(t *testing.T) {
	c := relaytest.New(t, relaytest.Options{Hops: 1}.Approving(t, 1))
	cfg := c.Config(t, 0)
	file := filepath.Join(t.TempDir(), "file")
	require.NoError(t, os.WriteFile(file, nil, 0o600))
	for want, change := range map[string]func(o *relay.OwnerConfig){
		"owners.owner":  func(o *relay.OwnerConfig) { o.Owner = "" },
		"owners.folder": func(o *relay.OwnerConfig) { o.Folder = "" },
		"owners.tasks":  func(o *relay.OwnerConfig) { o.Tasks = 0 },
		"recovery":      func(o *relay.OwnerConfig) { o.Recovery = "x" },
		"candidates":    func(o *relay.OwnerConfig) { o.Candidates = []string{"x"} },
		file:            func(o *relay.OwnerConfig) { o.Folder = filepath.Join(file, "in") },
	} {
		bad := cfg
		bad.Owners = []relay.OwnerConfig{cfg.Owners[0]}
		change(&bad.Owners[0])
		_, err := relay.New(bad)
		require.ErrorContains(t, err, want)
	}
	cfg.Owners[0].Tasks = 1025
	_, err := relay.New(cfg)
	require.ErrorContains(t, err, "1 to 1024")
	cfg.Owners[0].Tasks = 1
	cfg.Owners = append(cfg.Owners, cfg.Owners[0])
	_, err = relay.New(cfg)
	require.ErrorContains(t, err, "each owner only once")
	cfg.Owners[1].Owner = taskfile.FormatKey(c.Open.Verifier.SignKey)
	_, err = relay.New(cfg)
	require.ErrorContains(t, err, "a separate folder for each owner")
	cfg.Owners = nil
	_, err = relay.New(cfg)
	require.ErrorContains(t, err, "at least one task or one approved owner")

	r, err := relay.Inspect(c.Config(t, 0))
	require.NoError(t, err)
	require.NoError(t, r.CheckFolders())
	require.NoError(t, r.Close())
	require.NoDirExists(t, c.Config(t, 0).Owners[0].Folder, "check-config must not create the folder")
}

// TestOwnersFolderFails: if the relay cannot use an owner's folder, it must refuse the owner's task without giving the
// owner the reason. When it can use the folder again, it must accept the task.
func TestOwnersFolderFails(t *testing.T) {
	c := relaytest.New(t, relaytest.Options{Hops: 1}.Approving(t, 1))
	c.Start(t, 0)
	folder := c.Config(t, 0).Owners[0].Folder
	next := c.Named("one")
	away := func() (back func()) {
		require.NoError(t, os.Rename(folder, folder+".away"))
		require.NoError(t, os.WriteFile(folder, nil, 0o600))
		return func() {
			require.NoError(t, os.Remove(folder))
			require.NoError(t, os.Rename(folder+".away", folder))
			c.WaitReady(t, c.Config(t, 0).Admin)
		}
	}
	fails := func(err error) { // overloaded, if the relay has noticed that its reserved space is missing
		t.Helper()
		var p *problem.Problem
		require.ErrorAs(t, err, &p)
		require.Contains(t, []problem.Name{problem.Internal, problem.Overloaded}, p.Name)
		require.Empty(t, p.Detail)
	}
	back := away()
	_, err := c.Ask(t, 0, next)
	fails(err)
	back()
	bundle := c.Sign(t, next)
	back = away()
	fails(c.Begin(t.Context(), t, 0, bundle))
	back()
	one := c.After(t, bundle)
	inTheWay := filepath.Join(folder, entriesOf(t, c, 0)[0], "task.bundle.new", "x")
	require.NoError(t, os.MkdirAll(inTheWay, 0o700))
	requireProblem(t, problem.Internal, c.Begin(t.Context(), t, 0, bundle))
	require.False(t, isServed(t, "http://"+c.Config(t, 0).Listen, one.Open.ID), "the task was not stored")
	require.NoError(t, os.RemoveAll(filepath.Dir(inTheWay)))
	require.NoError(t, c.Begin(t.Context(), t, 0, bundle))
	fillEpoch(t, one, 0)
}

// TestOwnersCrash: the relay crashed while it stored a task, and while it dropped another. It must serve neither, and
// must accept the first task when the owner hands it over again.
func TestOwnersCrash(t *testing.T) {
	c := relaytest.New(t, relaytest.Options{Hops: 1}.Approving(t, 1))
	stop := c.Start(t, 0)
	bundle := c.Sign(t, c.Named("one"))
	stop()
	folder := c.Config(t, 0).Owners[0].Folder
	raw, err := bundle.Bytes()
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(filepath.Join(folder, entriesOf(t, c, 0)[0], "task.bundle"), raw, 0o600))
	require.NoError(t, os.MkdirAll(filepath.Join(folder, "work", "next"), 0o700))
	c.Start(t, 0)
	one := c.After(t, bundle)
	require.False(t, isServed(t, "http://"+c.Config(t, 0).Listen, one.Open.ID))
	require.NoError(t, c.Begin(t.Context(), t, 0, bundle))
	require.NoDirExists(t, filepath.Join(folder, "work"))
	fillEpoch(t, one, 0)
}

// TestApprovedOwnersRelaysTellNoTime: a relay must not ask the relays of an approved owner's task for the time.
func TestApprovedOwnersRelaysTellNoTime(t *testing.T) {
	c := relaytest.New(t, relaytest.Options{}.Approving(t, 1))
	c.StartAll(t)
	fillEpoch(t, begin(t, c, c.Named("one")), 0)
	configured := relaytest.New(t, relaytest.Options{})
	configured.StartAll(t)
	asked := func(c *relaytest.Cascade) bool {
		_, metrics := get(t, c, 0, "/metrics")
		return strings.Contains(metrics, "doona_relay_clock_offset_seconds{")
	}
	requireSoon(t, func() bool { return asked(configured) })
	require.False(t, asked(c))
}

// TestEndEpochsOfOwners: after the loss of the store, end-epochs must also end the epochs of owners' tasks.
func TestEndEpochsOfOwners(t *testing.T) {
	c := relaytest.New(t, relaytest.Options{Hops: 1}.Approving(t, 1))
	stop := c.Start(t, 0)
	one := begin(t, c, c.Named("one"))
	fillEpoch(t, one, 0)
	stop()
	for _, name := range relaytest.KeptParts["store"] {
		os.Remove(filepath.Join(filepath.Dir(c.RelayConfig(1)), name))
	}
	_, err := relay.New(c.Config(t, 0))
	require.Error(t, err)
	back, err := relay.OpenRolledBack(c.Config(t, 0))
	require.NoError(t, err)
	require.Equal(t, []relay.BegunEpoch{{Task: one.Open.ID.String(), Name: "one"}}, back.Epochs)
	require.NoError(t, back.End(t.Context()))
	require.NoError(t, back.Close())
	c.Start(t, 0)
	_, err = c.Verifier.Pull(t.Context(), one.Open, 0, 0, 0)
	requireProblem(t, problem.EpochEnded, err)
	requireProblem(t, problem.EpochClosed, one.Post(t.Context(), 0, one.Seal(t, 0, 1), relaytest.Network(1)))
	c.Clock.Advance(relaytest.Epoch)
	fillEpoch(t, one, 1)
}
