package store

import (
	"context"
	"crypto/rand"
	"database/sql"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/doona-dp/doona/internal/rollback"
)

// A process that stops in order signs off: its last transaction writes a random text into the database, and the
// secret's rollback mark repeats it. If the database then continues on another timeline, the text proves that it has
// all of this process's transactions. docs/threat-model.md has the argument.

// errSignedOff is the error of a transaction that would begin after this process has signed off.
var errSignedOff = errors.New("this process has signed off from the database")

// gate lets no transaction begin once it is closed.
type gate struct {
	mu     sync.RWMutex // each transaction holds it for reading
	closed bool
}

func (g *gate) enter() error {
	g.mu.RLock()
	if g.closed {
		g.mu.RUnlock()
		return errSignedOff
	}
	return nil
}

func (g *gate) leave() { g.mu.RUnlock() }

// close closes the gate permanently, once all transactions that have begun are over.
func (g *gate) close(ctx context.Context) error {
	for !g.mu.TryLock() {
		select {
		case <-ctx.Done():
			return fmt.Errorf("a transaction has not ended: %w", ctx.Err())
		case <-time.After(10 * time.Millisecond):
		}
	}
	g.closed = true
	g.mu.Unlock()
	return nil
}

// SignOff makes the last transaction of this process, so that its epochs outlive a planned switchover of the database.
// All that it changes afterwards fails. A process that has found a state rollback does not sign off.
func (d *members) SignOff(ctx context.Context) error {
	if d.engine.alone() || d.rollbackLatch.StateRollback() != nil {
		return nil
	}
	if err := d.gate.close(ctx); err != nil {
		return err
	}
	mark := d.vault.file.Mark()
	name, err := mark.Name()
	if err != nil {
		return err
	}
	return d.transactLast(ctx, func(tx *transaction) error {
		// The lock keeps processes that share the secret file from mixing up their texts.
		if err := d.engine.lockProcesses(tx); err != nil {
			return err
		}
		text := rand.Text()
		if err := mark.Change(func(s *rollback.Mark) { s.SignOff = signOff(text, s) }); err != nil {
			return err
		}
		return tx.memberTx().sign(name, text)
	})
}

// signedBy and the name of a process's secret mark are the key of its sign-off in the table meta. While the process
// runs, the value is the server on which it runs.
const signedBy = "signoff/"

// signOff returns a mark's sign-off: the text, and how many steps the mark has. A process that shares the file, and
// makes a step later, thus invalidates it.
func signOff(text string, s *rollback.Mark) string {
	steps := uint64(0)
	for _, e := range s.Entries {
		steps += e.Steps
	}
	return fmt.Sprintf("%s/%d", text, steps)
}

// signOn replaces a process's sign-off by the server on which it runs now.
func (d *members) signOn(t *transaction, name string) error {
	if d.signedOn == d.history {
		return nil
	}
	return t.memberTx().sign(name, d.history)
}

// sign writes the sign-off of a process, or the server on which it runs.
func (t memberTx) sign(name, value string) error {
	_, err := t.exec(`INSERT INTO meta (name, value) VALUES ($1, $2)
		ON CONFLICT (name) DO UPDATE SET value = excluded.value`, signedBy+name, []byte(value))
	return err
}

// readSignOffs sets seen.proven if the database, which is not the one that the secret's mark names, has everything that
// was there when this process signed off. One connection answers all, as another may lead to another server.
func (d *reconciler) readSignOffs(ctx context.Context, seen *storeSnapshot, secret *rollback.Mark) error {
	conn, err := d.read.Conn(ctx)
	if err != nil {
		return err
	}
	defer conn.Close()
	if seen.history, err = d.engine.history(ctx, conn); err != nil {
		return err
	}
	texts := map[string]string{}
	const query = `SELECT name, value FROM meta WHERE name LIKE $1`
	_, err = collect(ctx, conn, query, func(rows *sql.Rows) (_ struct{}, err error) {
		var name string
		var text []byte
		err = rows.Scan(&name, &text)
		texts[strings.TrimPrefix(name, signedBy)] = string(text)
		return struct{}{}, err
	}, signedBy+"%")
	if err != nil {
		return fmt.Errorf("couldn't read sign-offs: %w", err)
	}
	running, err := collect(ctx, conn, `SELECT file FROM processes WHERE standing <> $1`,
		func(rows *sql.Rows) (file string, err error) { return file, rows.Scan(&file) }, int(fenced))
	if err != nil {
		return fmt.Errorf("couldn't list processes: %w", err)
	}
	if provesAll(texts, running, secret, seen.history) {
		seen.proven = secret.Database
	}
	return nil
}

// provesAll reports whether a database on the given history has every transaction of this process. texts are the values
// of [signedBy], by the names of secret marks. Each other process that is not fenced must have signed off, too, or have
// signed on to this history since.
func provesAll(texts map[string]string, running []string, secret *rollback.Mark, history string) bool {
	server, _, _ := strings.Cut(secret.Database, "/")
	if !strings.HasPrefix(history, server+"/") || texts[secret.ID] == "" {
		return false
	}
	for _, file := range running {
		if at := texts[file]; at == "" || strings.Contains(at, "/") && at != history {
			return false
		}
	}
	return secret.SignOff == signOff(texts[secret.ID], secret)
}
