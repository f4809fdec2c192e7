package ledger_test

import (
	"crypto/sha256"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/doona-dp/doona/accountant/compose"
	"github.com/doona-dp/doona/internal/ledger"
	"github.com/doona-dp/doona/internal/testing/faultdisk"
	"github.com/doona-dp/doona/planner"
	"github.com/doona-dp/doona/protocols"
	"github.com/doona-dp/doona/protocols/registry"
	"github.com/doona-dp/doona/wire/task"
	"github.com/doona-dp/doona/wire/taskfile"
)

// counted returns a histogram task of 16 bins that claims (1, 10⁻⁶) per epoch, with the given ID.
func counted(t *testing.T, id byte, change ...func(*task.Task)) *taskfile.Open {
	t.Helper()
	draft, err := planner.Draft(planner.Query{Name: "test", Query: task.Histogram, Bins: 16, Hi: 1, Batch: 10_000,
		Honest: 1, Epsilon: 1, Delta: 1e-6})
	require.NoError(t, err)
	for _, c := range change {
		c(draft)
	}
	return &taskfile.Open{Task: draft, ID: task.ID{id}}
}

func inStream(position uint64) func(*task.Task) {
	return func(t *task.Task) { t.Stream = &task.StreamPosition{Name: "stream", Position: position} }
}

// other changes a task to claim another ε, with the noise for it.
func other(t *testing.T, epsilon float64) func(*task.Task) {
	draft, err := planner.Draft(planner.Query{Name: "test", Query: task.Histogram, Bins: 16, Hi: 1, Batch: 10_000,
		Honest: 1, Epsilon: epsilon, Delta: 1e-6})
	require.NoError(t, err)
	return func(t *task.Task) { t.Params, t.Claim = draft.Params, draft.Claim }
}

func lawOf(open *taskfile.Open) func() (*compose.Law, error) {
	return sync.OnceValues(func() (*compose.Law, error) {
		m, err := registry.Open(open.Task)
		if err != nil {
			return nil, err
		}
		return m.Law()
	})
}

// options returns the options of a ledger in the folder dir/ledger, with a mark beside dir/keys.
func options(dir string, budget *ledger.Budget) ledger.Options {
	return ledger.Options{Folder: filepath.Join(dir, "ledger"), Beside: filepath.Join(dir, "keys"), Budget: budget}
}

func open(t *testing.T, of *taskfile.Open, o ledger.Options) *ledger.Ledger {
	t.Helper()
	l, err := ledger.Open(of, lawOf(of), o)
	require.NoError(t, err)
	return l
}

func cost(t *testing.T, l *ledger.Ledger) ledger.Cost {
	t.Helper()
	c, err := l.Cost()
	require.NoError(t, err)
	return c
}

// file returns the path of the only ledger in a folder.
func file(t *testing.T, o ledger.Options) string {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(o.Folder, "*.ledger"))
	require.NoError(t, err)
	require.Len(t, files, 1)
	return files[0]
}

// TestChargesOnce: each epoch must be charged once, in any order and by any verifier, at the cost of the composed laws.
func TestChargesOnce(t *testing.T) {
	of := counted(t, 1)
	o := options(t.TempDir(), nil)
	l := open(t, of, o)
	require.Zero(t, *cost(t, l).Epsilon)
	require.NoDirExists(t, o.Folder, "without a charge there must be no folder")
	require.NoError(t, l.Charge([]uint64{5, 3, 4, 4}))
	require.EqualValues(t, 3, cost(t, l).Epochs)
	again := open(t, of, o)
	require.NoError(t, again.Charge([]uint64{3, 9, 5}))
	require.NoError(t, l.Charge([]uint64{9}))
	for _, l := range []*ledger.Ledger{l, again, open(t, of, o)} {
		got := cost(t, l)
		want, err := protocols.EpochsSpend(of.Task, lawOf(of), 4)
		require.NoError(t, err)
		require.EqualValues(t, 4, got.Epochs)
		require.Equal(t, want, compose.Spend{Epsilon: *got.Epsilon, Delta: got.Delta})
		require.Less(t, *got.Epsilon, 2.0, "want the composed epsilon, not the sum of 4 epochs")
		require.Nil(t, got.Budget)
	}
}

// TestBudgetIsExact: the ledger must charge exactly as many epochs as the composed law allows.
func TestBudgetIsExact(t *testing.T) {
	of := counted(t, 1)
	budget := ledger.Budget{Epsilon: 2.5, Delta: 7e-6}
	most := uint64(0)
	for n := uint64(1); n < 20; n++ {
		eps, err := protocols.EpochsEpsilon(of.Task, lawOf(of), n, budget.Delta)
		if err == nil && eps <= budget.Epsilon {
			require.Equal(t, most+1, n)
			most = n
		}
	}
	require.Greater(t, most, uint64(5))
	all := make([]uint64, most+3)
	for i := range all {
		all[i] = uint64(i)
	}
	o := options(t.TempDir(), &budget)
	l := open(t, of, o)
	err := l.Charge(all)
	require.ErrorIs(t, err, ledger.ErrBudget)
	require.ErrorContains(t, err, "would make it epsilon 2.9")
	require.NoDirExists(t, filepath.Join(o.Folder, "*.ledger"), "Charge must charge all epochs or none")
	planned, refused, err := l.Plan(all)
	require.NoError(t, err)
	require.Equal(t, all[most:], refused)
	require.Zero(t, cost(t, l).Epochs, "Plan must charge nothing")
	refused, err = l.ChargeSome(all)
	require.NoError(t, err)
	require.Equal(t, all[most:], refused)
	require.Equal(t, planned, cost(t, l))
	require.LessOrEqual(t, *planned.Epsilon, budget.Epsilon)
	before, err := os.ReadFile(file(t, o))
	require.NoError(t, err)
	refused, err = l.ChargeSome(all)
	require.NoError(t, err)
	require.Equal(t, all[most:], refused)
	require.NoError(t, l.Charge(all[:most]), "charging epochs again must cost nothing")
	after, err := os.ReadFile(file(t, o))
	require.NoError(t, err)
	require.Equal(t, before, after, "refused epochs must not be written")
}

// TestBudgets: a task's claimed total must be its budget unless the operator states one. In a stream, that total must
// not be the stream's budget.
func TestBudgets(t *testing.T) {
	total := func(t *task.Task) {
		t.Claim.SetTotal("2.5", "7e-6")
		t.Epochs.Count = 7
	}
	require.Equal(t, &ledger.Budget{Epsilon: 2.5, Delta: 7e-6}, cost(t, open(t, counted(t, 1, total),
		options(t.TempDir(), nil))).Budget)
	stated := &ledger.Budget{Epsilon: 1, Delta: 1e-6}
	require.Equal(t, stated, cost(t, open(t, counted(t, 1, total), options(t.TempDir(), stated))).Budget)
	require.Nil(t, cost(t, open(t, counted(t, 1, total, inStream(0)), options(t.TempDir(), nil))).Budget)
	for _, bad := range []ledger.Budget{{0, 1e-6}, {-1, 1e-6}, {1, 0}, {1, 1}} {
		of := counted(t, 1)
		_, err := ledger.Open(of, lawOf(of), options(t.TempDir(), &bad))
		require.ErrorContains(t, err, "invalid total_", "%v", bad)
	}
}

// TestCapsCharge: epochs of a task with a cap cost what a browser's most reports in them cost, over the tasks of a
// stream and after the ledger is read again. A budget counts the same. A later task cannot have another cap.
func TestCapsCharge(t *testing.T) {
	limit := func(reports uint64) func(*task.Task) {
		return func(t *task.Task) {
			limit := task.Cap{Reports: reports, Window: 7}
			t.Epochs = task.Epochs{Start: 1_800_000_000, Length: 86400, Count: 10, Cap: limit}
		}
	}
	later := func(t *task.Task) { t.Epochs.Start += 10 * 86400 }
	o := options(t.TempDir(), nil)
	first, second := counted(t, 1, limit(2), inStream(0)), counted(t, 2, limit(2), inStream(1), later)
	o.Root, second.Stream.Before = first.ID, first.ID
	require.NoError(t, open(t, first, o).Charge([]uint64{9, 1, 2, 3})) // Two of 1, 2, 3; and 9.
	require.EqualValues(t, 3, cost(t, open(t, first, o)).Reports)
	require.NoError(t, open(t, second, o).Charge([]uint64{0, 1, 2})) // 9 and one of these, all within a week.
	for _, l := range []*ledger.Ledger{open(t, first, o), open(t, second, o)} {
		got := cost(t, l)
		require.EqualValues(t, 7, got.Epochs)
		require.EqualValues(t, 4, got.Reports)
		want, err := protocols.EpochsSpend(first.Task, lawOf(first), 4)
		require.NoError(t, err)
		require.Equal(t, want, compose.Spend{Epsilon: *got.Epsilon, Delta: got.Delta})
	}
	third := counted(t, 3, limit(3), inStream(2))
	require.ErrorContains(t, open(t, third, o).Charge([]uint64{0}), "first charged task")

	eps, err := protocols.EpochsEpsilon(first.Task, lawOf(first), 4, 7e-6)
	require.NoError(t, err)
	budget := &ledger.Budget{Epsilon: eps * (1 + 1e-9), Delta: 7e-6}
	alone := open(t, counted(t, 4, limit(2)), options(t.TempDir(), budget))
	require.NoError(t, alone.Charge([]uint64{0, 1, 2, 3, 4, 5, 6, 7, 8, 9}), "four reports, as in any two weeks")
	full := open(t, counted(t, 4, limit(3)), options(t.TempDir(), budget))
	refused, err := full.ChargeSome([]uint64{0, 1, 2, 3, 4, 5, 6, 7, 8, 9})
	require.NoError(t, err)
	require.Equal(t, []uint64{8, 9}, refused, "the first seven epochs have three reports")
}

// rare returns a task of a stream whose total covers rare events: two in any seven days, and 16 cells with a rest cell,
// or independent cells.
func rare(t *testing.T, id byte, rest bool, change ...func(*task.Task)) *taskfile.Open {
	draft, err := planner.Draft(planner.Query{Name: "test", Query: task.Histogram, Bins: 16, Labels: true,
		Batch: 10_000, Honest: 1, TotalEpsilon: 4, TotalDelta: 1e-6, Epochs: 10, Relays: &planner.RelayNoise{},
		Events: task.Events{Most: 2, Window: 7, Default: 5}})
	require.NoError(t, err)
	if !rest {
		draft.Noise = &task.Noise{Kind: task.NoiseCells, Cells: 16, Tables: draft.Noise.Tables}
	}
	draft.Epochs.Start, draft.Epochs.Length = 1_800_000_000, 86400
	for _, c := range change {
		c(draft)
	}
	return &taskfile.Open{Task: draft, ID: task.ID{id}}
}

// TestEventsCharge: published epochs of a task with events cost what a browser's most events in them cost, over the
// tasks of a stream and after the ledger is read again. A later task cannot have another limit, default or kind of
// noise.
func TestEventsCharge(t *testing.T) {
	for _, rest := range []bool{true, false} {
		o := options(t.TempDir(), nil)
		later := func(t *task.Task) { t.Epochs.Start += 10 * 86400 }
		first, second := rare(t, 1, rest, inStream(0)), rare(t, 2, rest, inStream(1), later)
		o.Root, second.Stream.Before = first.ID, first.ID
		copies := map[bool][]uint64{true: {2, 3, 5}, false: {3, 4, 6}}[rest]
		require.NoError(t, open(t, first, o).Charge([]uint64{1, 2, 3}))
		requireCopies(t, open(t, first, o), first, copies[0], 3)
		require.NoError(t, open(t, first, o).Charge([]uint64{9})) // More than a week after 1 and 2.
		requireCopies(t, open(t, first, o), first, copies[1], 4)
		require.NoError(t, open(t, second, o).Charge([]uint64{0, 6})) // Days 10 and 16.
		for _, l := range []*ledger.Ledger{open(t, first, o), open(t, second, o)} {
			requireCopies(t, l, first, copies[2], 6)
		}
		for _, other := range []*taskfile.Open{
			rare(t, 3, rest, inStream(2), func(t *task.Task) { t.Epochs.Events.Most = 1 }),
			rare(t, 3, rest, inStream(2), func(t *task.Task) { t.Epochs.Events.Default = 4 }),
			rare(t, 3, !rest, inStream(2)),
		} {
			require.ErrorContains(t, open(t, other, o).Charge([]uint64{0}), "events")
		}
	}
}

// requireCopies requires that a ledger charges a number of copies of the law of the stream's first task.
func requireCopies(t *testing.T, l *ledger.Ledger, first *taskfile.Open, copies, epochs uint64) {
	t.Helper()
	got := cost(t, l)
	require.Equal(t, []uint64{epochs, epochs}, []uint64{got.Epochs, got.Reports})
	require.Equal(t, copies, got.Copies)
	want, err := protocols.EpochsSpend(first.Task, lawOf(first), copies)
	require.NoError(t, err)
	require.Equal(t, want, compose.Spend{Epsilon: *got.Epsilon, Delta: got.Delta})
}

// TestStreamsShareALedger: the tasks of a stream must share one ledger, which refuses a task with more privacy loss
// than the first charged one.
func TestStreamsShareALedger(t *testing.T) {
	o := options(t.TempDir(), nil)
	first, second := counted(t, 1, inStream(0)), counted(t, 2, inStream(1))
	o.Root, second.Stream.Before = first.ID, first.ID
	require.NoError(t, open(t, first, o).Charge([]uint64{0, 1}))
	l := open(t, second, o)
	require.NoError(t, l.Charge([]uint64{0, 1, 2}))
	want, err := protocols.EpochsSpend(first.Task, lawOf(first), 5)
	require.NoError(t, err)
	require.EqualValues(t, 5, cost(t, l).Epochs)
	require.Equal(t, want.Epsilon, *cost(t, l).Epsilon)
	file(t, o)

	less := open(t, counted(t, 3, inStream(2), other(t, .9)), o)
	require.NoError(t, less.Charge([]uint64{0}))
	require.EqualValues(t, 6, cost(t, less).Epochs)
	for name, change := range map[string]func(*task.Task){
		"claim": other(t, 1.1),
		"law": func(draft *task.Task) {
			claim := draft.Claim
			other(t, 1.1)(draft)
			draft.Claim = claim // A task check would fail, but the ledger compares laws.
		},
	} {
		more := open(t, counted(t, 4, inStream(3), change), o)
		require.ErrorContains(t, more.Charge([]uint64{0}), "first charged task", name)
		require.EqualValues(t, 6, cost(t, open(t, second, o)).Epochs, name)
	}
	o.Root = task.ID{}
	alone := open(t, counted(t, 5), o)
	require.NoError(t, alone.Charge([]uint64{0}))
	require.EqualValues(t, 1, cost(t, alone).Epochs, "a task outside a stream must have its own ledger")
}

// TestHandedOnStreamKeepsItsLedger: all tasks of a stream must be charged to the ledger named for its first task,
// whoever signs them. Without a known first task, nothing may be charged.
func TestHandedOnStreamKeepsItsLedger(t *testing.T) {
	dir := t.TempDir()
	o := options(dir, nil)
	var line []*taskfile.Open
	for position := range byte(5) {
		one := counted(t, 1+position, inStream(uint64(position)))
		one.Owner = task.SignKey{position / 2}
		if position > 0 {
			one.Stream.Before = line[position-1].ID
		}
		line = append(line, one)
	}
	_, err := ledger.Open(line[2], lawOf(line[2]), o)
	require.ErrorIs(t, err, ledger.ErrNone)
	require.ErrorContains(t, err, "name the stream's first task")
	rooted := o
	rooted.Root = line[0].ID
	for i, position := range []int{2, 1, 0, 4} { // in any order
		require.NoError(t, open(t, line[position], rooted).Charge([]uint64{0}))
		require.EqualValues(t, i+1, cost(t, open(t, line[position], rooted)).Epochs)
	}
	require.Equal(t, line[0].ID.String()+".ledger", filepath.Base(file(t, o)))
	for _, position := range []int{0, 1, 2, 3, 4} {
		require.EqualValues(t, 4, cost(t, open(t, line[position], o)).Epochs, "a ledger lists it or its predecessor")
	}
	wrong := o
	wrong.Root = task.ID{77}
	for _, of := range line {
		_, err := ledger.Open(of, lawOf(of), wrong)
		require.ErrorContains(t, err, "invalid root")
	}
	unknown := counted(t, 9, inStream(7))
	unknown.Stream.Before = task.ID{8}
	_, err = ledger.Open(unknown, lawOf(unknown), o)
	require.ErrorIs(t, err, ledger.ErrNone)
	elsewhere := rooted
	elsewhere.Folder, elsewhere.Beside, elsewhere.Existing = t.TempDir(), filepath.Join(dir, "other"), true
	_, err = ledger.Open(line[1], lawOf(line[1]), elsewhere)
	require.ErrorIs(t, err, ledger.ErrNone, "Existing must not begin a ledger")

	raw, err := os.ReadFile(file(t, o))
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(file(t, o), raw[:len(raw)-1], 0o600))
	_, err = ledger.Open(line[3], lawOf(line[3]), o)
	require.ErrorContains(t, err, "which may be this stream's: it is cut short")
	other := counted(t, 50, inStream(0))
	_, err = ledger.Open(other, lawOf(other), o)
	require.ErrorContains(t, err, "which may be this stream's")
}

// TestRestoredLedgerIsNotLaundered: a ledger is rolled back, and then charged by a verifier that has no mark or an
// older one. Verifiers that know the lost charges must refuse it, however often it is charged.
func TestRestoredLedgerIsNotLaundered(t *testing.T) {
	of := counted(t, 1)
	o := options(t.TempDir(), nil)
	for epoch := range uint64(4) {
		require.NoError(t, open(t, of, o).Charge([]uint64{epoch}))
	}
	path := file(t, o)
	old, err := os.ReadFile(path)
	require.NoError(t, err)
	running := open(t, of, o)
	require.NoError(t, running.Charge([]uint64{4}))
	kept, err := os.ReadFile(path)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(path, old, 0o600))
	other := o
	other.Beside += ".other"
	for epoch := uint64(5); epoch < 8; epoch++ {
		require.NoError(t, open(t, of, other).Charge([]uint64{epoch}))
		_, err = ledger.Open(of, lawOf(of), o)
		require.ErrorIs(t, err, ledger.ErrRolledBack)
		require.ErrorContains(t, err, "was rolled back and charged again: its charge 5 differs")
		require.ErrorIs(t, running.Charge([]uint64{9}), ledger.ErrRolledBack)
	}
	require.NoError(t, os.WriteFile(path, kept, 0o600))
	_, err = ledger.Open(of, lawOf(of), other)
	require.ErrorIs(t, err, ledger.ErrRolledBack)
	require.NoError(t, os.Remove(other.Beside+"."+filepath.Base(path)[:16]+".ledger.mark"))
	require.NoError(t, open(t, of, other).Charge([]uint64{5}))
	require.NoError(t, running.Charge([]uint64{6}), "later charges by other verifiers must be accepted")
	require.EqualValues(t, 7, cost(t, open(t, of, o)).Epochs)
}

// TestNoLedgerIsBegunAnew: a verifier must refuse a ledger that is missing, rolled back, damaged or another's, and must
// not begin a new one. The error must name the cause.
func TestNoLedgerIsBegunAnew(t *testing.T) {
	of := counted(t, 1)
	o := options(t.TempDir(), nil)
	require.NoError(t, open(t, of, o).Charge([]uint64{0}))
	path := file(t, o)
	old, err := os.ReadFile(path)
	require.NoError(t, err)
	running := open(t, of, o)
	require.NoError(t, running.Charge([]uint64{1}))
	good, err := os.ReadFile(path)
	require.NoError(t, err)
	otherwise := options(t.TempDir(), nil)
	require.NoError(t, open(t, of, otherwise).Charge([]uint64{0, 1, 2}))
	another, err := os.ReadFile(file(t, otherwise))
	require.NoError(t, err)
	text := string(good)
	for want, raw := range map[string]string{
		"was rolled back: it has 1 charges, but":         string(old),
		"is not the ledger that":                         string(another),
		"it is cut short":                                text[:len(text)-1],
		`it does not begin with "doona-ledger"`:          "",
		"its content does not match its hash":            strings.Replace(text, "1", "2", -1)[:0] + flip(text),
		"it has version 1, want 2":                       strings.Replace(text, "doona-ledger 2", "doona-ledger 1", 1),
		"its first line does not have 4 fields":          strings.Replace(text, "doona-ledger 2", "doona-ledger 2 1", 1),
		"damaged: its content does not match its hash":   text + "\n",
		`damaged: it does not begin with "doona-ledger"`: "\x00" + text,
		"its history does not match its content":         edited(text, `"epsilon": "1"`, `"epsilon": ".5"`),
		"its history does not have one link per charge":  edited(text, `"generation": 2`, `"generation": 3`),
		"damaged: its first line has no length":          strings.Replace(text, "doona-ledger 2 ", "doona-ledger 2 x", 1),
	} {
		require.NoError(t, os.WriteFile(path, []byte(raw), 0o600))
		_, err := ledger.Open(of, lawOf(of), o)
		require.ErrorContains(t, err, want)
		require.ErrorContains(t, running.Charge([]uint64{2}), want, "a running process must reread the ledger")
		got, err := os.ReadFile(path)
		require.NoError(t, err)
		require.Equal(t, raw, string(got), "the file must stay as it is for the operator")
	}
	require.NoError(t, os.Remove(path))
	_, err = ledger.Open(of, lawOf(of), o)
	require.ErrorIs(t, err, ledger.ErrRolledBack)
	require.ErrorContains(t, err, "is gone")
	require.ErrorIs(t, running.Charge([]uint64{2}), ledger.ErrRolledBack)
	elsewhere := o
	elsewhere.Folder = t.TempDir()
	_, err = ledger.Open(of, lawOf(of), elsewhere)
	require.ErrorContains(t, err, "name its folder")

	require.NoError(t, os.WriteFile(path, good, 0o600))
	l := open(t, of, o)
	require.NoError(t, l.Charge([]uint64{0, 1, 2}))
	require.EqualValues(t, 3, cost(t, l).Epochs)

	renamed := counted(t, 7)
	require.NoError(t, os.Rename(path, filepath.Join(o.Folder, renamed.ID.String()+".ledger")))
	_, err = ledger.Open(renamed, lawOf(renamed), o)
	require.ErrorContains(t, err, "it belongs to another stream")
}

// edited replaces something in a ledger's document, and makes the header line fit.
func edited(text, old, by string) string {
	_, body, _ := strings.Cut(text, "\n")
	body = strings.Replace(body, old, by, 1)
	return fmt.Sprintf("doona-ledger 2 %d %x\n%s", len(body), sha256.Sum256([]byte(body)), body)
}

// flip changes a digit after the first line, so that the header's hash is wrong.
func flip(text string) string {
	at := strings.Index(text, `"generation": `) + len(`"generation": `)
	return text[:at] + "9" + text[at+1:]
}

// TestKilledAtEveryWrite kills a verifier, or cuts its power, at each of its writes. Every epoch that it published must
// be charged, once.
func TestKilledAtEveryWrite(t *testing.T) {
	faultdisk.Install()
	of := counted(t, 1)
	law := lawOf(of)
	random := rand.New(rand.NewPCG(1, 2))
	kills, cuts := 0, 0
	for after := 1; ; after++ {
		dir := t.TempDir()
		disk := faultdisk.New(dir)
		require.NoError(t, disk.Record())
		o := options(dir, nil)
		first, err := ledger.Open(of, law, o)
		require.NoError(t, err)
		require.NoError(t, first.Charge([]uint64{0}))
		published := []uint64{0}
		killed := false
		disk.Stop(after, func() { killed = true })
		if l, err := ledger.Open(of, law, o); err == nil {
			for epoch := uint64(1); epoch < 3; epoch++ {
				if l.Charge([]uint64{epoch}) == nil {
					published = append(published, epoch)
				}
			}
		}
		steps := disk.Steps()
		disk.Remove()
		if !killed {
			require.Len(t, published, 3)
			break
		}
		kills++
		places := []string{dir}
		for range 4 {
			into := t.TempDir()
			require.NoError(t, disk.Cut(steps, random, into))
			places = append(places, into)
			cuts++
		}
		for _, place := range places {
			o := options(place, nil)
			l, err := ledger.Open(of, law, o)
			require.NoError(t, err, "killed at write %d", after)
			planned, _, err := l.Plan(published)
			require.NoError(t, err)
			require.Equal(t, cost(t, l).Epochs, planned.Epochs, "all published epochs must be charged")
			require.LessOrEqual(t, planned.Epochs, uint64(len(published))+1, "at most one other epoch may be charged")
			require.NoError(t, l.Charge([]uint64{0, 1, 2}))
			require.EqualValues(t, 3, cost(t, l).Epochs, "each epoch must be charged once")
		}
	}
	require.Greater(t, kills, 10)
	t.Logf("killed at each of %d writes, %d power cuts", kills, cuts)
}

// TestManyAtOnce: verifiers that charge one ledger concurrently must never exceed its budget.
func TestManyAtOnce(t *testing.T) {
	of := counted(t, 1)
	o := options(t.TempDir(), &ledger.Budget{Epsilon: 2.5, Delta: 7e-6})
	var mu sync.Mutex
	var charged []uint64
	var wg sync.WaitGroup
	for i := range uint64(12) {
		l := open(t, of, o)
		wg.Go(func() {
			for _, epochs := range [][]uint64{{i}, {11 - i}} {
				refused, err := l.ChargeSome(epochs)
				if !assert.NoError(t, err) {
					return
				}
				if len(refused) == 0 {
					mu.Lock()
					charged = append(charged, epochs...)
					mu.Unlock()
				}
			}
		})
	}
	wg.Wait()
	slices.Sort(charged)
	charged = slices.Compact(charged)
	l := open(t, of, o)
	require.EqualValues(t, len(charged), cost(t, l).Epochs, fmt.Sprint(charged))
	require.LessOrEqual(t, *cost(t, l).Epsilon, 2.5)
	refused, err := l.ChargeSome([]uint64{100})
	require.NoError(t, err)
	require.Len(t, refused, 1, "want a budget that is used up")
}
