package tasks

import (
	"encoding/hex"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/doona-dp/doona/internal/durable"
	"github.com/doona-dp/doona/internal/invalid"
	"github.com/doona-dp/doona/internal/service"
	"github.com/doona-dp/doona/wire/handover"
	"github.com/doona-dp/doona/wire/keyfile"
	"github.com/doona-dp/doona/wire/problem"
	"github.com/doona-dp/doona/wire/signing"
	"github.com/doona-dp/doona/wire/task"
	"github.com/doona-dp/doona/wire/taskfile"
)

// An approved owner may withdraw a task, or a stream, that it handed over. All epochs of the task are then over from
// that moment on, also those that have not begun. So their keys are erased, and their open batches destroyed, by the
// same steps and in the same order as those of other epochs that are over: see package epochs.

const withdrawnPrefix = "withdrawn-"

// mostWithdrawn is how many withdrawn tasks of one owner a relay remembers. Then it makes no more keys for the owner.
const mostWithdrawn = 4096

// withdrawal says that an owner has withdrawn the task or stream in a slot.
type withdrawal struct {
	at  time.Time    // had surely come when the relay accepted the withdrawal
	key task.SignKey // signed it
}

// withdrawnMarks lists the files that say which slots the owner has withdrawn. They stay after the task is dropped.
func (p *ownerFolder) withdrawnMarks() ([]string, error) {
	return filepath.Glob(p.file(withdrawnPrefix + "*"))
}

// manyWithdrawn reports whether the relay remembers mostWithdrawn withdrawals of the owner.
func (p *ownerFolder) manyWithdrawn() bool {
	files, err := p.withdrawnMarks()
	return err != nil || len(files) >= mostWithdrawn
}

// hasWithdrawn reports whether the owner has withdrawn the task or stream in a slot.
func (p *ownerFolder) hasWithdrawn(slot task.ID) bool {
	_, err := os.Stat(p.file(withdrawnPrefix + slot.String()))
	return err == nil
}

// checkWithdrawn returns an error if the owner has withdrawn the task in a slot.
func (p *ownerFolder) checkWithdrawn(slot task.ID) error {
	if p.hasWithdrawn(slot) {
		return invalid.Field("task", slot.String(), "a task that its owner has not withdrawn")
	}
	return nil
}

// withdraw durably stores that the owner has withdrawn the task or stream in a slot. signature is the signed header of
// the owner's request.
func (p *ownerFolder) withdraw(slot task.ID, w withdrawal, signature string) error {
	return p.alone(func() error {
		if p.hasWithdrawn(slot) {
			return nil
		}
		text := fmt.Sprintf("%d %s %s\n", w.at.Unix(), taskfile.FormatKey(w.key), signature)
		return fault(durable.WriteFile(p.file(withdrawnPrefix+slot.String()), []byte(text), 0o600))
	})
}

// withdrawals reads all withdrawals of the owner, by slot.
func (p *ownerFolder) withdrawals() (map[task.ID]withdrawal, error) {
	files, err := p.withdrawnMarks()
	if err != nil {
		return nil, err
	}
	all := map[task.ID]withdrawal{}
	for _, file := range files {
		id, err := hex.DecodeString(strings.TrimPrefix(filepath.Base(file), withdrawnPrefix))
		if err != nil || len(id) != len(task.ID{}) {
			continue // such as a file that WriteFile has not renamed
		}
		raw, err := os.ReadFile(file)
		if err != nil {
			return nil, err
		}
		var at int64
		var text string
		_, err = fmt.Sscan(string(raw), &at, &text)
		key, keyErr := taskfile.ParseKey("key", text)
		if err = errors.Join(err, keyErr); err != nil {
			return nil, fmt.Errorf("%s: %w", file, err)
		}
		all[task.ID(id)] = withdrawal{time.Unix(at, 0), key}
	}
	return all, nil
}

// using returns how many of the tasks in the folder use a slot. Withdrawn ones use none, at most as many as limit:
// until they are dropped, each takes memory.
func (p *ownerFolder) using(tasks []task.ID, limit int) int {
	kept := slices.DeleteFunc(slices.Clone(tasks), p.hasWithdrawn)
	return max(len(kept), len(tasks)-limit)
}

// withdrawnSlots returns the withdrawals that this process knows.
func (o *owner) withdrawnSlots() map[task.ID]withdrawal {
	if all := o.withdrawn.Load(); all != nil {
		return *all
	}
	return nil
}

// readWithdrawals reads the withdrawals in the owner's folder, and returns the slots of those that are new to this
// process. It never forgets one: somebody may have deleted the file.
func (o *owner) readWithdrawals() (fresh []task.ID, err error) {
	all, err := o.withdrawals()
	if err != nil {
		return nil, err
	}
	known := o.withdrawnSlots()
	for slot := range all {
		if _, has := known[slot]; !has {
			fresh = append(fresh, slot)
		}
	}
	maps.Copy(all, known)
	o.withdrawn.Store(&all)
	return fresh, nil
}

// IsWithdrawn reports whether the task's owner has withdrawn it, or its stream.
func (s *Hosted) IsWithdrawn() bool { return !s.withdrawnAt().IsZero() }

// withdrawnAt returns when the owner withdrew the task, or zero.
func (s *Hosted) withdrawnAt() time.Time {
	if s.owner == nil {
		return time.Time{}
	}
	return s.owner.withdrawnSlots()[s.Slot()].at
}

// EndsBy returns a planned time, or the time when the owner withdrew the task, if that is earlier.
func (s *Hosted) EndsBy(planned time.Time) time.Time {
	if at := s.withdrawnAt(); !at.IsZero() && at.Before(planned) {
		return at
	}
	return planned
}

// NeverBegins reports whether the owner withdrew the task before the epoch began. The relay takes no batch of it.
func (e Epoch) NeverBegins() bool {
	at := e.withdrawnAt()
	start, _ := e.Window()
	return !at.IsZero() && at.Before(start)
}

// Erasing returns how many epochs of a withdrawn task still have keys.
func (s *Hosted) Erasing() (n uint64) {
	if !s.IsWithdrawn() {
		return 0
	}
	for e := range s.EachEpoch() {
		if _, err := s.Keys.Key(e.Number); !errors.Is(err, keyfile.ErrErased) {
			n++
		}
	}
	return n
}

// takeUpWithdrawals makes the withdrawals in an owner's folder take effect in this process.
func (h *Host) takeUpWithdrawals(o *owner) error {
	h.joining.Lock()
	defer h.joining.Unlock()
	fresh, err := o.readWithdrawals()
	if len(fresh) > 0 {
		now := h.Hosted()
		h.publish(newSet(slices.Clone(now.Order), now.streams, now.sets)) // because the tasks are due now
	}
	for _, slot := range fresh {
		h.cfg.Log.Warn("task withdrawn by its owner", "task", slot.String()[:8])
	}
	return err
}

// slot returns the tasks in a slot of an owner.
func (n *Set) slot(id task.ID) (its []*Hosted) {
	for _, s := range n.Order {
		if s.Slot() == id {
			its = append(its, s)
		}
	}
	return its
}

// HandleWithdrawal withdraws a task or a stream that an approved owner handed over. Status 204 means that the relay
// accepts no more reports of it, permanently. The next ticks of package epochs erase its keys.
func (d *Desk) HandleWithdrawal(w http.ResponseWriter, req *http.Request) error {
	key, err := service.PathKey[task.SignKey](req, "owner")
	if err != nil {
		return err
	}
	id, err := service.PathKey[task.ID](req, "task")
	if err != nil {
		return problem.New(problem.UnknownTask, "")
	}
	o, err := d.ownerToWithdraw(id)
	if err != nil {
		return err
	}
	signature := req.Header.Get(handover.Header)
	ok := slices.ContainsFunc(d.cfg.Signers.Public(), func(own task.SignKey) bool {
		_, ok := handover.Verify(key, signing.Withdraw, handover.WithdrawBody(own, id), signature)
		return ok
	})
	if !ok || !d.mayWithdraw(o, id, key) {
		return problem.New(problem.Unauthorized, "")
	}
	if back := d.Store.StateRollback(); back != nil {
		return back
	}
	h := d.Host
	h.owning.RLock()
	defer h.owning.RUnlock()
	if h.ownerOf(o.key) != o {
		return problem.New(problem.Unauthorized, "")
	}
	now := d.Clock.Read()
	at := now.Sure
	if at.IsZero() {
		at = now.Now
	}
	err = d.monitor.WithReserve(func() error { return o.withdraw(id, withdrawal{at, key}, signature) })
	if err == nil {
		err = h.takeUpWithdrawals(o)
	}
	if err != nil {
		return err
	}
	w.WriteHeader(http.StatusNoContent)
	return nil
}

// ownerToWithdraw returns the approved owner in whose folder a task is, or was before the owner withdrew it.
func (d *Desk) ownerToWithdraw(id task.ID) (*owner, error) {
	now := d.Hosted()
	its := now.slot(id)
	for _, s := range its {
		switch {
		case s.owner == nil:
			return nil, problem.New(problem.Unauthorized, "the relay's operator configured this task: ask the operator")
		case now.SetWith(s.ID) != nil:
			return nil, problem.New(problem.Malformed, "the task is a table of a set: withdraw the set")
		}
	}
	if len(its) > 0 {
		return its[0].owner, nil
	}
	if s := now.ByID[id]; s != nil {
		return nil, problem.New(problem.Malformed, "the task is a later one of a stream: withdraw the first, %s", s.Slot())
	}
	for _, o := range d.approved() {
		if _, has := o.withdrawnSlots()[id]; has {
			return o, nil
		}
	}
	return nil, problem.New(problem.UnknownTask, "")
}

// mayWithdraw reports whether a key may withdraw the task or stream in an owner's slot: the owner's, of a stream the
// one that signs its tasks now. Whoever has withdrawn it may repeat that.
func (d *Desk) mayWithdraw(o *owner, id task.ID, key task.SignKey) bool {
	if done, has := o.withdrawnSlots()[id]; has {
		return key == done.key
	}
	if l := d.Hosted().streams[id]; l != nil {
		return l.MayWithdraw(key)
	}
	return key == o.key
}
