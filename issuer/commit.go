package issuer

import (
	"database/sql"
	"errors"
	"fmt"

	"github.com/doona-dp/doona/internal/rollback"
	"github.com/doona-dp/doona/wire/task"
)

// countRequest is a token request that waits for the store to count it.
type countRequest struct {
	task             task.ID
	epoch            uint64
	account, request hash
	quota            int

	withinQuota bool // the result, set by commit
}

// count counts an account's token request durably, and reports whether it is within the quota. It counts a repeated
// request only once, because the client may have lost the first answer. Concurrent requests share a transaction.
func (s *store) count(task task.ID, epoch uint64, account, request hash, quota int) (withinQuota bool, err error) {
	c := &countRequest{task: task, epoch: epoch, account: account, request: request, quota: quota}
	if err := s.requests.Do(s.commit, c); err != nil {
		return false, err
	}
	return c.withinQuota, nil
}

// commit counts a group of requests, first in the store, then in the marks. Only then may the issuer send tokens. If an
// operator later restores an older store, that store has fewer commits than a mark, which shows the rollback.
func (s *store) commit(group []*countRequest) error {
	s.commitMu.Lock()
	defer s.commitMu.Unlock()
	if s.marksMayLag {
		if err := s.writeMarks(); err != nil {
			return err
		}
	}
	next := map[task.ID]uint64{} // first epoch without a counted request, per task that the group counts for
	commit := func() error { return s.transact(func(tx *sql.Tx) error { return s.countAll(tx, group, next) }) }
	raise := func() error {
		for id, next := range next {
			b := s.bindings[id]
			b.Commits++
			b.Next = next
			if err := b.write(); err != nil {
				return err
			}
		}
		return nil
	}
	if err := rollback.Commit(commit, raise); err != nil || len(next) == 0 {
		return err
	}
	s.marksMayLag = false
	return nil
}

// countAll counts a group. For each task with a newly counted request, it sets next to the first epoch without one.
func (s *store) countAll(tx *sql.Tx, group []*countRequest, next map[task.ID]uint64) error {
	for _, c := range group {
		counted, err := c.decide(tx)
		if err != nil {
			return fmt.Errorf("couldn't count token requests: %w", err)
		}
		if counted {
			next[c.task] = max(next[c.task], s.bindings[c.task].Next, c.epoch+1)
		}
	}
	for id, next := range next {
		if err := s.bindings[id].step(tx, id, next); err != nil {
			return fmt.Errorf("couldn't count token requests: %w", err)
		}
		s.marksMayLag = true
	}
	return nil
}

// step adds 1 to the task's commits in the store. It returns [ErrStateRollback] if the store's row is not at b.Commits,
// the previous commit.
func (b *openBinding) step(tx *sql.Tx, id task.ID, next uint64) error {
	const count = `UPDATE store_binding SET commits = commits + 1, next = ? WHERE task = ? AND name = ? AND commits = ?`
	done, err := tx.Exec(count, next, id[:], b.Name, b.Commits)
	if err != nil {
		return err
	}
	if n, err := done.RowsAffected(); err != nil || n != 1 {
		return errors.Join(err, ErrStateRollback)
	}
	return nil
}

// writeMarks writes the marks again after a failed write. The store then has as many commits as the marks, or one more;
// the issuer has answered no request of that extra commit.
func (s *store) writeMarks() error {
	for id, b := range s.bindings {
		row, err := s.binding(id)
		if err != nil {
			return fmt.Errorf("couldn't read the store: %w", err)
		}
		if row == nil || row.Name != b.Name || row.count().StoreRolledBack(b.Commits) ||
			row.count().MarkRolledBack(b.Commits) {
			return fmt.Errorf("couldn't count token requests: %w", ErrStateRollback)
		}
		row.Erased = b.Erased
		b.storeBinding = *row
		if err := b.write(); err != nil {
			return err
		}
	}
	s.marksMayLag = false
	return nil
}

// decide sets whether a request is within the quota. It stores a request that is new and within the quota, and then
// returns true.
func (c *countRequest) decide(tx *sql.Tx) (counted bool, err error) {
	var issued, again int
	err = tx.QueryRow(
		`SELECT count(*), coalesce(sum(request = ?), 0) FROM issued WHERE task = ? AND epoch = ? AND account = ?`,
		c.request[:], c.task[:], c.epoch, c.account[:]).Scan(&issued, &again)
	if err != nil {
		return false, err
	}
	c.withinQuota = again > 0 || issued < c.quota
	if again > 0 || !c.withinQuota {
		return false, nil
	}
	_, err = tx.Exec(`INSERT INTO issued (task, epoch, account, request) VALUES (?, ?, ?, ?)`, c.task[:], c.epoch,
		c.account[:], c.request[:])
	return err == nil, err
}
