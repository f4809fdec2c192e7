package tasks

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"path/filepath"
	"slices"

	"github.com/doona-dp/doona/internal/durable"
	"github.com/doona-dp/doona/internal/taskstream"
	"github.com/doona-dp/doona/wire/handover"
	"github.com/doona-dp/doona/wire/problem"
	"github.com/doona-dp/doona/wire/tableset"
	"github.com/doona-dp/doona/wire/task"
	"github.com/doona-dp/doona/wire/taskfile"
)

// handedTable is a table of a set that an approved owner hands over.
type handedTable struct {
	*taskfile.Open
	raw   []byte           // the task's bundle
	table string           // the table's name
	list  task.KeyListHash // this relay's key list
}

// HandleOwnersSet accepts a set from an approved owner, with the tasks of all its tables. Status 204 means that the
// relay stored all of it durably and serves it.
func (d *Desk) HandleOwnersSet(w http.ResponseWriter, req *http.Request) error {
	o, nonce, err := d.fromApproved(req, handover.OwnersTaskBody)
	if err != nil {
		return err
	}
	done, err := d.admitOwner(w, o, nonce)
	if err != nil {
		return err
	}
	defer done()
	s, tables, err := d.readHanded(w, req, o)
	if err != nil {
		return err
	}
	var taken error
	err = d.whileApproved(o, func(limit int) error {
		err := d.takeSet(o, s, tables, limit)
		if err == nil {
			taken = d.takeUpSet(req.Context(), o, s)
		}
		return err
	})
	if err != nil {
		return d.refuseOwner(err)
	}
	if taken != nil {
		return taken
	}
	w.WriteHeader(http.StatusNoContent)
	return nil
}

// readHanded reads the set and the tables' bundles in a request's body, and checks that they belong together.
func (d *Desk) readHanded(w http.ResponseWriter, req *http.Request, o *owner) (*HostedSet, []handedTable, error) {
	raw, err := io.ReadAll(http.MaxBytesReader(w, req.Body, tableset.MaxHanded))
	if err != nil {
		return nil, nil, problem.New(problem.TooLarge, "at most %d bytes", tableset.MaxHanded)
	}
	handed, err := tableset.ParseHanded(raw)
	if err != nil {
		return nil, nil, problem.New(problem.Malformed, "%s", err)
	}
	s, err := newHostedSet(handed.Set, o.key, o)
	var tables []handedTable
	if err == nil {
		tables, err = d.openTables(s, handed.Tables)
	}
	if err != nil {
		return nil, nil, problem.New(problem.Malformed, "%s", err)
	}
	return s, tables, nil
}

// openTables checks the tables' bundles: they must be those that the set names.
func (d *Desk) openTables(s *HostedSet, raws [][]byte) (tables []handedTable, err error) {
	if len(raws) != len(s.Tables) {
		return nil, fmt.Errorf("couldn't accept the set: %d bundles of %d tables", len(raws), len(s.Tables))
	}
	hosted := d.Hosted().ByID
	for i, raw := range raws {
		name := s.Tables[i].Name
		bundle, err := taskfile.ParseBundle(raw)
		if err != nil {
			return nil, fmt.Errorf("table %s: %w", name, err)
		}
		open, err := bundle.Open(&s.Owner)
		if err != nil {
			return nil, fmt.Errorf("table %s: %w", name, err)
		}
		if open.ID != s.Tables[i].Task {
			return nil, fmt.Errorf("table %s: the bundle is of task %s, want %s", name, open.ID, s.Tables[i].Task)
		}
		hop := d.hopOf(open)
		if hop < 0 {
			return nil, d.notInTask()
		}
		if s.Position == 0 && hosted[open.ID] == nil { // the rules of streams apply to later tasks
			if err := d.checkOwnersTask(s.owner, open); err != nil {
				return nil, fmt.Errorf("table %s: %w", name, err)
			}
		}
		tables = append(tables, handedTable{open, raw, name, open.Relays[hop].KeyList})
	}
	return tables, nil
}

// takeSet stores a set and its tables durably, after it has checked everything that serving them needs.
func (d *Desk) takeSet(o *owner, s *HostedSet, tables []handedTable, limit int) error {
	if s.Position > 0 {
		return d.takeRenewal(o, s, tables)
	}
	var others map[task.ID]*HostedSet
	var fresh []*Hosted
	begin := func() (err error) {
		others, err = d.otherSets(o, s)
		return err
	}
	check := func(folder string, t handedTable) error {
		if err := o.checkDummies(t.Open); err != nil {
			return err
		}
		hosted, err := d.loadFirst(o.config(folder), t.raw, t.Open, o)
		if err != nil {
			return err
		}
		hosted.Keys.Close()
		fresh = append(fresh, hosted)
		trial := newSet(append(slices.Clone(d.Hosted().Order), fresh...), nil, others)
		trial.keepSet(s)
		return d.cfg.Fits(trial.Order, trial.Sets(), d.TaskLimit())
	}
	return o.takeSet(s, tables, limit, d.Clock.Read(), tableChecks{begin, check})
}

// otherSets returns the sets that this relay has, also those that another process has just accepted, and checks that
// the set may join them. The caller has locked the owner's folder.
func (d *Desk) otherSets(o *owner, s *HostedSet) (map[task.ID]*HostedSet, error) {
	others := maps.Clone(d.Hosted().sets)
	stored, err := o.sets()
	if err != nil {
		return nil, fault(err)
	}
	for _, other := range stored {
		others[other.ID] = other
	}
	return others, checkSet(s, others)
}

// takeRenewal gives each task of a renewal its position in its table's stream. Their keys come from the folders that
// wait for a task, as those of a new set.
func (d *Desk) takeRenewal(o *owner, s *HostedSet, tables []handedTable) error {
	return o.change(d.Clock.Read(), func(_ []task.ID, asked []string) error {
		others, err := d.otherSets(o, s)
		if err != nil {
			return err
		}
		root := others[s.Root]
		var next []*taskstream.StreamTask
		var from []string
		for i, t := range tables {
			l := d.Hosted().streams[root.Tables[i].Task]
			if l == nil || l.owner != o {
				return errSetTaken
			}
			n, has, err := l.Check(t.raw, t.Open, d.unixTime())
			if has {
				n = nil
			}
			folder := ""
			if n != nil && err == nil {
				folder, err = askedFor(asked, t.list)
			}
			if n != nil && err == nil {
				var hosted *Hosted
				if hosted, err = d.loadOpen(t.raw, t.Open, o.file(folder, keysFile), ""); err == nil {
					hosted.Keys.Close()
				}
			}
			if err != nil {
				return fmt.Errorf("table %s: %w", t.table, err)
			}
			next, from = append(next, n), append(from, folder)
		}
		if err := o.storeSet(s); err != nil {
			return err
		}
		for i, n := range next {
			if n == nil {
				continue
			}
			l := d.Hosted().streams[root.Tables[i].Task]
			keys := l.Keys(n.Task)
			err := durable.MakeFolder(filepath.Dir(keys), 0o700)
			if err == nil {
				err = copyFile(keys, o.file(from[i], keysFile))
			}
			if err != nil {
				return fault(err)
			}
			if err := l.Take(n); err != nil {
				return err
			}
			if !slices.Contains(from[i+1:], from[i]) {
				if err := o.remove(from[i]); err != nil {
					return fault(err)
				}
			}
		}
		return nil
	})
}

// takeUpSet starts to serve a set that was just stored, and its tables.
func (d *Desk) takeUpSet(ctx context.Context, o *owner, s *HostedSet) error {
	if err := d.takeUpSets(o); err != nil {
		return err
	}
	var failed error
	for _, t := range s.Tables {
		if s.Position == 0 {
			failed = errors.Join(failed, d.takeUpTask(ctx, o, t.Task))
		} else if l := d.Hosted().streamOf(t.Task); l != nil {
			failed = errors.Join(failed, d.takeUp(ctx, l))
		}
	}
	return failed
}

// streamOf returns the stream that has a task, or nil.
func (n *Set) streamOf(id task.ID) *stream {
	for _, l := range n.streams {
		if slices.ContainsFunc(l.Tasks(), func(t *taskstream.StreamTask) bool { return t.ID == id }) {
			return l
		}
	}
	return nil
}

// takeUpSets starts to serve the sets in an owner's folder that this process does not have yet. It comes before the
// tables are served, so that the relay never takes single reports to them.
func (h *Host) takeUpSets(o *owner) error {
	h.joining.Lock()
	defer h.joining.Unlock()
	all, err := o.sets()
	if err != nil {
		return err
	}
	stored := map[task.ID]*HostedSet{}
	for _, s := range all {
		stored[s.ID] = s
	}
	kept, err := h.withoutDroppedSets(o, stored) // a crash may have left the file of a dropped set
	now := h.Hosted()
	all = slices.DeleteFunc(all, func(s *HostedSet) bool { return now.sets[s.ID] != nil || kept[s.ID] == nil })
	if len(all) == 0 {
		return err
	}
	next := newSet(slices.Clone(now.Order), maps.Clone(now.streams), now.sets)
	for _, s := range all {
		if refused := next.addSet(s); refused != nil {
			err = errors.Join(err, fmt.Errorf("set %s: %w", s.ShortID(), refused))
			continue
		}
		h.cfg.Log.Info("owner's set accepted", "set", s.ShortID(), "position", s.Position)
	}
	h.publish(next)
	return err
}

// withoutDroppedSets returns the sets without those of an owner whose slots are all gone. It removes their files,
// except if the whole folder is missing.
func (h *Host) withoutDroppedSets(o *owner, sets map[task.ID]*HostedSet) (map[task.ID]*HostedSet, error) {
	kept := maps.Clone(sets)
	var failed error
	for id, s := range sets {
		root := sets[s.RootID()]
		if s.owner != o || root == nil || !o.droppedAll(root) {
			continue
		}
		delete(kept, id)
		failed = errors.Join(failed, o.removeSet(s, root))
	}
	return kept, failed
}
