// Package rollback detects that a store, or a key file that belongs to it, was replaced by an older copy: for example,
// by a restored backup or a lagging replica. Relays and issuers use it in the same way. The store counts its steps
// (durable transactions). A rollback mark in each key file records the number of steps ([MarkFile]). A store that was
// rolled back has fewer steps than the mark. A key file that was rolled back has a mark with fewer steps than the store
// has recorded of it.
//
//	order of a step: 1 commit in the store   2 marks, fsync   3 tell others: serve a batch, issue a token
//
//	a crash             the restart sees                 and does
//	before 1            nothing new                      the client, relay or issuer repeats the step
//	between 1 and 2     the store ahead of all marks,    writes the marks, then answers
//	                    by the last steps
//	within 2            the store ahead of one mark      the same
//	                    (a partly written mark counts
//	                    as the previous one)
//	between 2 and 3     store and marks agree            answers; recognizes the client's retry
//	3, then rollback    a mark ahead of the store, or    refuses everything until the operator ends the epochs
//	                    with fewer steps than the store
//	                    has recorded of this mark
//
// [Commit] keeps this order. A [Count] is a store's record of a mark. Without a state rollback,
//
//	marked ≤ the mark ≤ steps                                                          (1)
//
// A mark has an entry for each epoch of each task: how many steps the owner of the file has made in it, and which
// batches were made. Entries only grow. Two versions of one mark merge by the maximum of the steps and the union of the
// batches. A mark gets its name with its first step. So copies of a file that were made before that step get marks with
// different names. Processes that share one file share its mark.
//
// Relays and issuers differ in the rest. A relay's store has a count for each epoch, mark and process
// (relay/internal/store/marks.go), an issuer's for each task (issuer/binding.go). A relay also compares the batches,
// and which processes are members. An issuer has a second mark beside the key file.
package rollback

// Commit makes a step. It runs commit, which commits the store's transaction, then raise, which writes the rollback
// marks durably. The caller may tell others about the step only if Commit returns nil. If raise fails, the store may be
// ahead of the marks, as after a crash.
func Commit(commit, raise func() error) error {
	if err := commit(); err != nil {
		return err
	}
	return raise()
}

// Count is a store's record of a rollback mark.
type Count struct {
	Steps  uint64 // transactions in the store; the mark records each after its commit
	Marked uint64 // steps that the mark on disk had when the last transaction began
}

// SingleProcessCount returns the count of a store that only one process uses. Such a process begins no step before the
// marks have the previous one.
func SingleProcessCount(steps uint64) Count { return Count{steps, max(steps, 1) - 1} }

// StoreRolledBack reports whether the mark has steps that the store lacks, which violates (1).
func (c Count) StoreRolledBack(mark uint64) bool { return mark > c.Steps }

// MarkRolledBack reports whether the mark lacks steps that the store has recorded of it, which violates (1).
func (c Count) MarkRolledBack(mark uint64) bool { return mark < c.Marked }
