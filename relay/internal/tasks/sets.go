package tasks

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"os"
	"slices"
	"strings"
	"sync"

	"github.com/doona-dp/doona/internal/invalid"
	"github.com/doona-dp/doona/internal/service"
	"github.com/doona-dp/doona/wire/codec"
	"github.com/doona-dp/doona/wire/onion"
	"github.com/doona-dp/doona/wire/problem"
	"github.com/doona-dp/doona/wire/tableset"
	"github.com/doona-dp/doona/wire/task"
	"github.com/doona-dp/doona/wire/taskfile"
)

// SetSource names a set that the operator has agreed to serve. Its fields are those of relay.SetConfig.
type SetSource struct {
	File  string
	Owner string
}

// HostedSet is a set of tables. Every relay of the set keeps it, so that none takes two renewals for one position. The
// first relay also takes its submissions.
type HostedSet struct {
	*tableset.Open
	SlotLayouts []onion.Layout // by table: see [tableset.Open.Layouts]

	raw    []byte                   // the set's bundle
	packed func() []byte            // answer to GET /v1/sets/{set}
	owner  *owner                   // approved owner who handed it over; nil if the operator configured it
	first  *Hosted                  // the first table; nil while a table is missing
	lists  [][]*onion.SignedKeyList // by clock: its key lists with all keys; nil while a table is missing
}

// newHostedSet checks a set's bundle. Its tables need not be served yet: see [HostedSet.withTables].
func newHostedSet(raw []byte, key task.SignKey, o *owner) (*HostedSet, error) {
	bundle, err := tableset.ParseBundle(raw)
	if err != nil {
		return nil, err
	}
	open, err := bundle.Open(&key)
	if err != nil {
		return nil, err
	}
	s := &HostedSet{Open: open, raw: raw, owner: o,
		packed: sync.OnceValue(func() []byte { return tableset.Pack(raw) })}
	s.SlotLayouts, err = open.Layouts()
	return s, err
}

// withTables returns the set with its tables, if all of them are among the hosted tasks. It returns s itself if a table
// is missing, or if s had all tables before: they expire together, so the relay still needs s when the first is
// dropped.
func (s *HostedSet) withTables(hosted map[task.ID]*Hosted) *HostedSet {
	if s.first != nil || len(s.missing(hosted)) > 0 {
		return s
	}
	next := *s
	next.first = hosted[s.Tables[0].Task]
	next.lists = make([][]*onion.SignedKeyList, len(s.Lists))
	for i, clock := range s.Clock {
		if next.lists[clock] == nil {
			next.lists[clock] = hosted[s.Tables[i].Task].Lists()
		}
	}
	return &next
}

// missing lists the names of the tables that are not among the hosted tasks.
func (s *HostedSet) missing(hosted map[task.ID]*Hosted) (names []string) {
	for _, t := range s.Tables {
		if hosted[t.Task] == nil {
			names = append(names, t.Name)
		}
	}
	return names
}

// Missing lists the names of the tables that the relay does not have, so that it does not serve the set. The owner must
// hand the set over again: a crash interrupted it.
func (n *Set) Missing(s *HostedSet) []string {
	if s.first != nil {
		return nil
	}
	return s.missing(n.ByID)
}

// First returns the set's first table, which decides about submissions, or nil if the relay does not serve the set.
func (s *HostedSet) First() *Hosted { return s.first }

// BodySize returns the size of the set's submissions, in bytes.
func (s *HostedSet) BodySize() int { return onion.SetBody(s.SlotLayouts) }

// ShortID returns the first 8 hex digits of the set's id, its name in logs.
func (s *HostedSet) ShortID() string { return s.ID.String()[:8] }

// Sets returns the sets that the relay has, by root and position.
func (n *Set) Sets() []*HostedSet {
	return slices.SortedFunc(maps.Values(n.sets), func(a, b *HostedSet) int {
		if c := strings.Compare(a.RootID().String(), b.RootID().String()); c != 0 {
			return c
		}
		return cmp.Compare(a.Position, b.Position)
	})
}

// SetWith returns the set of which a task is a table, or nil.
func (n *Set) SetWith(table task.ID) *HostedSet { return n.tables[table] }

// SetByID returns the set with an id, if the relay serves it, or nil.
func (n *Set) SetByID(id task.ID) *HostedSet {
	if s := n.sets[id]; s != nil && s.first != nil {
		return s
	}
	return nil
}

// latestSet returns the set with an id. If that is a set at position 0, it returns the latest renewal that has begun at
// Unix time now, or else the set itself.
func (n *Set) latestSet(id task.ID, now uint64) *HostedSet {
	latest := n.SetByID(id)
	for _, s := range n.sets {
		if s.first != nil && s.Position > 0 && s.Root == id && s.Tasks[0].Epochs.Start <= now &&
			(latest == nil || s.Position > latest.Position) {
			latest = s
		}
	}
	return latest
}

// addSet adds a set, after it has compared it with the others.
func (n *Set) addSet(s *HostedSet) error {
	if err := checkSet(s, n.sets); err != nil {
		return err
	}
	n.keepSet(s)
	return nil
}

func (n *Set) keepSet(s *HostedSet) {
	s = s.withTables(n.ByID)
	n.sets[s.ID] = s
	for _, t := range s.Tables {
		n.tables[t.Task] = s
	}
}

// nameSeries makes the tables of each set count in the set's series of metrics.
func (n *Set) nameSeries() {
	for table, s := range n.tables {
		if hosted := n.ByID[table]; hosted != nil {
			name := s.RootID().String()[:8]
			hosted.series.Store(&name)
		}
	}
}

// errSetTaken means that another set has a renewal's position.
var errSetTaken = errors.New("another set has this position, or the set before is missing")

// checkSet returns an error if a set and the others must not be served by one relay: if they have a common task, or if
// the set is no renewal that may follow the others.
func checkSet(s *HostedSet, others map[task.ID]*HostedSet) error {
	for _, other := range others {
		if other.ID == s.ID {
			continue
		}
		if s.Position > 0 && other.RootID() == s.Root && other.Position == s.Position {
			return errSetTaken
		}
		for _, t := range other.Tables {
			if slices.ContainsFunc(s.Tables, func(own tableset.Table) bool { return own.Task == t.Task }) {
				return invalid.Field("tables.task", t.Task.String(),
					"a task of no other set; it is in "+other.ID.String())
			}
		}
	}
	if s.Position == 0 {
		return nil
	}
	root, before := others[s.Root], others[s.Before]
	if root == nil || before == nil {
		return errSetTaken
	}
	return root.CheckRenewal(before.Open, s.Open)
}

// loadSets adds the sets that the operator configured, and then those of approved owners, to the tasks that were
// loaded.
func (r *Registry) loadSets(n *Set) error {
	for _, c := range r.cfg.Sets {
		if err := r.loadSet(n, c); err != nil {
			return fmt.Errorf("%s: %w", c.File, err)
		}
	}
	for _, o := range r.approved() {
		all, err := o.sets()
		if err != nil {
			return err
		}
		for _, s := range all {
			if err := n.addSet(s); err != nil {
				return fmt.Errorf("%s: %w", o.file(setPrefix+s.ID.String()), err)
			}
		}
	}
	return nil
}

// loadSet adds a configured set.
func (r *Registry) loadSet(n *Set, c SetSource) error {
	key, err := taskfile.ParseKey("owner", c.Owner)
	if err != nil {
		return err
	}
	raw, err := os.ReadFile(c.File)
	if err != nil {
		return fmt.Errorf("couldn't read a set: %w", err)
	}
	s, err := newHostedSet(raw, key, nil)
	if err != nil {
		return err
	}
	for _, t := range s.Tables {
		hosted := n.ByID[t.Task]
		if hosted == nil || hosted.owner != nil || hosted.Open.Owner != key {
			return invalid.Field("sets.tables."+t.Name, t.Task.String(),
				"a task that is listed under tasks, of the set's owner")
		}
	}
	return n.addSet(s)
}

// HandleSet answers with the bundle of a set, or of the latest renewal that has begun if the path names the set at
// position 0.
func (d *Desk) HandleSet(w http.ResponseWriter, req *http.Request) error {
	s, err := d.pathSet(req)
	if err != nil {
		return err
	}
	return service.Write(w, codec.MediaType, s.packed())
}

func (d *Desk) pathSet(req *http.Request) (*HostedSet, error) {
	id, err := service.PathKey[task.ID](req, "set")
	if err != nil {
		return nil, problem.New(problem.UnknownTask, "")
	}
	if s := d.Hosted().latestSet(id, d.unixTime()); s != nil {
		return s, nil
	}
	return nil, problem.New(problem.UnknownTask, "")
}

// HandleSetKeys answers with the keys of one block of epochs of a set's clock. The path has the set's own id.
func (d *Desk) HandleSetKeys(w http.ResponseWriter, req *http.Request) error {
	id, err := service.PathKey[task.ID](req, "set")
	s := d.Hosted().SetByID(id)
	if err != nil || s == nil {
		return problem.New(problem.UnknownTask, "")
	}
	clock, err := service.PathNumber(req, "clock", 0, uint64(len(s.lists)-1))
	if err != nil {
		return err
	}
	t := s.Tasks[slices.Index(s.Clock, int(clock))]
	block, err := service.PathNumber(req, "block", 0, (t.Epochs.Count-1)/onion.BlockEpochs)
	if err != nil {
		return err
	}
	keys, err := tableset.KeysOf(s.lists[clock], block*onion.BlockEpochs).Bytes()
	if err != nil {
		return err
	}
	return service.Write(w, codec.MediaType, keys)
}
