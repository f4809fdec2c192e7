package store

import (
	"context"
	"database/sql"
	"fmt"
	"slices"
)

// This file has the SQL of two tables: processes lists the relay processes that share a store, and cuts lists the
// batches that each process has recorded in its rollback marks.

// standing says how the other processes treat a process.
type standing int

const (
	member  standing = iota // It hands out batches. The others wait until it has recorded a batch.
	fenced                  // It was silent too long. The others continue without it.
	joining                 // As a member, but it hands out nothing yet.
	halted                  // It found that the database was rolled back. Nobody hands out anything.

	unknown standing = -1 // It has no row.
)

// peer is a relay process, named by its secret's rollback mark. Processes that share the secret file are one peer.
type peer struct {
	file     string
	scan     uint64 // number of its latest scan without a state rollback
	begun    uint64 // highest scan number of all processes when that scan began
	standing standing
}

func others(peers []peer, name string) []peer {
	return slices.DeleteFunc(slices.Clone(peers), func(p peer) bool { return p.file == name })
}

func standingOf(peers []peer, name string) standing {
	for _, p := range peers {
		if p.file == name {
			return p.standing
		}
	}
	return unknown
}

func latest(peers []peer) (at uint64) {
	for _, p := range peers {
		at = max(at, p.scan)
	}
	return at
}

// peers lists the processes. Other processes wait in this call until the transaction ends.
func (t memberTx) peers() ([]peer, error) {
	if err := t.engine.lockProcesses(t.transaction); err != nil {
		return nil, err
	}
	const list = `SELECT file, scan, scan_began, standing FROM processes ORDER BY file`
	return collect(t.ctx, t.tx, list, func(rows *sql.Rows) (p peer, err error) {
		return p, rows.Scan(&p.file, &p.scan, &p.begun, &p.standing)
	})
}

func (t memberTx) enlist(p peer) error {
	_, err := t.exec(`INSERT INTO processes (file, scan, scan_began, standing) VALUES ($1, $2, $3, $4)
		ON CONFLICT (file) DO UPDATE SET scan = excluded.scan, scan_began = excluded.scan_began,
		standing = excluded.standing`, p.file, p.scan, p.begun, int(p.standing))
	return err
}

// fence makes the others continue without a process.
func (t memberTx) fence(p peer) error {
	_, err := t.exec(`UPDATE processes SET standing = $2 WHERE file = $1`, p.file, int(fenced))
	return err
}

// recordCuts records in the database which batches this process has recorded in its rollback marks: all unconfirmed
// ones. It skips those in recorded, and adds every batch to held.
func (t memberTx) recordCuts(name string, all []Progress, recorded, held map[BatchID]bool) error {
	const cut = `INSERT INTO cuts (epoch, seq, file) SELECT epoch, seq, $1 FROM batches
		WHERE bytes IS NOT NULL AND epoch = (SELECT id FROM epochs WHERE task = $2 AND epoch = $3)` + `
		AND seq = $4 ON CONFLICT DO NOTHING`
	for i := range all {
		for _, seq := range all[i].Held {
			key := all[i].ID.Batch(seq)
			held[key] = true
			if recorded[key] {
				continue
			}
			if _, err := t.exec(cut, name, key.Task[:], key.Epoch, seq); err != nil {
				return err
			}
		}
	}
	return nil
}

// cutBy returns the processes that have recorded a batch in their rollback marks.
func (t memberTx) cutBy(b BatchID) (files []string, err error) {
	const query = `SELECT file FROM cuts WHERE seq = $3 AND epoch = ` + epochOf
	return collect(t.ctx, t.tx, query, func(rows *sql.Rows) (file string, err error) {
		return file, rows.Scan(&file)
	}, b.Task[:], b.Epoch, b.Seq)
}

// reset makes this process the only member, after its operator has ended the epochs. The others must join it.
func (t memberTx) reset() error {
	if t.engine.alone() {
		return nil
	}
	name, err := t.vault.file.Mark().Name()
	if err != nil {
		return err
	}
	peers, err := t.peers()
	if err != nil {
		return err
	}
	if _, err := t.exec(`UPDATE processes SET standing = $1`, int(fenced)); err != nil {
		return err
	}
	at := latest(peers)
	return t.enlist(peer{name, at + 1, at, member})
}

// processTable reads the table processes outside of transactions.
type processTable struct{ *database }

func (d processTable) highest(ctx context.Context) (at uint64, err error) {
	if err := d.read.QueryRowContext(ctx, `SELECT COALESCE(MAX(scan), 0) FROM processes`).Scan(&at); err != nil {
		return 0, fmt.Errorf("couldn't read the scan number: %w", err)
	}
	return at, nil
}

// anyHalted reports whether a process has found that the database was rolled back.
func (d processTable) anyHalted(ctx context.Context) (said bool, err error) {
	const query = `SELECT EXISTS (SELECT 1 FROM processes WHERE standing = $1)`
	err = d.read.QueryRowContext(ctx, query, int(halted)).Scan(&said)
	return said, err
}

// count returns a process's standing, and the numbers of other members and of all other processes.
func (d processTable) count(ctx context.Context, file string) (mine standing, members, others int, err error) {
	const query = `SELECT COALESCE(MAX(CASE WHEN file = $1 THEN standing END), -1),
		COUNT(CASE WHEN file <> $1 AND standing = 0 THEN 1 END), COUNT(CASE WHEN file <> $1 THEN 1 END) FROM processes`
	if err = d.read.QueryRowContext(ctx, query, file).Scan(&mine, &members, &others); err != nil {
		err = fmt.Errorf("couldn't list other processes: %w", err)
	}
	return mine, members, others, err
}
