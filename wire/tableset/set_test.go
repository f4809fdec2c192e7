package tableset_test

import (
	"crypto/ed25519"
	"crypto/rand"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/doona-dp/doona/internal/testing/fixture"
	"github.com/doona-dp/doona/wire/codec"
	"github.com/doona-dp/doona/wire/onion"
	"github.com/doona-dp/doona/wire/signing"
	"github.com/doona-dp/doona/wire/tableset"
	"github.com/doona-dp/doona/wire/task"
	"github.com/doona-dp/doona/wire/taskfile"
)

const day = 86400

// monday is 1 June 2026, where a week and a month begin.
var monday = uint64(time.Date(2026, 6, 1, 0, 0, 0, 0, time.UTC).Unix())

// newSet returns a set of four tables with three clocks: 61 days, weeks within them, and two months.
func newSet(t testing.TB, change ...func(set *tableset.Set, tables []fixture.SetTable)) (*fixture.SignedSet, error) {
	t.Helper()
	days := task.Epochs{Start: monday, Length: day, Count: 61}
	set := tableset.Set{Name: "example.org", Through: []string{"https://pay.example"}, Total: tableset.Total{
		Epsilon: task.NewEpsilon("10"), Delta: task.NewDelta("1e-5"), Days: 365}}
	tables := []fixture.SetTable{
		{Name: "visitors", Draft: fixture.Table(2, days), Bare: true},
		{Name: "entry", Draft: fixture.Table(20, days)},
		{Name: "vitals", Draft: fixture.Table(6, task.Epochs{Start: monday + 7*day, Length: 7 * day, Count: 7})},
		{Name: "countries", Draft: fixture.Table(30, task.Epochs{Start: monday, Length: task.Month, Count: 2})},
	}
	for _, c := range change {
		c(&set, tables)
	}
	return fixture.SignSet(set, tables, []string{"https://one.example", "https://two.example"})
}

func mustSet(t testing.TB, change ...func(set *tableset.Set, tables []fixture.SetTable)) *fixture.SignedSet {
	t.Helper()
	set, err := newSet(t, change...)
	require.NoError(t, err)
	return set
}

func TestSet(t *testing.T) {
	set := mustSet(t)
	raw, err := set.Bundle.Bytes()
	require.NoError(t, err)
	parsed, err := tableset.ParseBundle(raw)
	require.NoError(t, err)
	owner := task.SignKey(set.Key.Public().(ed25519.PublicKey))
	open, err := parsed.Open(&owner)
	require.NoError(t, err)
	require.Equal(t, set.Open, open)
	require.Equal(t, open.ID, open.RootID())
	require.Equal(t, []int{0, 0, 1, 2}, open.Clock)

	for _, c := range []struct {
		table      int
		day, epoch uint64
		open       bool
	}{
		{1, 0, 0, true}, {1, 60, 60, true},
		{2, 0, 0, false}, {2, 6, 0, false}, {2, 7, 0, true}, {2, 13, 0, true}, {2, 14, 1, true}, {2, 55, 6, true},
		{2, 56, 6, false}, // the week would end after the set
		{3, 0, 0, true}, {3, 29, 0, true}, {3, 30, 1, true}, {3, 60, 1, true},
	} {
		epoch, isOpen := open.At(c.table, c.day)
		require.Equal(t, c.epoch, epoch, "table %d, day %d", c.table, c.day)
		require.Equal(t, c.open, isOpen, "table %d, day %d", c.table, c.day)
	}
	for _, c := range []struct{ clock, epoch uint64 }{{0, 0}, {0, 60}, {1, 3}, {2, 1}} {
		keys := set.KeysOf(int(c.clock), c.epoch)
		raw, err := keys.Bytes()
		require.NoError(t, err)
		again, err := tableset.ParseKeys(raw)
		require.NoError(t, err)
		lists, err := open.Keys(int(c.clock), again)
		require.NoError(t, err)
		require.Len(t, lists, 3)
		_, err = open.Keys(int(c.clock+1)%3, again)
		require.Error(t, err, "the keys of another clock")
	}
}

// TestSetSubmission: every submission of a set has one size, all tags of a day are different, and drafts share them.
func TestSetSubmission(t *testing.T) {
	set := mustSet(t)
	sealer, err := set.Sealer()
	require.NoError(t, err)
	slots := func(day uint64, values ...int) (out []onion.SetSlot) {
		for i, value := range values {
			epoch, _ := set.At(i, day)
			slot := onion.SetSlot{Epoch: epoch, Message: task.Message{Cover: value < 0}}
			if value >= 0 {
				slot.Message.Body = []byte{byte(value)}
			}
			out = append(out, slot)
		}
		return out
	}
	tags := sealer.Tags()
	require.Len(t, tags, 1+4*2)
	size := 0
	for day, values := range map[uint64][]int{0: {-1, 3, -1, 29}, 8: {-1, -1, -1, -1}, 59: {-1, 19, -1, 0}} {
		body, err := sealer.Seal(day, slots(day, values...), tags...)
		require.NoError(t, err)
		if size == 0 {
			size = len(body)
		}
		require.Len(t, body, size)
		messages, seen, err := set.OpenAll(day, body)
		require.NoError(t, err)
		require.Equal(t, tags, seen)
		for i, value := range values {
			require.Equal(t, value < 0, messages[i].Cover)
			if value >= 0 {
				require.Equal(t, []byte{byte(value)}, messages[i].Body)
			}
		}
		_, _, err = set.OpenAll(day+1, body)
		require.Error(t, err)
	}
	require.LessOrEqual(t, size, 800, "four tables, two relays")
	for i, tag := range tags {
		require.NotContains(t, tags[i+1:], tag)
	}
	for name, bad := range map[string][]onion.SetSlot{
		"a slot too few": slots(0, -1, 3, -1), "a slot too many": slots(0, -1, 3, -1, 0)[:4:4],
		"a message of two bytes": {{}, {Message: task.Message{Body: []byte{1, 2}}}, {}, {}},
	} {
		if name == "a slot too many" {
			bad = append(bad, bad[0])
		}
		_, err := sealer.Seal(0, bad)
		require.Error(t, err, name)
	}
	_, err = sealer.Seal(61, slots(0, -1, -1, -1, -1))
	require.Error(t, err, "a day beyond the set")
	_, err = sealer.Seal(0, slots(0, -1, -1, -1, -1), tags[1:]...)
	require.Error(t, err, "a tag too few")
}

// TestSetsRefused: what no set may have is refused, and the error names it.
func TestSetsRefused(t *testing.T) {
	type tables = []fixture.SetTable
	for want, change := range map[string]func(set *tableset.Set, tables tables){
		"invalid name":           func(s *tableset.Set, _ tables) { s.Name = "" },
		"invalid total.epsilon":  func(s *tableset.Set, _ tables) { s.Total.Epsilon = task.NewEpsilon("101") },
		"invalid total.delta":    func(s *tableset.Set, _ tables) { s.Total.Delta = task.NewDelta("1") },
		"invalid total.days":     func(s *tableset.Set, _ tables) { s.Total.Days = 0 },
		"invalid through":        func(s *tableset.Set, _ tables) { s.Through = []string{"pay.example"} },
		"invalid tables.name":    func(_ *tableset.Set, x tables) { x[1].Name = "visitors" },
		`invalid tables.name "2`: func(_ *tableset.Set, x tables) { x[1].Name = "2nd" },
		"invalid renewal":        func(s *tableset.Set, _ tables) { s.Position = 1 },
		"tables.entry.noise": func(_ *tableset.Set, x tables) {
			epochs := x[1].Draft.Epochs
			x[1].Draft = fixture.Draft(task.Histogram, 20)
			x[1].Draft.Epochs = epochs
		},
		"tables.vitals.epochs":         func(_ *tableset.Set, x tables) { x[2].Draft.Epochs.Start += 3600 },
		"tables.vitals.epochs outside": func(_ *tableset.Set, x tables) { x[2].Draft.Epochs.Count = 9 },
		"tables.vitals.kem":            func(_ *tableset.Set, x tables) { x[2].Draft.KEM = task.KEMMLKEM768 },
		"tables.entry.clients.origins": func(_ *tableset.Set, x tables) { x[1].Draft.Clients.Origins = []string{"https://a.example"} },
		"tables.visitors.epochs":       func(_ *tableset.Set, x tables) { x[0].Draft.Epochs.Cap = task.Cap{Reports: 1, Window: 2} },
		"tables.entry.stream": func(_ *tableset.Set, x tables) {
			x[1].Draft.Stream = &task.StreamPosition{Name: "entry", Allow: []string{}}
		},
		`tables.visitors.stream.allow "relays.signKey"`: func(_ *tableset.Set, x tables) {
			x[0].Draft.Stream = &task.StreamPosition{Name: "visitors", Allow: []string{"relays.signKey"}}
		},
	} {
		_, err := newSet(t, change)
		require.ErrorContains(t, err, want)
	}
}

// TestSetBundlesRefused: a bundle with another task, list, signer or form is refused.
func TestSetBundlesRefused(t *testing.T) {
	set, other := mustSet(t), mustSet(t)
	for name, change := range map[string]func(b *tableset.Bundle){
		"another task":      func(b *tableset.Bundle) { b.Tasks[1] = other.Bundle.Tasks[1] },
		"a task too few":    func(b *tableset.Bundle) { b.Tasks = b.Tasks[:3] },
		"tasks swapped":     func(b *tableset.Bundle) { b.Tasks[0], b.Tasks[1] = b.Tasks[1], b.Tasks[0] },
		"another list":      func(b *tableset.Bundle) { b.Lists[0] = other.Bundle.Lists[0] },
		"lists swapped":     func(b *tableset.Bundle) { b.Lists[1], b.Lists[2] = b.Lists[2], b.Lists[1] },
		"a clock too few":   func(b *tableset.Bundle) { b.Lists = b.Lists[:2] },
		"a list too few":    func(b *tableset.Bundle) { b.Lists[0] = b.Lists[0][:2] },
		"another signature": func(b *tableset.Bundle) { b.Signature = other.Bundle.Signature },
		"another owner":     func(b *tableset.Bundle) { b.Owner = other.Bundle.Owner },
		"another purpose":   func(b *tableset.Bundle) { b.Signature = signing.Sign(set.Key, signing.Task, b.Set) },
		"a trailing byte": func(b *tableset.Bundle) {
			b.Set = append(slices.Clone(b.Set), 0)
			b.Signature = signing.Sign(set.Key, signing.Set, b.Set)
		},
	} {
		b := *set.Bundle
		b.Tasks, b.Lists = slices.Clone(b.Tasks), slices.Clone(b.Lists)
		change(&b)
		_, err := b.Open(nil)
		require.Error(t, err, name)
	}
	stranger := task.SignKey{1}
	_, err := set.Bundle.Open(&stranger)
	require.ErrorContains(t, err, "its owner is")
	raw, err := set.Bundle.Bytes()
	require.NoError(t, err)
	for _, bad := range [][]byte{raw[:len(raw)-1], append(slices.Clone(raw), 0), {}, codec.AppendArray(nil, 5)} {
		_, err := tableset.ParseBundle(bad)
		require.Error(t, err)
	}
}

// TestOneListPerClock: tables of one clock must name the same keys. Otherwise an owner could give two visitors tasks
// with different keys, and tell them apart.
func TestOneListPerClock(t *testing.T) {
	set, other := mustSet(t), mustSet(t)
	s := *set.Set
	s.Tables = slices.Clone(s.Tables)
	second := *set.Tasks[1]
	second.Verifier.KeyList = other.Tasks[1].Verifier.KeyList
	s.Tables[1].Task = taskfile.ID(&second)
	b := *set.Bundle
	b.Tasks = slices.Clone(b.Tasks)
	b.Tasks[1], b.Set = second.Canonical(), s.Canonical()
	b.Signature = signing.Sign(set.Key, signing.Set, b.Set)
	_, err := b.Open(nil)
	require.ErrorContains(t, err, "the list that all tables with these epochs have")
}

// TestRenewal: a renewal changes nothing that the total depends on.
func TestRenewal(t *testing.T) {
	streams := func(_ *tableset.Set, tables []fixture.SetTable) {
		for i := range tables {
			tables[i].Draft.Stream = &task.StreamPosition{Name: tables[i].Name, Allow: []string{"clients.origins"}}
		}
	}
	first := mustSet(t, streams)
	renew := func(change func(set *tableset.Set, tables []*task.Task)) (*tableset.Open, error) {
		s := *first.Set
		s.Position, s.Root, s.Before, s.Tables = 1, first.ID, first.ID, slices.Clone(first.Tables)
		s.First = first.FirstTasks()
		var tasks []*task.Task
		for i, old := range first.Tasks {
			next := *old
			next.Epochs.Start = old.Epochs.Over()
			next.Stream = &task.StreamPosition{Name: old.Stream.Name, Position: 1, Before: first.Tables[i].Task,
				Allow: old.Stream.Allow}
			tasks = append(tasks, &next)
		}
		last := tasks[2] // The weeks end before the set does: they go on with the first Monday after its first day.
		last.Epochs.Start = tasks[0].Epochs.Start + 5*day
		change(&s, tasks)
		b := &tableset.Bundle{Owner: first.Bundle.Owner, Lists: first.Bundle.Lists}
		for i, next := range tasks {
			s.Tables[i].Task = taskfile.ID(next)
			b.Tasks = append(b.Tasks, next.Canonical())
		}
		b.Set = s.Canonical()
		b.Signature = signing.Sign(first.Key, signing.Set, b.Set)
		return b.Open(nil)
	}
	rotate := func(tables []*task.Task, root func(table int) task.ID) {
		public, _, err := ed25519.GenerateKey(rand.Reader)
		require.NoError(t, err)
		for i, next := range tables {
			next.Relays = slices.Clone(next.Relays)
			next.Relays[1].SignKey = task.SignKey(public)
			next.Stream.Rotations = []task.Rotation{taskfile.NewRotation(root(i), first.Signs[1], task.SignKey(public))}
		}
	}
	next, err := renew(func(_ *tableset.Set, tables []*task.Task) {
		rotate(tables, func(table int) task.ID { return first.Tables[table].Task })
	})
	require.NoError(t, err)
	require.NoError(t, first.CheckRenewal(first.Open, next), "a relay's key was replaced")
	next, err = renew(func(_ *tableset.Set, tables []*task.Task) {
		for _, next := range tables {
			next.Clients.Origins = []string{"https://www.example.org"}
		}
	})
	require.NoError(t, err)
	require.NoError(t, first.CheckRenewal(first.Open, next))
	require.Equal(t, first.ID, next.RootID())

	for want, change := range map[string]func(set *tableset.Set, tables []*task.Task){
		"another name, trust, total":    func(s *tableset.Set, _ []*task.Task) { s.Total.Epsilon = task.NewEpsilon("11") },
		"invalid set another name":      func(s *tableset.Set, _ []*task.Task) { s.Trial = true },
		"invalid renewal 2 first tasks": func(s *tableset.Set, _ []*task.Task) { s.First = s.First[:2] },
		"invalid renewal other first tasks": func(s *tableset.Set, _ []*task.Task) {
			s.First = slices.Clone(s.First)
			s.First[1] = task.ID{1}
		},
		"tables.entry.stream.rotations": func(_ *tableset.Set, tables []*task.Task) {
			rotate(tables, func(int) task.ID { return first.Tables[0].Task }) // Signed for another table's stream.
		},
		"the tables of the set before": func(s *tableset.Set, _ []*task.Task) { s.Tables[1].Name = "pages" },
		"the set before":               func(s *tableset.Set, _ []*task.Task) { s.Before = task.ID{1} },
		"tables.entry: invalid noise": func(_ *tableset.Set, tables []*task.Task) {
			noise := *tables[1].Noise
			noise.Tables = [][]uint64{slices.Clone(noise.Tables[0])}
			noise.Tables[0][0]++
			noise.Tables[0][len(noise.Tables[0])-1]++
			tables[1].Noise = &noise
		},
		"tables.visitors: invalid clients.quota": func(_ *tableset.Set, tables []*task.Task) {
			tables[0].Clients.Quota++
		},
		"invalid stream.before": func(_ *tableset.Set, tables []*task.Task) { tables[1].Stream.Before = task.ID{1} },
		"invalid cap": func(_ *tableset.Set, tables []*task.Task) {
			tables[1].Epochs.Cap = task.Cap{Reports: 3, Window: 60}
		},
		"tables.visitors.stream.position": func(_ *tableset.Set, tables []*task.Task) {
			for _, next := range tables {
				next.Stream.Position = 2
			}
		},
	} {
		next, err := renew(change)
		if err == nil {
			err = first.CheckRenewal(first.Open, next)
		}
		require.ErrorContains(t, err, want)
	}
	_, stranger, err := ed25519.GenerateKey(rand.Reader)
	require.NoError(t, err)
	other := *next
	other.Owner = task.SignKey(stranger.Public().(ed25519.PublicKey))
	require.ErrorContains(t, first.CheckRenewal(first.Open, &other), "invalid owner")
}
