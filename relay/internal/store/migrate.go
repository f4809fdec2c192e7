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

// migrations holds the SQL steps that create and upgrade the tables, in one folder per engine: NNNN_name.sql. The first
// step creates all tables. Its number is the oldest schema version that this program reads. Never change a released
// step.
//
//go:embed migrations
var migrations embed.FS

// schema is an engine's sequence of steps. Each raises the schema version by one.
type schema struct {
	oldest int // schema version after the first step
	steps  []string
}

// latest is the schema version of this program.
func (s schema) latest() int { return s.oldest + len(s.steps) - 1 }

func readSchema(from fs.FS, engine string) (out schema, err error) {
	files, err := fs.Glob(from, "migrations/"+engine+"/*.sql") // sorted
	if err != nil {
		return out, err
	}
	for i, file := range files {
		number, _, _ := strings.Cut(file[strings.LastIndex(file, "/")+1:], "_")
		n, err := strconv.Atoi(number)
		if i == 0 {
			out.oldest = n
		}
		if err != nil || n != out.oldest+i {
			return out, fmt.Errorf("step %s is not number %d", file, out.oldest+i)
		}
		text, err := fs.ReadFile(from, file)
		if err != nil {
			return out, err
		}
		out.steps = append(out.steps, string(text))
	}
	return out, nil
}

// migrate upgrades the schema from version to this program's version, in the caller's transaction. Version 0 means no
// tables. The caller has read version under a lock that excludes all other processes. A read-only database must already
// have this program's version.
func (d *database) migrate(tx *transaction, to schema, version int) error {
	switch latest := to.latest(); {
	case version > latest:
		return fmt.Errorf("schema version %d is unknown: this program knows versions up to %d; use a newer program",
			version, latest)
	case version > 0 && version < to.oldest:
		return fmt.Errorf("schema version %d is too old: this program knows versions from %d on; "+
			"start with a new store, a new secret and new keys", version, to.oldest)
	case d.vault == nil && version < latest:
		return fmt.Errorf("schema version %d must be upgraded to %d: start the relay once", version, latest)
	}
	for at := max(version+1, to.oldest); at <= to.latest(); at++ {
		if _, err := tx.tx.ExecContext(tx.ctx, to.steps[at-to.oldest]); err != nil {
			return fmt.Errorf("couldn't upgrade the schema to version %d: %w", at, err)
		}
	}
	return errors.Join(tx.name(), tx.sameSecret())
}

// name gives the store a random name unless it has one. Key files recognize the store by this name.
func (t *transaction) name() error {
	if t.vault == nil {
		return nil
	}
	_, err := t.exec(`INSERT INTO meta (name, value) VALUES ('store', $1) ON CONFLICT DO NOTHING`, []byte(rand.Text()))
	return err
}

// Name returns the random name that the store got when it was created; "" if it has not been created yet.
func (d *database) Name(ctx context.Context) (string, error) {
	var name []byte
	err := d.read.QueryRowContext(ctx, `SELECT value FROM meta WHERE name = 'store'`).Scan(&name)
	if errors.Is(err, sql.ErrNoRows) { // not created yet
		err = nil
	}
	return string(name), err
}

// OtherSecret reports whether the store was created with a secret other than the vault's.
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

// sameSecret returns an error if the database's rows are encrypted under another secret. A new database records this
// one.
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
		return errors.New("it belongs to another secret file: want the secret that the store was created with, " +
			"or a copy of it")
	}
	return nil
}
