package relay_test

import (
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/doona-dp/doona/internal/testing/relaytest"
	"github.com/doona-dp/doona/wire/problem"
	"github.com/doona-dp/doona/wire/tableset"
	"github.com/doona-dp/doona/wire/task"
)

// postDay posts submissions of a set for a day from n networks, which sends cell 1 to every table.
func postDay(t *testing.T, c *relaytest.Cascade, day uint64, first, n int) {
	t.Helper()
	sealer, values := c.SetSealer(t), make([]int, len(c.OpenSet().Tables))
	for i := range values {
		values[i] = 1
	}
	for i := range n {
		body, err := sealer.Seal(day, cells(c.OpenSet(), day, values...))
		require.NoError(t, err)
		require.NoError(t, c.PostSet(t.Context(), day, body, relaytest.Network(first+i)))
	}
}

// TestOwnersSet: relays must serve the set of an approved owner at once and after a restart. Each table takes a task
// slot. To hand the set over again is no error.
func TestOwnersSet(t *testing.T) {
	c := relaytest.New(t, relaytest.Options{}.Approving(t, 4))
	stops := []func(){c.Start(t, 0), c.Start(t, 1)}
	set, handed := c.SignSet(t, setOf(3, epochsOf(0, 1, 2), epochsOf(0, 1, 2), epochsOf(0, 2, 1)))
	for hop := range 2 {
		require.NoError(t, c.BeginSet(t.Context(), t, hop, handed))
		require.NoError(t, c.BeginSet(t.Context(), t, hop, handed))
		require.Len(t, entriesOf(t, c, hop), 3)
	}
	postDay(t, set, 0, 0, 3)
	for table := range 3 {
		set.Table(t, table).Pull(t, 0, 0)
	}
	requireProblem(t, problem.SetOnly, set.Table(t, 2).Post(t.Context(), 0, []byte("x"), relaytest.Network(1)))
	for hop, stop := range stops {
		stop()
		c.Start(t, hop)
	}
	postDay(t, set, 0, 3, 3)
	set.Table(t, 2).Pull(t, 0, 1)
	require.NoError(t, c.BeginSet(t.Context(), t, 0, handed))

	_, more := c.SignSet(t, setOf(3, epochsOf(0, 1, 3), epochsOf(0, 1, 3)))
	requireProblem(t, problem.OwnerTaskLimit, c.BeginSet(t.Context(), t, 0, more))
	require.Len(t, entriesOf(t, c, 0), 4, "three tables and a waiting key list")
}

// TestOwnersSetAfterACrash: a crash between any two steps must leave something that handing the set over again
// completes. Until then no table may take single reports.
func TestOwnersSetAfterACrash(t *testing.T) {
	c := relaytest.New(t, relaytest.Options{Hops: 1}.Approving(t, 3))
	stop := c.Start(t, 0)
	set, handed := c.SignSet(t, setOf(3, epochsOf(0, 1, 2), epochsOf(0, 1, 2), epochsOf(0, 1, 2)))
	stop()
	folder := c.Config(t, 0).Owners[0].Folder
	asked, err := filepath.Glob(filepath.Join(folder, "asked-*"))
	require.NoError(t, err)
	require.Len(t, asked, 1)
	begun := func(tables int) { // what takeSet has written when it stops after some tables
		require.NoError(t, os.WriteFile(filepath.Join(folder, "set-"+set.OpenSet().ID.String()), handed.Set, 0o600))
		for i := range tables {
			to := filepath.Join(folder, set.OpenSet().Tables[i].Task.String())
			require.NoError(t, os.CopyFS(to, os.DirFS(asked[0])))
			require.NoError(t, os.WriteFile(filepath.Join(to, "task.bundle"), handed.Tables[i], 0o600))
			require.NoError(t, os.Chmod(filepath.Join(to, "hpke.keys"), 0o600))
		}
	}
	before := filepath.Join(t.TempDir(), "before")
	require.NoError(t, os.CopyFS(before, os.DirFS(folder)))
	for tables := range 3 {
		require.NoError(t, os.RemoveAll(folder))
		require.NoError(t, os.CopyFS(folder, os.DirFS(before)))
		for _, name := range []string{"hpke.keys", "hpke.keys.pub"} {
			require.NoError(t, os.Chmod(filepath.Join(asked[0], name), 0o600))
		}
		require.NoError(t, os.RemoveAll(filepath.Join(filepath.Dir(c.RelayConfig(1)), "relay.db")))
		require.NoError(t, os.RemoveAll(filepath.Join(filepath.Dir(c.RelayConfig(1)), "relay.secret")))
		begun(tables)
		stop := c.Start(t, 0)
		for i := range tables {
			err := set.Table(t, i).Post(t.Context(), 0, []byte("x"), relaytest.Network(1))
			requireProblem(t, problem.SetOnly, err)
		}
		body, err := set.SetSealer(t).Seal(0, cells(set.OpenSet(), 0, 1, 1, 1))
		require.NoError(t, err)
		requireProblem(t, problem.UnknownTask, set.PostSet(t.Context(), 0, body, relaytest.Network(1)))
		require.NoError(t, c.BeginSet(t.Context(), t, 0, handed))
		postDay(t, set, 0, 0, 3)
		set.Table(t, 2).Pull(t, 0, 0)
		stop()
	}
}

// inStreams makes the tables of a set the first tasks of streams.
func inStreams(of *tableset.Set, tables []*task.Task) {
	for i := range tables {
		tables[i].Stream = &task.StreamPosition{Name: of.Tables[i].Name, Allow: []string{"clients.origins"}}
	}
}

// TestRenewalOfASet: a relay must take a set's renewal, serve both, and answer a request for the first with the one
// that has begun. It must refuse another renewal of the same position, also after a restart, and a set with a common
// table.
func TestRenewalOfASet(t *testing.T) {
	c := relaytest.New(t, relaytest.Options{}.Approving(t, 6))
	stops := []func(){c.Start(t, 0), c.Start(t, 1)}
	first := setOf(3, epochsOf(0, 1, 2), epochsOf(0, 2, 1))
	inStreams(&first.Set, first.Tables)
	set, handed := c.SignSet(t, first)
	renew := func(name string) (*relaytest.Cascade, *tableset.Handed) {
		next := setOf(3, epochsOf(2, 1, 2), epochsOf(2, 2, 1))
		root := set.OpenSet()
		next.Set.Position, next.Set.Root, next.Set.Before, next.Set.First = 1, root.ID, root.ID, root.FirstTasks()
		for i := range next.Tables {
			next.Tables[i].Stream = &task.StreamPosition{Name: root.Tables[i].Name, Position: 1,
				Before: root.Tables[i].Task, Allow: []string{"clients.origins"}}
			next.Tables[i].Clients.Origins = []string{"https://" + name + ".example"}
		}
		return c.SignSet(t, next)
	}
	next, renewed := renew("www")
	_, fork := renew("other")
	requireProblem(t, problem.WrongPosition, c.BeginSet(t.Context(), t, 0, renewed))
	for hop := range 2 {
		require.NoError(t, c.BeginSet(t.Context(), t, hop, handed))
	}
	for hop := range 2 {
		require.NoError(t, c.BeginSet(t.Context(), t, hop, renewed))
		require.NoError(t, c.BeginSet(t.Context(), t, hop, renewed))
		requireProblem(t, problem.WrongPosition, c.BeginSet(t.Context(), t, hop, fork))
		require.Len(t, entriesOf(t, c, hop), 4, "two tables, and the two waiting lists of the fork")
	}
	c.Clock.Advance(aDay)
	postDay(t, set, 1, 0, 3)
	require.Equal(t, string(tableset.Pack(handed.Set)), relaytest.Get(t, set.OpenSet().URL()))
	c.Clock.Advance(aDay)
	require.Equal(t, string(tableset.Pack(renewed.Set)), relaytest.Get(t, set.OpenSet().URL()))
	require.Equal(t, string(tableset.Pack(renewed.Set)), relaytest.Get(t, next.OpenSet().URL()))
	postDay(t, next, 0, 0, 3)
	next.Table(t, 1).Pull(t, 0, 0)
	for hop, stop := range stops {
		stop()
		c.Start(t, hop)
	}
	postDay(t, next, 0, 3, 3)
	next.Table(t, 1).Pull(t, 0, 1)
	for hop := range 2 {
		requireProblem(t, problem.WrongPosition, c.BeginSet(t.Context(), t, hop, fork))
	}
}

// TestOwnersSetExpires: no table of a set may be dropped before the set's last day, as every submission has a slot for
// it. When the set's retention is over, all task slots must be free again, and nothing of the set may remain.
func TestOwnersSetExpires(t *testing.T) {
	c := relaytest.New(t, expiring(relaytest.Options{Hops: 1}).Approving(t, 2))
	stop := c.Start(t, 0)
	set, handed := c.SignSet(t, setOf(3, epochsOf(0, 1, 9), epochsOf(0, 2, 1)))
	require.NoError(t, c.BeginSet(t.Context(), t, 0, handed))
	files := filepath.Join(c.Config(t, 0).Owners[0].Folder, "set-*")
	for day := range 8 {
		c.Clock.Advance(aDay)
		require.Eventually(t, func() bool {
			for _, of := range set.Statuses(t, 0) {
				if of.ID == set.OpenSet().Tables[0].Task.String() {
					return len(of.Epochs) > day && (of.Epochs[day].State == "erased" || of.Epochs[day].State == "expired")
				}
			}
			return false
		}, relaytest.Patience, 10*time.Millisecond)
	}
	require.Len(t, entriesOf(t, c, 0), 2, "the table of one epoch has expired days ago")
	postDay(t, set, 8, 0, 3)
	stop()
	stop = c.Start(t, 0)
	postDay(t, set, 8, 3, 3)
	c.Clock.Advance(4 * aDay)
	require.Eventually(t, func() bool {
		left, err := filepath.Glob(files)
		return err == nil && len(left) == 0 && len(entriesOf(t, c, 0)) == 0
	}, relaytest.Patience, 10*time.Millisecond)
	body, err := set.SetSealer(t).Seal(8, cells(set.OpenSet(), 8, 1, 1))
	require.NoError(t, err)
	requireProblem(t, problem.UnknownTask, set.PostSet(t.Context(), 8, body, relaytest.Network(9)))
	stop()

	left := filepath.Join(filepath.Dir(files), "set-"+set.OpenSet().ID.String()) // as a crash may leave it
	require.NoError(t, os.WriteFile(left, handed.Set, 0o600))
	c.Start(t, 0)
	require.Eventually(t, func() bool {
		_, err := os.Stat(left)
		return os.IsNotExist(err)
	}, relaytest.Patience, 10*time.Millisecond)
}

// TestTwinsFollowOwnersSets: one process of a relay takes a set. The other must serve it without a restart.
func TestTwinsFollowOwnersSets(t *testing.T) {
	c := relaytest.New(t, relaytest.Options{Hops: 1, Postgres: true}.Approving(t, 2))
	cfg := c.Config(t, 0)
	c.Start(t, 0)
	beside := cfg
	beside.Listen, beside.Admin = relaytest.FreeAddress(t), relaytest.FreeAddress(t)
	runBeside(t, c, beside)
	settle(t, c, 0)
	set, handed := c.SignSet(t, setOf(3, epochsOf(0, 1, 2), epochsOf(0, 2, 1)))
	require.NoError(t, c.BeginSet(t.Context(), t, 0, handed))
	url := strings.Replace(set.OpenSet().URL(), cfg.Listen, beside.Listen, 1)
	requireSoon(t, func() bool {
		resp, err := http.Get(url)
		require.NoError(t, err)
		defer resp.Body.Close()
		return resp.StatusCode == http.StatusOK
	})
}
