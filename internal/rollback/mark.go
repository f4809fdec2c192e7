package rollback

import (
	"bytes"
	"cmp"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"maps"
	"slices"
)

// A file with a rollback mark holds, in this order:
//
//	the key file's own JSON document
//	one line with the whole mark when the file was last written completely
//	newlines up to a multiple of 4096 bytes
//	two slots of 4096 bytes, each with a line of the entries that have changed since
//
// A step overwrites the older slot and syncs the file. It leaves the newer slot, which callers rely on, unchanged. A
// line begins with a checksum: a reader ignores a slot that was written only in part, and uses the other. When the
// entries do not fit into a slot any longer, the process rewrites the whole file.

// EpochKey identifies an epoch. The first half of the task's ID, which is a hash, identifies the task.
type EpochKey struct {
	Task  [16]byte
	Epoch uint64
}

// Entry is a mark's record of an epoch.
type Entry struct {
	Steps uint64 // number of durable transactions
	Made  Set    // numbers of the batches made
	Ended bool   // the operator ended the epoch after a state rollback
}

// Grow merges another entry into this one and reports whether this one changed.
func (e *Entry) Grow(by Entry) bool {
	made := e.Made.Union(by.Made)
	changed := by.Steps > e.Steps || !slices.Equal(made, e.Made) || by.Ended && !e.Ended
	*e = Entry{max(e.Steps, by.Steps), made, e.Ended || by.Ended}
	return changed
}

// Mark is the content of a rollback mark.
type Mark struct {
	// ID is the random name by which the store knows the file. A copy of the file has the same ID.
	ID string

	// Baseline counts how often the operator accepted a store after a state rollback.
	Baseline uint64

	// Database is the server and timeline of the store's database; "" for a file.
	Database string

	// Secret is, in an HPKE key file, the ID of the mark in the same relay's secret file. In a secret file it is "".
	Secret string

	// Keys maps, in a secret file, half of a task's ID in hex to the ID of the mark in that task's HPKE key file. In
	// other files it is nil.
	Keys map[string]string

	// Fenced means that the other relay processes on the store have continued without this one, and that it has not
	// joined them again.
	Fenced bool

	// SignOff is, in a secret file, the random text that the process wrote into the database with its last transaction
	// before it stopped in order; "" while a process runs, or if it was killed.
	SignOff string

	Entries map[EpochKey]Entry
}

// NewMark returns an empty mark with a random ID.
func NewMark() *Mark { return &Mark{ID: rand.Text(), Entries: map[EpochKey]Entry{}} }

// Clone returns a copy.
func (s *Mark) Clone() *Mark {
	out := *s
	out.Keys, out.Entries = maps.Clone(s.Keys), maps.Clone(s.Entries)
	return &out
}

// wouldChange reports whether raise with these entries would change the mark.
func (s *Mark) wouldChange(by map[EpochKey]Entry) bool {
	for key, entry := range by {
		if e := s.Entries[key]; e.Grow(entry) {
			return true
		}
	}
	return false
}

// raise merges entries into the mark and reports whether the mark changed.
func (s *Mark) raise(by map[EpochKey]Entry) (changed bool) {
	for key, entry := range by {
		e := s.Entries[key]
		if e.Grow(entry) {
			s.Entries[key] = e
			changed = true
		}
	}
	return changed
}

// line is the JSON form of a line: the whole mark, or the entries that have changed since.
type line struct {
	ID         string            `json:"id,omitempty"`
	Baseline   uint64            `json:"baseline,omitempty"`
	Database   string            `json:"database,omitempty"`
	Secret     string            `json:"secret,omitempty"`
	Keys       map[string]string `json:"keys,omitempty"`
	Fenced     bool              `json:"fenced,omitempty"`
	SignOff    string            `json:"signoff,omitempty"`
	Generation uint64            `json:"generation,omitempty"` // slot: number of its write
	Epochs     []entry           `json:"epochs"`
}

// line returns the mark's line without the entries.
func (s *Mark) line() line {
	return line{ID: s.ID, Baseline: s.Baseline, Database: s.Database, Secret: s.Secret, Keys: s.Keys, Fenced: s.Fenced,
		SignOff: s.SignOff}
}

type entry struct {
	Task  string      `json:"task"` // hex
	Epoch uint64      `json:"epoch"`
	Steps uint64      `json:"steps"`
	Made  [][2]uint64 `json:"made,omitempty"` // ranges of batch numbers, both ends included
	Ended bool        `json:"ended,omitempty"`
}

var errDamaged = errors.New("its rollback mark is damaged")

const sumSize = 32 // hex digits of a checksum

// encode returns a line with entries, beginning with its checksum.
func encode(l line, entries map[EpochKey]Entry) []byte {
	l.Epochs = []entry{}
	keys := slices.SortedFunc(maps.Keys(entries), func(a, b EpochKey) int {
		return cmp.Or(bytes.Compare(a.Task[:], b.Task[:]), cmp.Compare(a.Epoch, b.Epoch))
	})
	for _, key := range keys {
		e := entries[key]
		l.Epochs = append(l.Epochs, entry{hex.EncodeToString(key.Task[:]), key.Epoch, e.Steps, e.Made, e.Ended})
	}
	text, err := json.Marshal(&l)
	if err != nil {
		panic(err) // happens only for types without a JSON form
	}
	return append([]byte(sum(text)+" "), append(text, '\n')...)
}

func sum(text []byte) string {
	h := sha256.New()
	h.Write(text)
	return hex.EncodeToString(h.Sum(nil))[:sumSize]
}

// decode reads a line and checks its checksum.
func decode(in []byte) (l line, entries map[EpochKey]Entry, err error) {
	head, text, ok := bytes.Cut(bytes.TrimSuffix(in, []byte("\n")), []byte(" "))
	if !ok || string(head) != sum(text) || json.Unmarshal(text, &l) != nil {
		return l, nil, errDamaged
	}
	entries = map[EpochKey]Entry{}
	for _, e := range l.Epochs {
		raw, err := hex.DecodeString(e.Task)
		made := Set(e.Made)
		if err != nil || len(raw) != len(EpochKey{}.Task) || !made.valid() {
			return l, nil, errDamaged
		}
		entries[EpochKey{[16]byte(raw), e.Epoch}] = Entry{e.Steps, made, e.Ended}
	}
	return l, entries, nil
}

// slotSize is the size and alignment of a slot, in bytes: a write to one slot touches no page or sector of the other.
const slotSize = 4096

// layout is a parsed key file.
type layout struct {
	document []byte    // shares memory with the parsed bytes; nil if they were cleared
	base     *Mark     // the mark of the last complete write; nil if the file has no mark
	slots    [2]string // the line in each slot
	grown    map[EpochKey]Entry
	latest   uint64 // generation of the latest slot; 0 for none
}

// mark returns the current mark, which is base with grown merged in; nil if the file has none.
func (l *layout) mark() *Mark {
	if l.base == nil {
		return nil
	}
	s := l.base.Clone()
	s.raise(l.grown)
	return s
}

// documentEnd returns the index after the last brace of the document at the start of a file, or -1 if there is none. It
// reads only braces and strings, because a JSON decoder would copy keys.
func documentEnd(in []byte) int {
	depth, quoted := 0, false
	for i := 0; i < len(in); i++ {
		switch c := in[i]; {
		case quoted && c == '\\':
			i++
		case c == '"':
			quoted = !quoted
		case quoted:
		case c == '{':
			depth++
		case c == '}':
			if depth--; depth <= 0 {
				return i + 1
			}
		}
	}
	return -1
}

// parse parses a key file without copying its document, which holds keys.
func parse(in []byte) (*layout, error) {
	at := documentEnd(in)
	if at < 0 {
		return &layout{document: in}, nil // the caller, which reads the document, reports what is wrong
	}
	rest := bytes.TrimLeft(in[at:], " \t\r\n")
	if len(rest) == 0 {
		return &layout{document: in}, nil
	}
	end := bytes.IndexByte(rest, '\n') + 1
	slots := len(in) - 2*slotSize
	if end == 0 || len(in)%slotSize != 0 || len(in)-len(rest)+end > slots {
		return nil, errDamaged
	}
	head, entries, err := decode(rest[:end])
	if err != nil || head.ID == "" {
		return nil, errDamaged
	}
	if in[at] == '\n' {
		at++
	}
	l := &layout{document: in[:at:at],
		base: &Mark{head.ID, head.Baseline, head.Database, head.Secret, head.Keys, head.Fenced, head.SignOff,
			entries}}
	l.slots = lines(in[slots:])
	l.grown, l.latest = latest(l.slots)
	return l, nil
}

func lines(slots []byte) (out [2]string) {
	for i := range out {
		text, _, _ := bytes.Cut(slots[i*slotSize:(i+1)*slotSize], []byte("\n"))
		out[i] = string(text)
	}
	return out
}

// latest returns the entries of the newer undamaged slot, and its generation.
func latest(slots [2]string) (grown map[EpochKey]Entry, generation uint64) {
	for _, text := range slots {
		if l, entries, err := decode([]byte(text)); err == nil && l.Generation > generation {
			grown, generation = entries, l.Generation
		}
	}
	return grown, generation
}

// SplitFile splits a key file into its own document, which shares memory with in, and its mark; nil if there is none.
func SplitFile(in []byte) (document []byte, s *Mark, err error) {
	l, err := parse(in)
	if err != nil {
		return nil, nil, err
	}
	return l.document, l.mark(), nil
}

// JoinFile returns the content of a key file with a document and a mark. If the mark is nil, it returns the document
// itself, otherwise one copy of it.
func JoinFile(document []byte, s *Mark) []byte {
	if s == nil {
		return document
	}
	document, text := bytes.TrimSpace(document), encode(s.line(), s.Entries)
	size := (len(document)+1+len(text)+slotSize-1)/slotSize*slotSize + 2*slotSize
	out := append(make([]byte, 0, size), document...)
	out = append(append(out, '\n'), text...)
	for len(out) < size {
		out = append(out, '\n')
	}
	return out
}
