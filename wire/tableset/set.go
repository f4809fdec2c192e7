// Package tableset has sets of tables: the document that an owner signs, the bundle and keys that clients fetch, and
// what a renewal may change (docs/SPEC.md, section 15). It knows no protocol, so it does not check a set's total.
package tableset

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/doona-dp/doona/internal/invalid"
	"github.com/doona-dp/doona/wire/codec"
	"github.com/doona-dp/doona/wire/task"
)

// Set binds tables together: tasks of one owner that the same visitors answer, under one total and by one submission a
// day. Its id is the SHA-256 of its canonical form, which [Set.Canonical] describes.
//
// A day is an epoch of the first table. Every other table's epochs begin and end when days do. A day's submission has
// one slot for each table: see [Open.At].
type Set struct {
	Name    string   // For people. 1 to 64 printable ASCII characters.
	Trial   bool     // One operator runs all relays: nothing is promised, and no ε may be shown.
	Total   Total    // Required.
	Tables  []Table  // 1 to MaxTables. The first has the shortest epochs, the days.
	Through []string // Origins that belong to a visit, such as a checkout's; as [task.Clients.Origins].

	Position uint64    // 0 for a new set; of a renewal, the position of its tasks in their streams.
	Root     task.ID   // Of a renewal: the id of the set at position 0. Otherwise zero.
	Before   task.ID   // Of a renewal: the id of the set at the previous position. Otherwise zero.
	First    []task.ID // Of a renewal: the tables' tasks at position 0, under whose ids keys are replaced. Or nil.
}

// Total is the (ε, δ) that a set promises for all reports of a browser to all its tables whose epochs begin in any
// stretch of Days days.
type Total struct {
	Epsilon task.Epsilon
	Delta   task.Delta
	Days    uint64 // 1..MaxDays.
}

// Table is one table of a set.
type Table struct {
	Name string  // 1 to 64 letters, digits, - and _; each name once.
	Task task.ID // The table's task.
	Bare bool    // The table has no values: every slot is a cover, and only their number counts.
}

// Limits of a set.
const (
	MaxTables = 32
	MaxDays   = 36_525 // A hundred years.
	// MaxBundle is the largest number of bytes of a set's bundle.
	MaxBundle = 2 << 20
	// MaxHanded is the largest number of bytes of a set that is handed over. 32 tables with a year of days and
	// post-quantum keys of three parties take 45 MB.
	MaxHanded = 64 << 20
)

const (
	setLabel = "doona-set"
	trialSet = "trial"
	twoSet   = "two"
)

// Canonical returns the canonical form, docs/SPEC.md "Sets":
//
//	[label, version, name, trust,              // trust "two" or "trial"
//	 [epsilon, delta, days],
//	 [[name, task, bare] …],                   // bare 0 or 1
//	 [origin …],                               // through
//	 [[position, root, before, [task …]]]]     // empty for a new set; the tables' tasks at position 0
func (s *Set) Canonical() []byte {
	d := setDocument{Label: setLabel, Version: task.Version, Name: s.Name, Trust: s.trust(),
		Total:   totalDocument{s.Total.Epsilon.String(), s.Total.Delta.String(), s.Total.Days},
		Tables:  []tableDocument{},
		Through: append([]string{}, s.Through...), Renewal: []renewalDocument{}}
	for _, t := range s.Tables {
		d.Tables = append(d.Tables, tableDocument{t.Name, t.Task[:], flagOf(t.Bare)})
	}
	if s.Position > 0 {
		r := renewalDocument{s.Position, s.Root[:], s.Before[:], [][]byte{}}
		for _, id := range s.First {
			r.First = append(r.First, id[:])
		}
		d.Renewal = append(d.Renewal, r)
	}
	out, err := codec.Marshal(&d)
	if err != nil {
		panic("tableset: " + err.Error()) // its types all have a form
	}
	return out
}

type (
	setDocument struct {
		Label       string
		Version     uint64
		Name, Trust string
		Total       totalDocument
		Tables      []tableDocument
		Through     []string
		Renewal     []renewalDocument // None or one.
	}
	totalDocument struct {
		Epsilon, Delta string
		Days           uint64
	}
	tableDocument struct {
		Name string
		Task []byte
		Bare uint64
	}
	renewalDocument struct {
		Position     uint64
		Root, Before []byte
		First        [][]byte
	}
)

func (s *Set) trust() string {
	if s.Trial {
		return trialSet
	}
	return twoSet
}

func flagOf(b bool) uint64 {
	if b {
		return 1
	}
	return 0
}

// ID returns the set's id.
func (s *Set) ID() task.ID { return sha256.Sum256(s.Canonical()) }

// FirstTasks returns the ids of the tables' tasks at position 0.
func (s *Set) FirstTasks() (ids []task.ID) {
	if s.Position > 0 {
		return s.First
	}
	for _, t := range s.Tables {
		ids = append(ids, t.Task)
	}
	return ids
}

// RootID returns the id of the set at position 0: it names the ledger line of all renewals.
func (s *Set) RootID() task.ID {
	if s.Position == 0 {
		return s.ID()
	}
	return s.Root
}

// parseSet parses a canonical form.
func parseSet(in []byte) (*Set, error) {
	var d setDocument
	if err := codec.Unmarshal(in, &d); err != nil {
		return nil, fmt.Errorf("couldn't decode a set: %w", err)
	}
	if d.Label != setLabel || d.Version != task.Version {
		return nil, fmt.Errorf("couldn't decode a set: %.20q of version %d, want %s of version %d", d.Label, d.Version,
			setLabel, task.Version)
	}
	s := &Set{Name: d.Name, Trial: d.Trust == trialSet, Through: d.Through,
		Total: Total{task.NewEpsilon(d.Total.Epsilon), task.NewDelta(d.Total.Delta), d.Total.Days}}
	if d.Trust != s.trust() {
		return nil, invalid.Field("trust", invalid.Quote(d.Trust), "two or trial")
	}
	for _, t := range d.Tables {
		if len(t.Task) != len(task.ID{}) {
			return nil, invalid.Field("tables.task", fmt.Sprintf("of %d bytes", len(t.Task)), "32 bytes")
		}
		if t.Bare > 1 {
			return nil, invalid.Field("tables.bare", strconv.FormatUint(t.Bare, 10), "0 or 1")
		}
		s.Tables = append(s.Tables, Table{t.Name, task.ID(t.Task), t.Bare == 1})
	}
	if len(d.Renewal) == 0 {
		return s, nil
	}
	r := d.Renewal[0]
	if len(d.Renewal) > 1 || r.Position == 0 || len(r.Root) != len(task.ID{}) || len(r.Before) != len(task.ID{}) {
		return nil, invalid.Field("renewal", strconv.Itoa(len(d.Renewal)), "none, or a position above 0 and two ids")
	}
	s.Position, s.Root, s.Before = r.Position, task.ID(r.Root), task.ID(r.Before)
	for _, id := range r.First {
		if len(id) != len(task.ID{}) {
			return nil, invalid.Field("renewal", fmt.Sprintf("a first task of %d bytes", len(id)), "32 bytes")
		}
		s.First = append(s.First, task.ID(id))
	}
	return s, nil
}

// Validate checks what does not depend on the tables' tasks. Its errors name the field.
func (s *Set) Validate() error {
	if !isText(s.Name) {
		return invalid.Field("name", invalid.Quote(s.Name), "1 to 64 printable ASCII characters")
	}
	if err := (task.Claim{Epsilon: s.Total.Epsilon, Delta: s.Total.Delta}).Check(); err != nil {
		return inSet(err, "claim", "total")
	}
	if s.Total.Days < 1 || s.Total.Days > MaxDays {
		return invalid.Field("total.days", strconv.FormatUint(s.Total.Days, 10), "1 to "+strconv.Itoa(MaxDays))
	}
	if n := len(s.Tables); n < 1 || n > MaxTables {
		return invalid.Field("tables", strconv.Itoa(n)+" tables", "1 to "+strconv.Itoa(MaxTables))
	}
	names, tasks := map[string]bool{}, map[task.ID]bool{}
	for _, t := range s.Tables {
		if !isTableName(t.Name) || names[t.Name] {
			return invalid.Field("tables.name", invalid.Quote(t.Name),
				"1 to 64 letters, digits, - and _, beginning with a letter, and each name once")
		}
		if tasks[t.Task] {
			return invalid.Field("tables.task", t.Task.String(), "each task once")
		}
		names[t.Name], tasks[t.Task] = true, true
	}
	if err := (&task.Task{Clients: task.Clients{Origins: s.Through}}).ValidateOrigins(); err != nil {
		return inSet(err, "clients.origins", "through")
	}
	if zero := (task.ID{}); s.Position > 0 && (s.Root == zero || s.Before == zero) {
		return invalid.Field("renewal", "without an id", "the ids of the set at position 0 and of the set before")
	}
	if want := len(s.Tables); s.Position > 0 && len(s.First) != want {
		return invalid.Field("renewal", strconv.Itoa(len(s.First))+" first tasks", "one for each of "+
			strconv.Itoa(want)+" tables")
	}
	return nil
}

// inSet returns an error about a task's field as one about the set's.
func inSet(err error, field, name string) error {
	var refused *invalid.FieldError
	if !errors.As(err, &refused) {
		return err
	}
	return invalid.Field(name+strings.TrimPrefix(refused.Field, field), refused.Got, refused.Want)
}

// isText reports whether s has 1 to 64 printable ASCII characters.
func isText(s string) bool {
	return s != "" && len(s) <= 64 && !strings.ContainsFunc(s, func(c rune) bool { return c < ' ' || c > '~' })
}

func isTableName(name string) bool {
	for i, c := range name {
		letter := c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z'
		if !letter && (i == 0 || !(c >= '0' && c <= '9' || c == '-' || c == '_')) {
			return false
		}
	}
	return name != "" && len(name) <= 64
}
