// Package rollback detects that a store, or a key file that belongs to it, was replaced by an older copy, as by a
// backup or a lagging replica. A relay and an issuer use it in the same way. The store counts its steps (durable
// transactions). A mark in each key file records how far the store has come ([MarkFile]). A store that was rolled back
// is behind the mark. A key file that was rolled back has a mark behind the store.
//
//	order of a step: 1 commit in the store   2 marks, fsync   3 tell anybody; serve a batch, give out a token
//
//	a crash             the restart sees                 and does
//	before 1            nothing                          the client, or the party itself, does it again
//	between 1 and 2     the store ahead of all marks,    writes the marks, then answers as it would have
//	                    by the last steps
//	within 2            the store ahead of one mark      the same
//	                    (a torn mark counts as the
//	                    previous one)
//	between 2 and 3     all agree                        answers; recognizes the client's retry
//	3, then rollback    a mark ahead of the store, or    refuses everything until an operator ends the epochs
//	                    of what the store has known
//	                    of the mark
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
// The rest differs by party. A relay's store has a count for each epoch, mark and process
// (relay/internal/store/marks.go), an issuer's for each task (issuer/binding.go). A relay also compares batches, and
// which processes continue. An issuer has a second mark beside the key file.
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

// CountAlone returns the count of a store with one process, which begins no step before the marks hold the previous
// one.
func CountAlone(steps uint64) Count { return Count{steps, max(steps, 1) - 1} }

// StoreBehind says whether the mark has steps that the store lacks: the store was rolled back, see (1).
func (c Count) StoreBehind(mark uint64) bool { return mark > c.Steps }

// MarkBehind says whether the mark lacks steps that the store has seen in it: its file was rolled back, see (1).
func (c Count) MarkBehind(mark uint64) bool { return mark < c.Marked }
