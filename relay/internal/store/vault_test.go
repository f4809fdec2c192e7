package store

import (
	"database/sql"
	"fmt"
	"math"
	"path/filepath"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/stretchr/testify/require"

	"github.com/doona-dp/doona/internal/service"
	"github.com/doona-dp/doona/relay/internal/keytree"
)

// raw opens a store's database directly.
func raw(t *testing.T, description string) *sql.DB {
	t.Helper()
	driver, dsn := "pgx", description
	if path, ok := strings.CutPrefix(description, service.SchemeSQLite); ok {
		driver, dsn = "sqlite", path
	}
	db, err := sql.Open(driver, dsn)
	require.NoError(t, err)
	t.Cleanup(func() { db.Close() })
	return db
}

// TestSchema: processes that start at once must create the tables once. Writers and readers must refuse a store with an
// unknown or too old schema version, and name the version.
func TestSchema(t *testing.T) {
	for engine, description := range map[string]string{"sqlite": service.SchemeSQLite +
		filepath.Join(t.TempDir(), "relay.db"), "postgres": ""} {
		t.Run(engine, func(t *testing.T) {
			if engine == "postgres" {
				description = postgresURL(t)
			}
			v, err := OpenOrCreateVault(filepath.Join(t.TempDir(), "secret"))
			require.NoError(t, err)
			now, err := readSchema(migrations, engine)
			require.NoError(t, err)
			setVersion := map[string]string{"sqlite": "PRAGMA user_version = %d",
				"postgres": "UPDATE schema_version SET version = %d"}[engine]
			opened := make(chan error, 4)
			for range cap(opened) {
				go func() {
					s, err := openBeside(description, v)
					if err == nil {
						err = s.Tally(t.Context(), testEpoch, map[string]uint64{"limit": 2})
						s.Close()
					}
					opened <- err
				}()
			}
			for range cap(opened) {
				require.NoError(t, <-opened)
			}
			s, err := Read(description)
			require.NoError(t, err)
			defer s.Close()
			tallies, err := s.Tallies(t.Context())
			require.NoError(t, err)
			require.Equal(t, []Tally{{testEpoch, "limit", 8}}, tallies)
			require.Error(t, s.Tally(t.Context(), testEpoch, map[string]uint64{"limit": 2}), "it must be read-only")

			db := raw(t, description)
			for version, want := range map[int]string{
				now.latest() + 1: fmt.Sprintf("schema version %d is unknown: this program knows versions up to %d; use a newer",
					now.latest()+1, now.latest()),
				now.oldest - 1: fmt.Sprintf("schema version %d is too old: this program knows versions from %d on",
					now.oldest-1, now.oldest),
				1: "schema version 1 is too old: this program knows versions from",
			} {
				_, err = db.Exec(fmt.Sprintf(setVersion, version))
				require.NoError(t, err)
				_, err = Open(description, v, Process{})
				require.ErrorContains(t, err, want)
				_, err = Read(description)
				require.ErrorContains(t, err, want)
			}
		})
	}
}

// TestMigrate: a store of an earlier version must get the missing steps, once. A read-only store of an earlier version
// must be an error.
func TestMigrate(t *testing.T) {
	v, err := OpenOrCreateVault(filepath.Join(t.TempDir(), "secret"))
	require.NoError(t, err)
	for engine, description := range map[string]string{"sqlite": service.SchemeSQLite +
		filepath.Join(t.TempDir(), "relay.db"), "postgres": postgresURL(t)} {
		t.Run(engine, func(t *testing.T) {
			s, err := openBeside(description, v)
			require.NoError(t, err)
			defer s.Close()
			d := s
			next, err := readSchema(migrations, engine)
			require.NoError(t, err)
			before := next.latest()
			next.steps = append(next.steps, `CREATE TABLE later (id INTEGER)`, `INSERT INTO later VALUES (7)`)
			migrate := func(d *Store, version int) error {
				return d.within(t.Context(), func(tx *transaction) error { return d.migrate(tx, next, version) })
			}
			require.NoError(t, migrate(d, before))
			require.NoError(t, migrate(d, before+2), "no step is missing any more")
			require.ErrorContains(t, migrate(d, before), fmt.Sprintf("couldn't upgrade the schema to version %d", before+1))
			var rows int
			require.NoError(t, d.read.QueryRow(`SELECT COUNT(*) FROM later`).Scan(&rows))
			require.Equal(t, 1, rows)
			reader, err := Read(description)
			require.NoError(t, err)
			defer reader.Close()
			require.ErrorContains(t, migrate(reader, before),
				fmt.Sprintf("schema version %d must be upgraded to %d: start the relay once", before, before+2))
		})
	}
	_, err = readSchema(fstest.MapFS{"migrations/x/0011_a.sql": {}, "migrations/x/0013_b.sql": {}}, "x")
	require.ErrorContains(t, err, "step migrations/x/0013_b.sql is not number 12")
}

// TestDurable: a server that acknowledges a commit before it is on disk must be refused.
func TestDurable(t *testing.T) {
	v, err := OpenOrCreateVault(filepath.Join(t.TempDir(), "secret"))
	require.NoError(t, err)
	url := postgresURL(t)
	for _, value := range []string{"off", "local"} {
		_, err := Open(url+"&synchronous_commit="+value, v, Process{})
		require.ErrorContains(t, err, "invalid setting synchronous_commit = "+value)
	}
	for _, value := range []string{"on", "remote_apply"} {
		s, err := Open(url+"&synchronous_commit="+value, v, Process{})
		require.NoError(t, err)
		s.Close()
	}
	_, err = raw(t, url).Exec(
		`DO $$ BEGIN EXECUTE format('ALTER DATABASE %I SET default_transaction_isolation = serializable', current_database()); END $$`)
	require.NoError(t, err)
	s, err := Open(url, v, Process{})
	require.NoError(t, err)
	defer s.Close()
	require.NoError(t, s.within(t.Context(), func(tx *transaction) error {
		var isolation string
		err := tx.row("SHOW transaction_isolation").Scan(&isolation)
		require.Equal(t, "read committed", isolation, "the database's default must not count")
		return err
	}))
	_, err = Open(url+"&default_transaction_isolation=serializable", v, Process{})
	require.ErrorContains(t, err, "invalid setting default_transaction_isolation = serializable")
	for _, bad := range []string{"postgres://u:hush@127.0.0.1:1/x?connect_timeout=1", "postgres://u:hush@[::1/x"} {
		_, err := Open(bad, v, Process{})
		require.ErrorContains(t, err, "couldn't open the store")
		require.NotContains(t, err.Error(), "hush")
	}
}

// TestNothingIsCompiled: PostgreSQL must not JIT-compile a statement that reads a whole table, even if its estimated
// cost is high.
func TestNothingIsCompiled(t *testing.T) {
	v, err := OpenOrCreateVault(filepath.Join(t.TempDir(), "secret"))
	require.NoError(t, err)
	plan := func(url string) string {
		s, err := Open(url, v, Process{})
		require.NoError(t, err)
		defer s.Close()
		rows, err := s.read.Query(`EXPLAIN (ANALYZE) SELECT task, epoch, next FROM epochs`)
		require.NoError(t, err)
		defer rows.Close()
		var lines []string
		for rows.Next() {
			var line string
			require.NoError(t, rows.Scan(&line))
			lines = append(lines, line)
		}
		require.NoError(t, rows.Err())
		return strings.Join(lines, "\n")
	}
	url := postgresURL(t)
	require.NotContains(t, plan(url), "JIT")
	var could bool
	require.NoError(t, raw(t, url).QueryRow(`SELECT 'on' = ALL (SELECT setting FROM pg_settings WHERE name = 'jit')
		AND pg_jit_available()`).Scan(&could))
	require.Equal(t, could, strings.Contains(plan(url+"&jit=on"), "JIT"), "with jit=on, it must compile if it can")
}

// TestVaultDestroysUnneeded: the vault must destroy the keys of finished epochs and batches, in whatever order these
// finish, and no others. A vault that missed all earlier calls, as after a crash, must catch up.
func TestVaultDestroysUnneeded(t *testing.T) {
	path := filepath.Join(t.TempDir(), "secret")
	v, err := OpenOrCreateVault(path)
	require.NoError(t, err)
	id, other := testEpoch, EpochID{testEpoch.Task, 4}
	batch := func(seq uint64) OpenBatch { return OpenBatch{id.Batch(seq), 1} }
	tests := []struct {
		p            Progress
		rows, sealed string // numbers of the batches, of 0 to 4, whose keys remain
		epoch        bool
	}{
		{Progress{ID: id}, "01234", "01234", true},
		{Progress{ID: id, Next: 2, Open: []OpenBatch{batch(0), batch(1)}}, "01234", "01234", true},
		{Progress{ID: id, Next: 3, Open: []OpenBatch{batch(0), batch(2)}, Held: []uint64{1}}, "0234", "01234", true},
		{Progress{ID: id, Next: 4, Open: []OpenBatch{batch(3)}, Held: []uint64{0, 2}}, "34", "0234", true},
		{Progress{ID: id, Next: 4, Held: []uint64{0}, State: StateComplete}, "4", "04", true},
		{Progress{ID: id, Next: 4, Held: []uint64{0}, State: StateErased}, "", "04", false},
		{Progress{ID: id, Next: 4, State: StateErased}, "", "", false},
	}
	left := func(v *Vault, kind keytree.Label) (out string) {
		for seq := range uint64(5) {
			_, err := v.batchCipher(kind, id.Batch(seq))
			if err == nil {
				out += fmt.Sprint(seq)
				continue
			}
			require.ErrorIs(t, err, ErrDestroyed)
		}
		return out
	}
	for i, tt := range tests {
		require.NoError(t, v.DestroyUnneeded([]Progress{tt.p,
			{ID: other, Next: 1, Open: []OpenBatch{{other.Batch(0), 1}}}}))
		late, err := OpenOrCreateVault(filepath.Join(t.TempDir(), "secret"))
		require.NoError(t, err)
		require.NoError(t, late.DestroyUnneeded([]Progress{tt.p}))
		fromDisk, err := OpenVault(path)
		require.NoError(t, err)
		for _, v := range []*Vault{v, fromDisk, late} {
			require.Equal(t, tt.rows, left(v, kindRows), "step %d", i)
			require.Equal(t, tt.sealed, left(v, kindSealed), "step %d", i)
			_, err := v.EpochKey(id)
			require.Equal(t, tt.epoch, err == nil, "step %d", i)
		}
		_, err = v.batchCipher(kindRows, other.Batch(0))
		require.NoError(t, err)
	}
}

// TestQuota: a client's quota must be uniform in q to 2q−1, and depend only on the epoch's key and the client.
func TestQuota(t *testing.T) {
	key, other := newEpochKey([]byte("an epoch's key")), newEpochKey([]byte("another's"))
	const quota, clients = 4, 4000
	counts, differ := map[uint64]int{}, 0
	for i := range clients {
		client := number8(i)
		n := key.Quota(client, quota)
		require.Equal(t, n, newEpochKey([]byte("an epoch's key")).Quota(client, quota))
		counts[n]++
		if n != other.Quota(client, quota) {
			differ++
		}
		require.EqualValues(t, 1, key.Quota(client, 1))
	}
	require.Len(t, counts, quota)
	for n := uint64(quota); n < 2*quota; n++ {
		require.InDelta(t, clients/quota, counts[n], 150, "n = %d: 5.5 standard deviations", n)
	}
	require.InDelta(t, clients*(quota-1)/quota, differ, 150)
}

// TestSealNeedsItsKey: if the key of a batch's rows is destroyed, the store must make no batch of them and accept no
// more rows.
func TestSealNeedsItsKey(t *testing.T) {
	eachStore(t, func(t *testing.T, open func() *Store) {
		s := open()
		verdicts(t, s, aSubmission(1, 1))
		require.NoError(t, s.vault.destroy(testEpoch.Batch(0).label(kindRows)))
		require.ErrorIs(t, s.Seal(t.Context(), testEpoch.Batch(0), nil), ErrDestroyed)
		_, err := s.Commit(t.Context(), []*Submission{aSubmission(2, 2)})
		require.ErrorIs(t, err, ErrDestroyed)
		require.Len(t, progressOf(t, s, testEpoch).Open, 1)
	})
}

// TestDestroyedAmidUse: if a key is destroyed while its data are read, the error must not say that the data are
// damaged.
func TestDestroyedAmidUse(t *testing.T) {
	v, err := OpenOrCreateVault(filepath.Join(t.TempDir(), "secret"))
	require.NoError(t, err)
	batch, err := v.batchCipher(kindRows, testEpoch.Batch(0))
	require.NoError(t, err)
	sealed := encrypt(nil, batch, []byte("a row"))
	require.NoError(t, v.DestroyRows(testEpoch))
	_, err = decrypt(batch, sealed[:nonceSize], sealed[nonceSize:])
	require.ErrorIs(t, err, ErrDestroyed)
}

// fillEpoch commits n submissions of one slot, each by another client.
func fillEpoch(t *testing.T, s *Store, n int, quota uint64) {
	t.Helper()
	key, err := s.vault.EpochKey(testEpoch)
	require.NoError(t, err)
	const group = 500
	for from := 0; from < n; from += group {
		var subs []*Submission
		for i := from; i < from+group; i++ {
			sub := aSubmission(0, i)
			sub.Size, sub.Quota, sub.Lanes = uint64(n)+1, quota, sub.Lanes[:1]
			sub.Tag, sub.Client = key.Tag(fmt.Append(nil, i)), key.mac(fmt.Sprint(i))
			subs = append(subs, sub)
		}
		verdicts(t, s, subs...)
	}
}

// TestPlans: PostgreSQL must look keys up by the whole primary key, also in tables that it has never analyzed. By the
// epoch alone, every commit would read all rows of the epoch.
func TestPlans(t *testing.T) {
	v, err := OpenOrCreateVault(filepath.Join(t.TempDir(), "secret"))
	require.NoError(t, err)
	opened, err := Open(postgresURL(t), v, Process{})
	require.NoError(t, err)
	defer opened.Close()
	s := opened
	fillEpoch(t, s, 6000, 1)
	for table, key := range map[string]string{"seen": "hash", "clients": "client"} {
		plan, err := collect(t.Context(), s.read, "EXPLAIN "+s.among(key, table, key),
			func(rows *sql.Rows) (line string, err error) {
				return line, rows.Scan(&line)
			}, make([]byte, 4000), 500, testEpoch.Task[:], testEpoch.Epoch)
		require.NoError(t, err)
		require.Regexp(t, `Index Cond: \(\(epoch = \$\d\) AND \(`+key+` = `, strings.Join(plan, "\n"))
	}
}

// TestCounterState prints how many bytes the store needs per client while an epoch is open. The lower bound for counts
// up to a quota of B is n·log₂(B+1) bits for n clients.
func TestCounterState(t *testing.T) {
	const n, quota = 8000, 4
	eachStore(t, func(t *testing.T, open func() *Store) {
		s := open()
		fillEpoch(t, s, n, quota)
		limit := math.Log2(quota+1) / 8
		var clients, seen float64
		if s.index == nil {
			query := `SELECT pg_total_relation_size('clients'), pg_total_relation_size('seen')`
			require.NoError(t, s.read.QueryRow(query).Scan(&clients, &seen))
			t.Logf("quota %d: %.1f bytes of counter and %.1f bytes of replay set per client; log₂(B+1) is %.2f bytes",
				quota, clients/n, seen/n, limit)
			return
		}
		k := s.index.epochs[testEpoch]
		clients, seen = float64(k.clients.bytes())/n, float64(k.tags.bytes())/n
		var disk float64
		const query = `SELECT SUM(length(bytes)) FROM runs WHERE seq = 4294967296`
		require.NoError(t, s.read.QueryRow(query).Scan(&disk))
		t.Logf("quota %d: in memory %.1f bytes of counter and %.1f bytes of replay set per client, %.1f on disk; "+
			"log₂(B+1) is %.2f bytes", quota, clients, seen, disk/n, limit)
		require.Less(t, clients+seen, 27.0)
	})
}
