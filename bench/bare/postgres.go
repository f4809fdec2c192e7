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
		CREATE TABLE seen (epoch bigint, hash bytea, receipt bytea, PRIMARY KEY (epoch, hash));
		CREATE TABLE clients (epoch bigint, client bytea, submissions bigint, PRIMARY KEY (epoch, client));
		CREATE TABLE slots (epoch bigint, seq bigint, id bytea, lane bigint, slot bytea, PRIMARY KEY (epoch, seq, id))`)
	return db, insertPostgres, err
}

func insertPostgres(tx *sql.Tx, r *rows) error {
	for _, s := range []struct {
		query string
		args  []any
	}{
		{`INSERT INTO seen SELECT 1, h, r FROM unnest($1::bytea[], $2::bytea[]) AS x(h, r)`, []any{r.seen, r.receipts}},
		{`INSERT INTO clients SELECT 1, c, 1 FROM unnest($1::bytea[]) AS x(c)`, []any{r.clients}},
		{`INSERT INTO slots SELECT 1, 0, i, 0, s FROM unnest($1::bytea[], $2::bytea[]) AS x(i, s)`, []any{r.ids, r.slots}},
	} {
		if _, err := tx.Exec(s.query, s.args...); err != nil {
			return err
		}
	}
	return nil
}
