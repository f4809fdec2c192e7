package collect

// DestroyedBefore makes a puller count n more destroyed batches of an epoch than it received.
func DestroyedBefore(p *Puller, epoch, n uint64) { p.cursors[epoch].destroyed += n }

// NotesOf returns how many findings a puller stores.
func NotesOf(p *Puller) int { return len(p.notes.kept) }
