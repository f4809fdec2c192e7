package faultdisk_test

import (
	"database/sql"
	"math/rand/v2"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
	_ "modernc.org/sqlite"

	"github.com/doona-dp/doona/internal/testing/faultdisk"
)

func openDB(t *testing.T, folder string) *sql.DB {
	t.Helper()
	db, err := sql.Open("sqlite", "file:"+filepath.Join(folder, "a.db")+"?_journal_mode=WAL&_synchronous=FULL")
	require.NoError(t, err)
	db.SetMaxOpenConns(1)
	return db
}

func count(t *testing.T, db *sql.DB) (n int) {
	t.Helper()
	require.NoError(t, db.QueryRow(`SELECT count(*) FROM a`).Scan(&n))
	return n
}

// TestStop: the writes before a stop are on the disk, and later writes are not.
func TestStop(t *testing.T) {
	faultdisk.Install()
	folder := t.TempDir()
	disk := faultdisk.New(folder)
	defer disk.Remove()
	for round, acknowledged := 0, 0; round < 20; round++ {
		db := openDB(t, folder)
		_, err := db.Exec(`CREATE TABLE IF NOT EXISTS a (n INTEGER)`)
		require.NoError(t, err)
		n := count(t, db)
		require.True(t, n == acknowledged || n == acknowledged+1, "%d rows are on the disk, %d were acknowledged", n, acknowledged)
		acknowledged = n
		stopped := false
		disk.Stop(1+round, func() { stopped = true })
		for !stopped {
			if _, err = db.Exec(`INSERT INTO a VALUES (1)`); err == nil {
				acknowledged++
			}
		}
		require.Error(t, err)
		db.Close()
		disk.Revive()
	}
}

// TestCut: committed transactions of SQLite survive a power cut. On a disk whose syncs do nothing, some are lost, which
// shows that the cuts lose data.
func TestCut(t *testing.T) {
	faultdisk.Install()
	for _, lies := range []bool{false, true} {
		lost := 0
		folder := t.TempDir()
		disk := faultdisk.New(folder)
		disk.Break(faultdisk.Broken{LosesSyncs: lies})
		require.NoError(t, disk.Record())
		db := openDB(t, folder)
		_, err := db.Exec(`CREATE TABLE a (n INTEGER)`)
		require.NoError(t, err)
		var short []int // steps at which SQLite truncated its log and has not synced it
		for row := range 30 {
			_, err := db.Exec(`INSERT INTO a VALUES (1)`)
			require.NoError(t, err)
			disk.AddCheckpoint(disk.Steps(), "row")
			if row%5 == 4 {
				_, err := db.Exec(`PRAGMA wal_checkpoint(TRUNCATE)`)
				require.NoError(t, err)
				short = append(short, disk.Steps())
			}
		}
		db.Close()
		disk.Remove()
		rng := rand.New(rand.NewPCG(1, 2))
		for cut := range 300 {
			image := t.TempDir()
			step := rng.IntN(disk.Steps() + 1)
			if cut%2 == 0 {
				step = short[rng.IntN(len(short))]
			}
			require.NoError(t, disk.Cut(step, rng, image))
			marked := disk.Marked(step)
			if len(marked) == 0 {
				continue
			}
			db := openDB(t, image)
			var n int
			if err := db.QueryRow(`SELECT count(*) FROM a`).Scan(&n); err != nil || n < len(marked) {
				lost++
			}
			db.Close()
		}
		if lies {
			require.Greater(t, lost, 20)
		} else {
			require.Zero(t, lost)
		}
	}
}
