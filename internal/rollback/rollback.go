// Package rollback detects that a store, or a key file that belongs to it, was replaced by an older copy: for example,
// by a restored backup or a lagging replica. A relay and an issuer use it in the same way. The store counts its steps
// (durable transactions). A mark in each key file records the number of steps ([MarkFile]). A store that was rolled
// back has fewer steps than the mark. A key file that was rolled back has a mark with fewer steps than the store has
// recorded of it.
//
//	order of a step: 1 commit in the store   2 marks, fsync   3 tell others: serve a batch, issue a token
//
//	a crash             the restart sees                 and does
//	before 1            nothing                          the client, or the party itself, repeats the step
//	between 1 and 2     the store ahead of all marks,    writes the marks, then answers
//	                    by the last steps
//	within 2            the store ahead of one mark      the same
//	                    (a torn mark counts as the
//	                    previous one)
//	between 2 and 3     store and marks agree            answers; recognizes the client's retry
//	3, then rollback    a mark ahead of the store, or    refuses everything until an operator ends the epochs
//	                    one that has fewer steps than
//	                    the store has recorded of it
//
// [Commit] keeps this order. A [Count] is a store's record of a mark. Unless there was a state rollback,
//
//	marked ≤ the mark ≤ steps                                                          (1)
//
// A mark has an entry for each epoch of each task: how many steps the owner of the file has made in it, and which
// batches were made. Entries only grow. Two marks of one file merge by the maximum of the steps and the union of the
// batches. A mark belongs to a file and gets its name with its first step. Processes with copies of a file that were
// made before that step have marks of their own. Processes that share one file share its mark.
//
// The parties differ in the rest. A relay's store has a count for each epoch, mark and process
// (relay/internal/store/marks.go), an issuer's for each task (issuer/binding.go). A relay also compares batches and
// the set of continuing processes. An issuer has a second mark beside the key file.
package rollback

// Commit makes a step: it runs commit, which commits in the store, then raise, which writes the marks durably. The
// caller may tell others about the step only if Commit returns nil. If raise fails the store may be ahead of the marks,
// as after a crash.
func Commit(commit, raise func() error) error {
	if err := commit(); err != nil {
		return err
	}
	return raise()
}

// Count is a store's record of a mark.
type Count struct {
	Steps  uint64 // steps in the store, one per transaction; the mark records each after its commit
	Marked uint64 // steps in the mark, on disk, when the last transaction began
}

// SingleProcessCount returns the count of a store with one process. It begins no step before the marks have the
// previous one.
func SingleProcessCount(steps uint64) Count { return Count{steps, max(steps, 1) - 1} }

// StoreRolledBack reports whether the mark has steps that the store lacks, see (1).
func (c Count) StoreRolledBack(mark uint64) bool { return mark > c.Steps }

// MarkRolledBack reports whether the mark lacks steps that the store has recorded of it, see (1).
func (c Count) MarkRolledBack(mark uint64) bool { return mark < c.Marked }
