package main

import (
	"database/sql"

	_ "modernc.org/sqlite" // registers the driver "sqlite"
)

func openSQLite(path string) (inserter, error) {
	db, err := sql.Open("sqlite", "file:"+path+"?_pragma=page_size(2048)&_pragma=journal_mode(wal)"+
		"&_pragma=synchronous(full)&_pragma=wal_autocheckpoint(2048)&_pragma=cache_size(-16384)&_txlock=immediate")
	if err != nil {
		return nil, err
	}
	db.SetMaxOpenConns(1)
	_, err = db.Exec(`CREATE TABLE runs (id INTEGER PRIMARY KEY, bytes BLOB)`)
	return func(r *rows) error {
		tx, err := db.Begin()
		if err != nil {
			return err
		}
		defer tx.Rollback()
		for _, run := range [][]byte{random(sizeRun + r.reports*sizeName), r.slots} {
			if _, err := tx.Exec(`INSERT INTO runs (bytes) VALUES ($1)`, run); err != nil {
				return err
			}
		}
		return tx.Commit()
	}, err
}
