package verifier

import (
	"crypto/rand"
	"encoding/binary"
	"math/bits"
)

// tags is a replay set of half tags. It takes at most 10 bytes per half tag, plus [tagParts] small tables. It is exact:
// has returns true for every half tag that was added, and for no other.
//
// The halves are scrambled by a bijection that is drawn at random for each set. Clients choose their tags, but so
// cannot know where the tags go in the tables. Each table is a sorted array with gaps. A number's position in it is
// close to the number's rank in the range, so a search visits only a few entries ([Amble, Knuth 1974], ordered hash
// tables).
//
// [Amble, Knuth 1974]: https://doi.org/10.1093/comjnl/17.2.135
type tags struct {
	flip  uint64
	times [2]uint64 // odd numbers
	zero  bool      // Whether the half that scrambles to 0 was added; in a table, 0 means a gap.
	parts [tagParts]tagTable
	n     int
}

// tagParts is the number of tables. When a table grows, only that table is copied.
const tagParts = 256

func newTags() *tags {
	var seed [24]byte
	rand.Read(seed[:])
	word := func(i int) uint64 { return binary.LittleEndian.Uint64(seed[8*i:]) }
	return &tags{flip: word(0), times: [2]uint64{word(1) | 1, word(2) | 1}}
}

// scramble is a bijection, because each of its steps is one.
func (t *tags) scramble(half uint64) uint64 {
	x := half ^ t.flip
	for _, odd := range t.times {
		x *= odd
		x ^= x >> 32
	}
	return x
}

func (t *tags) has(half uint64) bool {
	x := t.scramble(half)
	if x == 0 {
		return t.zero
	}
	table := &t.parts[x>>56]
	at := table.search(x)
	return at < len(table.slots) && table.slots[at] == x
}

// add adds a half tag and reports whether it is new.
func (t *tags) add(half uint64) bool {
	x := t.scramble(half)
	fresh := !t.zero
	if x == 0 {
		t.zero = true
	} else {
		fresh = t.parts[x>>56].add(x)
	}
	if fresh {
		t.n++
	}
	return fresh
}

// tagTable holds numbers that have the same first byte, in ascending order. Gaps between them are 0.
type tagTable struct {
	slots []uint64
	homes int // Number of home positions, over which numbers are spread; overflow positions follow.
	n     int
}

// home returns the position where the search for a number begins. It rises with the number.
func (t *tagTable) home(x uint64) int {
	at, _ := bits.Mul64(x<<8, uint64(t.homes))
	return int(at)
}

// search returns the position of a number, or the position to insert it.
func (t *tagTable) search(x uint64) int {
	at := t.home(x)
	for at < len(t.slots) && t.slots[at] != 0 && t.slots[at] < x {
		at++
	}
	return at
}

func (t *tagTable) add(x uint64) bool {
	at := t.search(x)
	if at < len(t.slots) && t.slots[at] == x {
		return false
	}
	if t.n*16 >= t.homes*15 { // in a fuller table, searches would be long
		t.grow()
		at = t.search(x)
	}
	gap := at
	for gap < len(t.slots) && t.slots[gap] != 0 {
		gap++
	}
	if gap == len(t.slots) {
		t.slots = append(t.slots, 0)
	}
	copy(t.slots[at+1:gap+1], t.slots[at:gap])
	t.slots[at] = x
	t.n++
	return true
}

// overflow is the initial capacity after a table's home positions, in numbers. The slice grows if it needs more.
const overflow = 32

// grow moves the numbers to a table with an eighth more home positions, which is then five sixths full.
func (t *tagTable) grow() {
	old := t.slots
	t.homes += t.homes/8 + 8
	t.slots = make([]uint64, t.homes, t.homes+overflow)
	next := 0
	for _, x := range old {
		if x == 0 {
			continue
		}
		at := max(t.home(x), next)
		for at >= len(t.slots) {
			t.slots = append(t.slots, 0)
		}
		t.slots[at], next = x, at+1
	}
}
