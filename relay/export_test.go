package relay

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"iter"
	"net/http"
	"net/netip"
	"reflect"
	"sync"
	"sync/atomic"

	"github.com/doona-dp/doona/internal/service"
	"github.com/doona-dp/doona/randomizer"
	"github.com/doona-dp/doona/relay/internal/store"
	"github.com/doona-dp/doona/relay/internal/tasks"
	"github.com/doona-dp/doona/wire/problem"
	"github.com/doona-dp/doona/wire/task"
)

// ClientNetwork returns the network under which the relay counts the client of a request, for the given trusted
// proxies.
func ClientNetwork(r *http.Request, header string, trusted ...string) (netip.Prefix, error) {
	networks, err := service.ParseNetworks("trusted_proxies", trusted)
	p := service.Proxies{Trusted: networks, Header: header}
	return service.Network(p.Client(r)), err
}

// LimitPages limits a relay's store to n pages, to imitate a full disk. A store that already has n pages cannot grow. n
// = 0 lifts the limit.
func LimitPages(r *Relay, n int) error {
	return r.store.LimitPages(n)
}

// DrawFrom makes a relay draw the dummies of its first task with the function draw. Call it before Run.
func DrawFrom(r *Relay, draw func(*randomizer.Source) ([]uint64, error)) {
	r.Hosted().Order[0].Draw = draw
}

// Counted counts the answers of a handler as those of the handler of reports.
func Counted(r *Relay, handle service.Handler) service.Handler { return r.counted(handle, false) }

// Patterns lists the patterns of the requests that a relay answers.
func Patterns(r *Relay) []string { return r.mux().Patterns }

// Kept counts the entries that a relay keeps in memory about epochs and requests.
func Kept(r *Relay) (n int) {
	for _, s := range r.Hosted().Order {
		mu := hidden(s, "mu").Addr().Interface().(*sync.Mutex)
		mu.Lock()
		n += kept(s)
		mu.Unlock()
		n += kept(&s.Made) + kept(&s.Taken)
	}
	for _, p := range hidden(r.mixing, "polls", "of").Seq2() {
		n += kept(p.Interface())
	}
	for _, nonces := range Rings(r) {
		n += nonces
	}
	return n + kept(r.monitor)
}

// hidden returns an unexported field of a stage, found by the field names in path.
func hidden(of any, path ...string) reflect.Value {
	v := reflect.Indirect(reflect.ValueOf(of))
	for _, name := range path {
		v = reflect.Indirect(v.FieldByName(name))
	}
	return reflect.NewAt(v.Type(), v.Addr().UnsafePointer()).Elem()
}

// kept counts the entries of all maps that are direct fields of a value.
func kept(of any) (n int) {
	v := reflect.Indirect(reflect.ValueOf(of))
	for i := range v.NumField() {
		if f := v.Field(i); f.Kind() == reflect.Map {
			n += f.Len()
		}
	}
	return n
}

// Poison makes a relay record a state rollback in any epoch of its first task, as an earlier version without bounds did
// after a pull.
func Poison(r *Relay, epoch, seq uint64) error {
	b := r.Hosted().Order[0].Epoch(epoch).Ref(seq)
	b.SetRolledBack()
	return r.epochs.Note(context.Background(), b, tasks.FindRolledBack)
}

// MadeBetween makes a relay find a batch's manifest only at the second query, as if the batch were made while the relay
// answers a request. Call it before Run.
func MadeBetween(r *Relay) {
	made := &madeBetween{Store: r.store}
	r.stores.Mixes, r.stores.Epochs, r.stores.Handout = made, made, made
	r.use(r.stores, r.clock)
}

type madeBetween struct {
	*store.Store
	queried sync.Map // epochs and numbers of batches
}

func (m *madeBetween) Manifest(ctx context.Context, b store.BatchID) ([]byte, bool, error) {
	if _, again := m.queried.LoadOrStore(fmt.Sprint(b.Epoch, " ", b.Seq), true); !again {
		return nil, false, store.ErrNoBatch
	}
	return m.Store.Manifest(ctx, b)
}

// HoldSealing makes a relay hang whenever it seals a batch of the held epochs. Call it before Run.
func HoldSealing(r *Relay, held func(epoch uint64) bool) {
	r.stores.Seals = &holding{r.store, held}
	r.use(r.stores, r.clock)
}

type holding struct {
	*store.Store
	held func(epoch uint64) bool
}

func (h *holding) Seal(ctx context.Context, b store.BatchID, build store.SealFunc) error {
	if h.held(b.Epoch) {
		<-ctx.Done()
		return ctx.Err()
	}
	return h.Store.Seal(ctx, b, build)
}

func (h *holding) SealWithheld(ctx context.Context, b store.BatchID, build store.SealFunc) error {
	if h.held(b.Epoch) {
		<-ctx.Done()
		return ctx.Err()
	}
	return h.Store.SealWithheld(ctx, b, build)
}

// FillHandouts uses up a relay's memory for batches being sent, by a batch of its first task, until free is called.
func FillHandouts(r *Relay) (free func()) {
	mu := hidden(r.handout, "handouts", "mu").Addr().Interface().(*sync.Mutex)
	set := func(bytes int64, batches map[*tasks.Hosted]int) {
		mu.Lock()
		defer mu.Unlock()
		hidden(r.handout, "handouts", "bytes").SetInt(bytes)
		hidden(r.handout, "handouts", "tasks").Set(reflect.ValueOf(batches))
	}
	set(64<<20, map[*tasks.Hosted]int{r.Hosted().Order[0]: 1})
	return func() { set(0, nil) }
}

// FailSeals makes every sealing of a task's batches fail, as if the store failed. Call it before Run.
func FailSeals(r *Relay, task task.ID) {
	r.stores.Seals = failingSeals{r.store, task}
	r.use(r.stores, r.clock)
}

type failingSeals struct {
	*store.Store
	task task.ID
}

func (f failingSeals) Seal(ctx context.Context, b store.BatchID, build store.SealFunc) error {
	if b.Task == f.task {
		return errors.New("as the test asked")
	}
	return f.Store.Seal(ctx, b, build)
}

func (f failingSeals) SealWithheld(ctx context.Context, b store.BatchID, build store.SealFunc) error {
	if b.Task == f.task {
		return errors.New("as the test asked")
	}
	return f.Store.SealWithheld(ctx, b, build)
}

// SealSlowly makes the sealing of each batch wait until the relay has reconciled with its store twice. Call it before
// Run.
func SealSlowly(r *Relay) {
	slow := &slowSeals{Store: r.store, reconciled: make(chan struct{})}
	r.stores.Seals, r.stores.Whole = slow, slow
	r.use(r.stores, r.clock)
}

type slowSeals struct {
	*store.Store
	reconciled chan struct{}
}

func (s *slowSeals) Reconcile(ctx context.Context) ([]store.Progress, error) {
	select {
	case s.reconciled <- struct{}{}:
	default:
	}
	return s.Store.Reconcile(ctx)
}

func (s *slowSeals) Seal(ctx context.Context, b store.BatchID, build store.SealFunc) error {
	return s.Store.Seal(ctx, b, s.slow(ctx, build))
}

func (s *slowSeals) SealWithheld(ctx context.Context, b store.BatchID, build store.SealFunc) error {
	return s.Store.SealWithheld(ctx, b, s.slow(ctx, build))
}

func (s *slowSeals) slow(ctx context.Context, build store.SealFunc) store.SealFunc {
	return func(n uint64, rows iter.Seq2[store.Row, error], put store.Put) (*store.Made, error) {
		for range 2 {
			select {
			case <-s.reconciled:
			case <-ctx.Done():
			}
		}
		return build(n, rows, put)
	}
}

// Advice returns what the relay says about each problem that most reports may get.
func Advice() map[problem.Name]string { return advice }

// Scratch returns the folder in which a relay permutes large batches.
func Scratch(r *Relay) string { return r.cfg.Scratch }

// RetryMixes makes every second mix fail before its last transaction, as if the database server was gone. Call it
// before Run.
func RetryMixes(r *Relay) {
	r.stores.Mixes = &retriedMixes{Store: r.store}
	r.use(r.stores, r.clock)
}

type retriedMixes struct {
	*store.Store
	failed bool
}

func (m *retriedMixes) Mix(
	ctx context.Context, b store.BatchID, tags []store.Short, build store.MixFunc,
) error {
	return m.Store.Mix(ctx, b, tags, m.everySecond(build))
}

func (m *retriedMixes) MixWithheld(
	ctx context.Context, b store.BatchID, tags []store.Short, build store.MixFunc,
) error {
	return m.Store.MixWithheld(ctx, b, tags, m.everySecond(build))
}

// everySecond makes the first of every two mixes fail.
func (m *retriedMixes) everySecond(build store.MixFunc) store.MixFunc {
	return func(fresh *store.Fresh, put store.Put) (*store.Made, error) {
		made, err := build(fresh, put)
		if m.failed = !m.failed; m.failed {
			return nil, errors.Join(err, errors.New("as the test asked"))
		}
		return made, err
	}
}

// SpillAt sets the size in bytes above which a relay permutes a batch in a file.
func SpillAt(r *Relay, memory int) { r.maker.Memory = memory }

// HasEpochKey reports whether a relay still has the key with which it recognizes the clients of an epoch.
func HasEpochKey(r *Relay, task task.ID, epoch uint64) bool {
	_, err := r.vault.EpochKey(store.EpochID{Task: task, Epoch: epoch})
	return err == nil
}

// FreeMemory returns how many bytes of MaxMemory are not reserved.
func FreeMemory(r *Relay) int64 { return int64(r.cfg.MaxMemory) - r.ingress.Load().Bytes }

// Unencrypted makes a relay store the reports of a task's first batch in epoch 0 without encryption, until it seals the
// batch.
func Unencrypted(r *Relay, task task.ID) { r.vault.Unencrypted(store.EpochID{Task: task}.Batch(0)) }

// Decryptable reports which parts of a batch of epoch 0 a secret file can still decrypt: the rows of its reports, and
// the sealed batch.
func Decryptable(secret string, task task.ID, seq uint64) (rows, sealed bool, err error) {
	v, err := store.OpenVault(secret)
	if err != nil {
		return false, false, err
	}
	rows, sealed = v.Holds(store.EpochID{Task: task}.Batch(seq))
	return rows, sealed, nil
}

// Submissions counts the submissions in a task's open batches in a store.
func Submissions(cfg Config, task task.ID) (n uint64, err error) {
	s, err := store.Read(cfg.Store)
	if err != nil {
		return 0, err
	}
	defer s.Close()
	all, err := s.Progress(context.Background())
	for _, p := range all {
		for _, b := range p.Open {
			if b.Task == task {
				n += b.Submissions
			}
		}
	}
	return n, err
}

// Tables counts the tables in a PostgreSQL database.
func Tables(url string) (n int, err error) {
	db, err := sql.Open("pgx", url)
	if err != nil {
		return 0, err
	}
	defer db.Close()
	return n, db.QueryRow(`SELECT COUNT(*) FROM pg_tables WHERE schemaname = 'public'`).Scan(&n)
}

// Fence marks all processes in a PostgreSQL database as fenced: as excluded by other processes, which no longer exist.
func Fence(url string) error {
	db, err := sql.Open("pgx", url)
	if err != nil {
		return err
	}
	defer db.Close()
	_, err = db.Exec(`UPDATE processes SET standing = 1`)
	return err
}

// DestroyedBefore makes a relay count n more batches of every epoch as destroyed than it has.
func DestroyedBefore(r *Relay, n uint64) {
	r.stores.Mixes = &destroyedBefore{r.store, n}
	r.use(r.stores, r.clock)
}

type destroyedBefore struct {
	*store.Store
	n uint64
}

func (d *destroyedBefore) Destroyed(ctx context.Context, id store.EpochID) (uint64, error) {
	n, err := d.Store.Destroyed(ctx, id)
	return n + d.n, err
}

// BatchLimit returns a number that takes a relay's limit on batches per epoch when the relay passes a report to its
// store.
func BatchLimit(r *Relay) *atomic.Uint64 {
	t := &limitRecorder{Store: r.store}
	r.stores.Ingress = t
	r.use(r.stores, r.clock)
	return &t.batches
}

type limitRecorder struct {
	*store.Store
	batches atomic.Uint64
}

func (t *limitRecorder) Commit(ctx context.Context, group []*store.Submission) (bool, error) {
	t.batches.Store(group[0].Batches)
	return t.Store.Commit(ctx, group)
}

// HangCommits makes a relay's commits of reports wait until goOn is called. Call it before Run.
func HangCommits(r *Relay) (goOn func()) {
	h := &hangingCommits{Store: r.store, hangs: make(chan struct{})}
	r.stores.Ingress = h
	r.use(r.stores, r.clock)
	return sync.OnceFunc(func() { close(h.hangs) })
}

type hangingCommits struct {
	*store.Store
	hangs chan struct{}
}

func (h *hangingCommits) Commit(ctx context.Context, group []*store.Submission) (bool, error) {
	<-h.hangs
	return h.Store.Commit(ctx, group)
}

// RowBytes returns the number of rows, and the bytes in them, of each table in an SQLite store.
func RowBytes(path string) (rows, bytes map[string]int, err error) {
	db, err := sql.Open("sqlite", path)
	if err != nil {
		return nil, nil, err
	}
	defer db.Close()
	rows, bytes = map[string]int{}, map[string]int{}
	columns, err := db.Query(`SELECT m.name, group_concat('coalesce(length(CAST("' || p.name || '" AS BLOB)), 0)', ' + ')
		FROM sqlite_master m, pragma_table_info(m.name) p WHERE m.type = 'table' GROUP BY m.name`)
	if err != nil {
		return nil, nil, err
	}
	defer columns.Close()
	for columns.Next() {
		var table, sum string
		var n, size int
		if err := columns.Scan(&table, &sum); err != nil {
			return nil, nil, err
		}
		if err := db.QueryRow(`SELECT count(*), coalesce(sum(`+sum+`), 0) FROM `+table).Scan(&n, &size); err != nil {
			return nil, nil, err
		}
		rows[table], bytes[table] = n, size
	}
	return rows, bytes, columns.Err()
}

// Rings returns how many nonces a relay remembers in each ring buffer, by the ring's key.
func Rings(r *Relay) map[task.SignKey]int {
	mu := hidden(r.host, "nonces", "mu").Addr().Interface().(*sync.Mutex)
	mu.Lock()
	defer mu.Unlock()
	n := map[task.SignKey]int{}
	for key, ring := range hidden(r.host, "nonces", "hops").Seq2() {
		n[key.Interface().(task.SignKey)] = hidden(ring.Interface(), "seen").Len()
	}
	return n
}

// NonceRows counts the stored nonces in a PostgreSQL database.
func NonceRows(url string) (n int, err error) {
	db, err := sql.Open("pgx", url)
	if err != nil {
		return 0, err
	}
	defer db.Close()
	return n, db.QueryRow(`SELECT COUNT(*) FROM nonces`).Scan(&n)
}

// Times are what a series of metrics shows of its tasks.
type Times = times

// NewTimes returns times of a task: of the last answer, of the last request, and of its end.
func NewTimes(pulled, asked, over int64) Times { return times{pulled, asked, over} }

// CombineTimes returns the times of a series of two tasks.
func CombineTimes(one, other Times, now int64) Times { return one.with(other, now) }
