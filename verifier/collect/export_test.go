package collect

// SpoiltBefore makes a puller count n destroyed batches of an epoch that never came.
func SpoiltBefore(p *Puller, epoch, n uint64) { p.cursors[epoch].spoilt += n }

// NotesOf returns the number of findings that a puller stores.
func NotesOf(p *Puller) int { return len(p.notes.kept) }
