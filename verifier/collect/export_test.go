package collect

// SpoiltBefore has a puller count so many batches of an epoch as destroyed that never came.
func SpoiltBefore(p *Puller, epoch, n uint64) { p.cursors[epoch].spoilt += n }

// NotesOf counts the findings that a puller keeps.
func NotesOf(p *Puller) int { return len(p.notes.kept) }
