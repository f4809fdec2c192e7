package collect

// DestroyedBefore makes a puller count n destroyed batches of an epoch that never came.
func DestroyedBefore(p *Puller, epoch, n uint64) { p.cursors[epoch].destroyed += n }

// NotesOf returns the number of findings that a puller stores.
func NotesOf(p *Puller) int { return len(p.notes.kept) }
