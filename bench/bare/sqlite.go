package main

import (
	"database/sql"

	_ "modernc.org/sqlite" // registers the driver "sqlite"
)

func openSQLite(path string) (*sql.DB, inserter, error) {
	db, err := sql.Open("sqlite",
		"file:"+path+"?_pragma=journal_mode(wal)&_pragma=synchronous(full)&_pragma=cache_size(-16384)&_txlock=immediate")
	if err != nil {
		return nil, nil, err
	}
	db.SetMaxOpenConns(1)
	_, err = db.Exec(`
		CREATE TABLE seen (epoch INTEGER, hash BLOB, receipt BLOB, PRIMARY KEY (epoch, hash)) WITHOUT ROWID;
		CREATE TABLE clients (epoch INTEGER, client BLOB, submissions INTEGER, PRIMARY KEY (epoch, client)) WITHOUT ROWID;
		CREATE TABLE slots (epoch INTEGER, seq INTEGER, id BLOB, slot BLOB, PRIMARY KEY (epoch, seq, id)) WITHOUT ROWID`)
	return db, func(tx *sql.Tx, r *rows) error { return r.insert(tx, "") }, err
}

// insert runs three statements, each over all rows of a table.
func (r *rows) insert(tx *sql.Tx, bytes string) error {
	const each = `WITH RECURSIVE i(n) AS (SELECT 0 UNION ALL SELECT n + 1 FROM i WHERE n + 1 < $2) `
	value := `substr($1` + bytes + `, `
	if _, err := tx.Exec(`INSERT INTO seen `+each+`SELECT 1, `+value+`16*n + 1, 8), `+value+`16*n + 9, 8) FROM i`,
		r.tags, r.reports); err != nil {
		return err
	}
	if _, err := tx.Exec(`INSERT INTO clients `+each+`SELECT 1, `+value+`8*n + 1, 8), 1 FROM i`, r.clients,
		r.reports); err != nil {
		return err
	}
	_, err := tx.Exec(`INSERT INTO slots `+each+`SELECT 1, 0, `+value+`$3*n + 1, 12), `+value+`$3*n + 13, $3 - 12) FROM i`, r.slots, len(r.slots)/r.slot, r.slot)
	return err
}
