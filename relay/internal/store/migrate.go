package store

import (
	"bytes"
	"context"
	"crypto/rand"
	"database/sql"
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"strconv"
	"strings"
)

// migrations holds the steps of every engine's schema, one folder per engine: NNNN_name.sql, from
// 0001 on. A step that has been released is never changed.
//
//go:embed migrations
var migrations embed.FS

// steps returns the statements of an engine's steps, in order.
func steps(from fs.FS, engine string) ([]string, error) {
	files, err := fs.Glob(from, "migrations/"+engine+"/*.sql") // sorted
	if err != nil {
		return nil, err
	}
	var out []string
	for i, file := range files {
		number, _, _ := strings.Cut(file[strings.LastIndex(file, "/")+1:], "_")
		if n, err := strconv.Atoi(number); err != nil || n != i+1 {
			return nil, fmt.Errorf("step %s is not number %d", file, i+1)
		}
		text, err := fs.ReadFile(from, file)
		if err != nil {
			return nil, err
		}
		out = append(out, string(text))
	}
	return out, nil
}

// migrate takes the schema from version, which the caller has read under a lock that excludes all
// other processes, to that of this program, in the caller's transaction. A database that is only
// read must be of this program's version.
func (d *database) migrate(tx *transaction, all []string, version int) error {
	if version > len(all) {
		return fmt.Errorf("its schema is version %d, and this program knows versions up to %d: use a newer one",
			version, len(all))
	}
	if d.vault == nil && version < len(all) {
		return fmt.Errorf("its schema is version %d of %d: start the relay once", version, len(all))
	}
	for i, step := range all[version:] {
		if _, err := tx.tx.ExecContext(tx.ctx, step); err != nil {
			return fmt.Errorf("couldn't take its schema to version %d: %w", version+i+1, err)
		}
	}
	if version < runsVersion && d.vault != nil {
		if err := tx.adopt(); err != nil {
			return fmt.Errorf("couldn't take what is in it to version %d: %w", runsVersion, err)
		}
	}
	return errors.Join(tx.name(), tx.sameSecret())
}

// name gives a store that has none a random name, by which key files know it again.
func (t *transaction) name() error {
	if t.vault == nil {
		return nil
	}
	_, err := t.exec(`INSERT INTO meta (name, value) VALUES ('store', $1) ON CONFLICT DO NOTHING`, []byte(rand.Text()))
	return err
}

// Name is that of [Reader].
func (d *database) Name(ctx context.Context) (string, error) {
	var name []byte
	err := d.read.QueryRowContext(ctx, `SELECT value FROM meta WHERE name = 'store'`).Scan(&name)
	if errors.Is(err, sql.ErrNoRows) { // it was made before stores had names, and is only read
		err = nil
	}
	return string(name), err
}

// OtherSecret is that of [Reader].
func (d *database) OtherSecret(ctx context.Context, v *Vault) (bool, error) {
	mine, err := v.fingerprint()
	if err != nil {
		return false, err
	}
	var theirs []byte
	err = d.read.QueryRowContext(ctx, `SELECT value FROM meta WHERE name = 'secret'`).Scan(&theirs)
	if errors.Is(err, sql.ErrNoRows) {
		return false, nil
	}
	return err == nil && !bytes.Equal(mine, theirs), err
}

// sameSecret refuses a database whose rows are encrypted under another secret than this process
// has.
func (t *transaction) sameSecret() error {
	if t.vault == nil {
		return nil
	}
	mine, err := t.vault.fingerprint()
	if err != nil {
		return err
	}
	if _, err := t.exec(`INSERT INTO meta (name, value) VALUES ('secret', $1) ON CONFLICT DO NOTHING`,
		mine); err != nil {
		return err
	}
	var theirs []byte
	if err := t.row(`SELECT value FROM meta WHERE name = 'secret'`).Scan(&theirs); err != nil {
		return err
	}
	if !bytes.Equal(mine, theirs) {
		return errors.New("it belongs to another secret file: want the one, or a copy of it, with which the store " +
			"was made")
	}
	return nil
}
