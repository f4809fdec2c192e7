package shufflerclient_test

import (
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/doona-dp/doona/internal/quickstart"
	"github.com/doona-dp/doona/internal/testing/fixture"
	"github.com/doona-dp/doona/internal/testing/relaytest"
	"github.com/doona-dp/doona/shufflerclient"
	"github.com/doona-dp/doona/wire/keyfile"
	"github.com/doona-dp/doona/wire/onion"
	"github.com/doona-dp/doona/wire/tableset"
	"github.com/doona-dp/doona/wire/task"
)

// newCountedSet returns a cascade with a set of 20 days of an hour: a bare table, one with a cap of two in four days,
// one with an event in four days, and one of two hours that begins an hour later.
func newCountedSet(t *testing.T) *relaytest.Cascade {
	t.Helper()
	set := &quickstart.Set{Name: "site", Set: tableset.Set{Name: "a site",
		Total:  tableset.Total{Epsilon: task.NewEpsilon("90"), Delta: task.NewDelta("1e-3"), Days: 1},
		Tables: []tableset.Table{{Name: "visits", Bare: true}, {Name: "day"}, {Name: "rare"}, {Name: "week"}}}}
	begun := uint64(time.Now().Unix()) - 60
	for i, epochs := range []task.Epochs{{Start: begun, Length: 3600, Count: 20},
		{Start: begun, Length: 3600, Count: 20, Cap: task.Cap{Reports: 2, Window: 4}},
		{Start: begun, Length: 3600, Count: 20, Events: task.Events{Most: 1, Window: 4, Default: 2}},
		{Start: begun + 3600, Length: 7200, Count: 9}} {
		table := fixture.Table(4, epochs)
		table.Name, table.Batch.Size = set.Set.Tables[i].Name, 2
		set.Tables = append(set.Tables, table)
	}
	return relaytest.New(t, relaytest.Options{Set: set})
}

// countedOptions are those of a client of newCountedSet with a ledger.
func countedOptions(t *testing.T, c *relaytest.Cascade) shufflerclient.Options {
	return shufflerclient.Options{Task: c.OpenSet().URL(), Owner: c.Owner,
		Budget: shufflerclient.Budget{Epsilon: 100, Delta: 1e-3, Days: 1},
		Ledger: shufflerclient.LedgerFile(filepath.Join(t.TempDir(), "ledger.json")),
		Usual:  map[string][]float64{"day": {3}, "week": {3}}}
}

// TestSetLedger: by earlier reports alone, the ledger decides to which tables a day reports. Values decide only what.
func TestSetLedger(t *testing.T) {
	c := newCountedSet(t)
	c.Start(t, 0)
	o := countedOptions(t, c)
	client, err := shufflerclient.ConnectSet(t.Context(), o)
	require.NoError(t, err)
	second, err := shufflerclient.ConnectSet(t.Context(), o)
	require.NoError(t, err)
	due := func(want ...int) []int { return want }
	const cover = -1
	for _, day := range []struct {
		day    uint64
		values map[string][]float64
		want   []int
		why    []error
	}{
		{0, nil, due(cover, 3, 2, cover), nil},
		{1, map[string][]float64{"day": {1}, "rare": {1}, "week": {1}}, due(cover, 1, 1, 1), nil},
		{2, map[string][]float64{"day": {1}, "rare": {1}, "week": {1}}, due(cover, cover, 2, cover),
			[]error{shufflerclient.ErrCapped, shufflerclient.ErrAllowance, shufflerclient.ErrReported}},
		{3, map[string][]float64{"day": {9}, "rare": {9}, "week": {9}}, due(cover, cover, 2, 3), nil},
		{4, map[string][]float64{"rare": {2}}, due(cover, 3, 2, cover), nil},
		{5, map[string][]float64{"rare": {0}}, due(cover, 3, 0, 3), nil},
	} {
		r, err := client.Report(t.Context(), day.day, day.values)
		require.NoError(t, err)
		require.Equal(t, day.want, cellsOf(t, c, r), "day %d", day.day)
		for _, why := range day.why {
			require.ErrorIs(t, r.Instead, why)
		}
		require.Equal(t, day.day == 2 || day.day == 3, r.Instead != nil, "day %d: %v", day.day, r.Instead)
		for _, again := range []uint64{0, day.day} {
			_, err = second.Report(t.Context(), again, nil)
			require.ErrorIs(t, err, shufflerclient.ErrClaimed)
		}
	}
	_, err = client.Report(t.Context(), 20, nil)
	require.ErrorContains(t, err, "0 to 19")
	_, err = client.Report(t.Context(), 6, map[string][]float64{"pages": {1}})
	require.ErrorContains(t, err, "tables of the set")

	var line shufflerclient.Line
	require.NoError(t, o.Ledger.Update(func(l *shufflerclient.Ledger) error {
		require.Len(t, l.Lines, 1)
		line = l.Lines[0]
		price := shufflerclient.Price{First: line.Price.All, Reports: 1, All: line.Price.All}
		price.First.Epsilon, price.All.Epsilon = 11, 11 // The set costs 90 of 100, whatever reports it has.
		days := c.OpenSet().Tasks[0].Epochs
		return errOf(t, shufflerclient.ErrBudget, l.Spend(o.Budget, "other", price, int64(days.Begin(1)), days))
	}))
	require.Equal(t, 90.0, line.Price.First.Epsilon)
	require.Equal(t, []shufflerclient.Run{{Start: int64(c.OpenSet().Tasks[0].Epochs.Start), Count: 6}}, line.Runs)
}

// errOf asserts that an error is another, and returns nil.
func errOf(t *testing.T, want, err error) error {
	require.ErrorIs(t, err, want)
	return nil
}

// cellsOf opens a submission with all keys. It returns the cell of each table, or -1 for a cover.
func cellsOf(t *testing.T, c *relaytest.Cascade, r *shufflerclient.Report) (cells []int) {
	t.Helper()
	set := c.OpenSet()
	opener := func(table, hop int, id task.ID, epoch uint64) *onion.Opener {
		folder := []string{"relay1", "relay2", "verifier"}[hop]
		keys, err := keyfile.LoadHPKE(filepath.Join(c.Dir, folder, "site-"+set.Tables[table].Name+".keys"))
		require.NoError(t, err)
		key, err := keys.Key(epoch)
		require.NoError(t, err)
		o, err := onion.NewOpener(set.Tasks[table], id, hop, epoch, key)
		require.NoError(t, err)
		return o
	}
	layouts, err := set.Layouts()
	require.NoError(t, err)
	envelope, err := opener(0, 0, set.ID, r.Epoch).OpenSet(r.Body, layouts)
	require.NoError(t, err)
	for i, table := range set.Tables {
		epoch, _ := set.At(i, r.Epoch)
		_, slot, err := opener(i, 1, table.Task, epoch).OpenSlot(0, envelope.Lanes[i][0])
		require.NoError(t, err)
		_, m, err := opener(i, 2, table.Task, epoch).OpenMessage(0, slot)
		require.NoError(t, err)
		cell := -1
		if !m.Cover {
			cell = int(m.Body[len(m.Body)-1])
		}
		cells = append(cells, cell)
	}
	return cells
}

// TestSetLedgerRefuses: a budget that the total does not fit, more days than the total has, and a table without a
// default. Without a ledger, there is no Report.
func TestSetLedgerRefuses(t *testing.T) {
	c := newCountedSet(t)
	c.Start(t, 0)
	for want, change := range map[string]func(*shufflerclient.Options){
		"invalid Budget.Epsilon 0": func(o *shufflerclient.Options) { o.Budget.Epsilon = 0 },
		"at least the set's total": func(o *shufflerclient.Options) { o.Budget.Epsilon = 89 },
		"invalid Budget.Days 2":    func(o *shufflerclient.Options) { o.Budget.Days = 2 },
		"Usual, table week":        func(o *shufflerclient.Options) { delete(o.Usual, "week") },
		"invalid MaxEpsilon 89":    func(o *shufflerclient.Options) { o.MaxEpsilon = 89 },
	} {
		o := countedOptions(t, c)
		change(&o)
		_, err := shufflerclient.ConnectSet(t.Context(), o)
		require.ErrorContains(t, err, want)
	}
	o := setOptions(c)
	client, err := shufflerclient.ConnectSet(t.Context(), o)
	require.NoError(t, err)
	_, err = client.Report(t.Context(), 0, nil)
	require.ErrorContains(t, err, "a ledger")
}
