package tasks

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"

	"github.com/doona-dp/doona/internal/invalid"
	"github.com/doona-dp/doona/wire/problem"
)

// IsSuspended reports whether the operator has suspended the task's owner. The relay then accepts no reports of the
// task. What it has accepted still goes to the next hop, and its keys are erased at the same time as otherwise.
func (s *Hosted) IsSuspended() bool { return s.owner != nil && s.owner.source.Load().Suspended }

// SuspendedProblem returns the answer to a report of a suspended owner's task. The client may send the same bytes
// later: the operator may end the suspension while the epoch is open.
func SuspendedProblem() error {
	return problem.New(problem.Overloaded, "the relay accepts no reports of this task now").Retry(RollbackRetry)
}

// checkSuspended returns a problem if the operator has suspended the owner. A nil owner, of a task that the operator
// configured, is never suspended.
func (o *owner) checkSuspended() error {
	if o != nil && o.source.Load().Suspended {
		return problem.New(problem.OwnerTaskLimit, "the relay's operator has suspended this owner")
	}
	return nil
}

// whileApproved calls do with the owner's task limit, if the owner is still approved and not suspended. The approved
// owners do not change meanwhile.
func (h *Host) whileApproved(o *owner, do func(limit int) error) error {
	h.owning.RLock()
	defer h.owning.RUnlock()
	if h.ownerOf(o.key) != o {
		return problem.New(problem.Unauthorized, "")
	}
	if err := o.checkSuspended(); err != nil {
		return err
	}
	return do(o.source.Load().Tasks)
}

// whileAccepted calls do, if no suspension or withdrawal forbids the next task of a stream. A stream that the operator
// configured has no owner.
func (h *Host) whileAccepted(l *stream, do func() error) error {
	if l.owner == nil {
		return do()
	}
	return h.whileApproved(l.owner, func(int) error {
		if err := l.owner.checkWithdrawn(l.root.ID); err != nil {
			return err
		}
		return do()
	})
}

// SetOwners replaces the approved owners while the relay runs. Owners may be added, limited, suspended and, without
// tasks, removed. It makes either all changes or, if it returns an error, none. No change erases keys, or serves a task
// with other keys.
func (h *Host) SetOwners(sources []OwnerSource) error {
	h.owning.Lock()
	defer h.owning.Unlock()
	plan, err := h.planOwners(sources)
	if err != nil {
		return err
	}
	if err := h.prepareOwners(plan.added); err != nil {
		return err
	}
	h.applyOwners(plan)
	return nil
}

// ownersPlan holds the changes of the approved owners that a new configuration makes.
type ownersPlan struct {
	next           []*owner
	sources        []OwnerSource // of next
	added, removed []*owner
	paths          map[string]bool
}

// planOwners checks a new configuration of the owners. It changes nothing. An owner that is approved already stays the
// same *owner, because its tasks refer to it.
func (h *Host) planOwners(sources []OwnerSource) (*ownersPlan, error) {
	plan := &ownersPlan{sources: sources, paths: maps.Clone(h.paths)}
	limit := len(h.cfg.Tasks)
	for _, c := range sources {
		o, err := newOwner(c)
		if err != nil {
			return nil, err
		}
		at := slices.IndexFunc(plan.next, func(n *owner) bool { return n.key == o.key })
		switch now := h.ownerOf(o.key); {
		case at >= 0:
			err = claim(c, plan.next[at], plan.paths)
		case now != nil:
			o, err = now, now.checkSame(c)
		default:
			plan.added = append(plan.added, o)
			_, failed := o.readWithdrawals()
			err = errors.Join(failed, claim(c, nil, plan.paths), o.checkEmpty("start the relay again to serve them"))
		}
		if err != nil {
			return nil, err
		}
		plan.next = append(plan.next, o)
		limit += c.Tasks
	}
	for _, o := range h.approved() {
		if slices.Contains(plan.next, o) {
			continue
		}
		if err := o.checkEmpty("suspend the owner, and remove its entry when it has none"); err != nil {
			return nil, err
		}
		if h.hasTasks(o) { // although its folder is empty
			return nil, fmt.Errorf("owner %s has tasks, but its folder %s is missing: mount its volume", o.source.Load().Owner, o.path)
		}
		plan.removed = append(plan.removed, o)
		delete(plan.paths, resolved(o.path))
	}
	return plan, h.cfg.Fits(h.Hosted().Order, h.Hosted().Sets(), limit)
}

// prepareOwners creates the folders of new owners and reserves space there. After an error nothing is reserved.
func (h *Host) prepareOwners(added []*owner) error {
	for _, o := range added {
		if err := errors.Join(o.prepare(), o.reserveSpace(h.monitor.Reserve)); err != nil {
			return errors.Join(err, h.unreserve(added))
		}
	}
	if len(added) == 0 {
		return nil
	}
	// Otherwise the relay would find a full disk later, and then refuse all reports.
	if err := h.monitor.Reserve.Fill(); err != nil {
		failed := errors.Join(err, h.unreserve(added))
		_ = h.monitor.Reserve.Fill() // The status shows what else is short.
		return failed
	}
	return nil
}

// unreserve frees the disk space that is reserved in owners' folders. The operator may then delete the folders.
func (h *Host) unreserve(owners []*owner) (failed error) {
	for _, o := range owners {
		failed = errors.Join(failed, h.monitor.Reserve.Remove(o.file(ownerFile)))
	}
	return failed
}

// checkSame returns an error if a new configuration changes what only a restart may change.
func (o *owner) checkSame(c OwnerSource) error {
	now, want := o.source.Load(), "no change without a restart"
	switch {
	case resolved(c.Folder) != resolved(now.Folder):
		return invalid.Field("owners.folder", strconv.Quote(c.Folder), want)
	case c.Recovery != now.Recovery:
		return invalid.Field("owners.recovery", strconv.Quote(c.Recovery), want)
	case !slices.Equal(c.Candidates, now.Candidates):
		return invalid.Field("owners.candidates", fmt.Sprint(c.Candidates), want)
	}
	return nil
}

// checkEmpty returns an error that says what to do if the owner's folder has tasks or keys that wait for a task.
func (o *owner) checkEmpty(do string) error {
	tasks, asked, err := o.taken()
	if err == nil && len(tasks)+len(asked) > 0 {
		err = fmt.Errorf("owner %s has %d tasks and %d waiting key lists: %s", o.source.Load().Owner, len(tasks),
			len(asked), do)
	}
	return err
}

// hasTasks reports whether the relay serves a task or follows a stream of an owner.
func (h *Host) hasTasks(o *owner) bool {
	now := h.Hosted()
	for _, l := range now.streams {
		if l.owner == o {
			return true
		}
	}
	return slices.ContainsFunc(now.Order, func(s *Hosted) bool { return s.owner == o })
}

// applyOwners makes the changes that planOwners has checked.
func (h *Host) applyOwners(plan *ownersPlan) {
	for i, o := range plan.next {
		c, was := plan.sources[i], o.source.Swap(&plan.sources[i])
		what := ""
		switch {
		case slices.Contains(plan.added, o):
			what = "owner added"
		case c.Suspended != was.Suspended || c.Tasks != was.Tasks || c.OwnerLimits != was.OwnerLimits:
			what = "owner changed"
		default:
			continue
		}
		h.cfg.Log.Info(what, "folder", c.Folder, "limit", c.Tasks, "suspended", c.Suspended)
	}
	h.owners.Store(&plan.next)
	h.limit.Store(int64(h.limitWith(plan.next)))
	h.paths = plan.paths
	for _, o := range plan.removed {
		h.cfg.Log.Info("owner removed", "folder", o.path)
	}
	if err := h.unreserve(plan.removed); err != nil {
		h.cfg.Log.Error("couldn't free reserved disk space", "error", err)
	}
}
