// Package rollback has a party notice that its store, or a key file that it uses with it, was set back to an older
// copy, as by a backup or by a replica that lags. A relay's store and an issuer do it in the same way: the store counts
// its steps (durable transactions), and each key file notes in a mark how far the store has come ([MarkFile]). A store
// that was set back is then behind the mark, and a key file that was set back has a mark behind the store.
//
//	order of a step: 1 commit in the store   2 marks, fsync   3 tell anybody; serve a batch, give out a token
//
//	a crash             the restart sees                 and does
//	before 1            nothing                          the client, or the party itself, does it again
//	between 1 and 2     the store ahead of all marks,    writes the marks, then answers as it would have
//	                    by the last steps
//	within 2            the store ahead of one mark      the same
//	                    (a torn mark counts as the
//	                    one before)
//	between 2 and 3     all agree                        answers; knows the client's retry
//	3, then set back    a mark ahead of the store, or    refuses everything until an operator ends the epochs
//	                    of what the store has known
//	                    of the mark
//
// [Commit] holds the order, and a [Count] is what the store knows of a mark. With it
//
//	marked ≤ the mark ≤ steps                                                          (1)
//
// always, unless something was set back.
//
// A mark has an entry for each epoch of each task: how many steps the owner of the file has made in it, and which
// batches were made, a leaf for each number that is cut for good. Entries only grow: two marks of one file merge by the
// maximum of the steps and the union of the leaves. A mark belongs to a file, and gets its name with its first step:
// processes with copies of a file that were made before that have marks of their own, and processes with one file share
// its mark.
//
// What a party has besides is its own. The marks' counts stand in SQL, in a relay's store for each epoch, mark and
// process (relay/internal/store/marks.go), in an issuer's for each task (issuer/tie.go). A relay compares batches, too,
// and which processes go on. An issuer has a second mark beside the key file.
package rollback

// Commit makes a step: it commits it in the store, and then has the marks say so, durably. Only where it returns nil
// may anybody be told of it. Where raise fails, the store may be ahead of the marks, as after a crash.
func Commit(commit, raise func() error) error {
	if err := commit(); err != nil {
		return err
	}
	return raise()
}

// Count is what a store knows of a mark.
type Count struct {
	Steps  uint64 // in the store, of each transaction one, which the mark notes when that is committed
	Marked uint64 // that the mark held, on disk, when the last of them began
}

// CountAlone returns the count of a store whose one process begins no step before the marks hold the one before.
func CountAlone(steps uint64) Count { return Count{steps, max(steps, 1) - 1} }

// StoreBehind says whether the mark holds steps that the store does not have: the store was set back, see (1).
func (c Count) StoreBehind(mark uint64) bool { return mark > c.Steps }

// MarkBehind says whether the mark lacks steps that the store has known it to hold: its file was set back, see (1).
func (c Count) MarkBehind(mark uint64) bool { return mark < c.Marked }
