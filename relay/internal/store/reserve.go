package store

// Reserve is the room that is kept for erasing and confirming where a disk is full. A store uses it by itself in all
// that erases, confirms or ends, and makes nothing else while it is short: what is left is for erasing alone.
type Reserve interface {
	// WithReserve does what erases or confirms, and once more in the room that is kept where a disk was full.
	WithReserve(do func() error) error

	// Short is an error while the room that is kept is in use.
	Short() error
}

// noReserve keeps no room.
type noReserve struct{}

func (noReserve) WithReserve(do func() error) error { return do() }
func (noReserve) Short() error                      { return nil }

// EraseRoom is how many bytes of its disk an SQLite store needs to erase and confirm: its log, which a transaction
// begins to fill before it is copied into the file, the largest transaction that deletes (a merged run, with the zeros
// that replace it and the pages that lead to it), and what either leaves behind.
func EraseRoom() int64 { return logSize + int64(mergeRoom) + 4<<20 }
