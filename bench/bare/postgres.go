package main

import (
	"context"

	"github.com/jackc/pgx/v5"
)

// openPostgres creates the tables. The inserter that it returns sends all statements of a transaction in one round
// trip.
func openPostgres(ctx context.Context, url string) (inserter, error) {
	conn, err := pgx.Connect(ctx, url)
	if err != nil {
		return nil, err
	}
	_, err = conn.Exec(ctx, `
		CREATE TABLE seen (epoch integer, hash bytea, receipt bytea, PRIMARY KEY (epoch, hash));
		CREATE TABLE clients (epoch integer, client bytea, submissions integer, PRIMARY KEY (epoch, client));
		CREATE TABLE runs (id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, bytes bytea);
		ALTER TABLE runs ALTER bytes SET STORAGE EXTERNAL`)
	const each = `WITH RECURSIVE i(n) AS (SELECT 0 UNION ALL SELECT n + 1 FROM i WHERE n + 1 < $2) `
	const (
		seen = `INSERT INTO seen ` + each +
			`SELECT 1, substr($1::bytea, 16*n + 1, 8), substr($1::bytea, 16*n + 9, 8) FROM i`
		clients = `INSERT INTO clients ` + each + `SELECT 1, substr($1::bytea, 8*n + 1, 8), 1 FROM i`
		slots   = `INSERT INTO runs (bytes) VALUES ($1)`
	)
	return func(r *rows) error {
		all := &pgx.Batch{}
		all.Queue("BEGIN")
		all.Queue(seen, random(r.reports*sizeTag), r.reports)
		all.Queue(clients, random(r.reports*sizeClient), r.reports)
		all.Queue(slots, r.slots)
		all.Queue("COMMIT")
		return conn.SendBatch(ctx, all).Close()
	}, err
}
