package main

import (
	"database/sql"

	_ "github.com/jackc/pgx/v5/stdlib" // registers the driver "pgx"
)

func openPostgres(url string) (*sql.DB, inserter, error) {
	db, err := sql.Open("pgx", url)
	if err != nil {
		return nil, nil, err
	}
	_, err = db.Exec(`
		CREATE TABLE seen (epoch integer, hash bytea, receipt bytea, PRIMARY KEY (epoch, hash));
		CREATE TABLE clients (epoch integer, client bytea, submissions integer, PRIMARY KEY (epoch, client));
		CREATE TABLE slots (epoch integer, seq bigint, id bytea, slot bytea, PRIMARY KEY (epoch, seq, id));
		ALTER TABLE slots ALTER slot SET STORAGE EXTERNAL`)
	return db, func(tx *sql.Tx, r *rows) error { return r.insert(tx, "::bytea") }, err
}
