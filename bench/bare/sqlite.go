package main

import (
	"database/sql"

	_ "modernc.org/sqlite" // registers the driver "sqlite"
)

func openSQLite(path string) (*sql.DB, inserter, error) {
	db, err := sql.Open("sqlite", "file:"+path+"?_pragma=journal_mode(wal)&_pragma=synchronous(full)&_pragma=cache_size(-16384)&_txlock=immediate")
	if err != nil {
		return nil, nil, err
	}
	db.SetMaxOpenConns(1)
	_, err = db.Exec(`
		CREATE TABLE seen (epoch INTEGER, hash BLOB, receipt BLOB, PRIMARY KEY (epoch, hash)) WITHOUT ROWID;
		CREATE TABLE clients (epoch INTEGER, client BLOB, submissions INTEGER, PRIMARY KEY (epoch, client)) WITHOUT ROWID;
		CREATE TABLE slots (epoch INTEGER, seq INTEGER, id BLOB, lane INTEGER, slot BLOB, PRIMARY KEY (epoch, seq, id)) WITHOUT ROWID`)
	return db, insertSQLite, err
}

func insertSQLite(tx *sql.Tx, r *rows) error {
	if err := insertMany(tx, `INSERT INTO seen VALUES (1, ?, ?)`, r.seen, r.receipts); err != nil {
		return err
	}
	if err := insertMany(tx, `INSERT INTO clients VALUES (1, ?, 1)`, r.clients); err != nil {
		return err
	}
	return insertMany(tx, `INSERT INTO slots VALUES (1, 0, ?, 0, ?)`, r.ids, r.slots)
}

// insertMany inserts rows by columns.
func insertMany(tx *sql.Tx, query string, columns ...[][]byte) error {
	insert, err := tx.Prepare(query)
	if err != nil {
		return err
	}
	defer insert.Close()
	args := make([]any, len(columns))
	for i := range columns[0] {
		for j, column := range columns {
			args[j] = column[i]
		}
		if _, err := insert.Exec(args...); err != nil {
			return err
		}
	}
	return nil
}
