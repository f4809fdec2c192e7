package tasks

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/doona-dp/doona/internal/clock"
	"github.com/doona-dp/doona/internal/durable"
	"github.com/doona-dp/doona/internal/invalid"
	"github.com/doona-dp/doona/internal/service"
	"github.com/doona-dp/doona/relay/internal/monitor"
	"github.com/doona-dp/doona/wire/codec"
	"github.com/doona-dp/doona/wire/handover"
	"github.com/doona-dp/doona/wire/problem"
	"github.com/doona-dp/doona/wire/signing"
	"github.com/doona-dp/doona/wire/task"
	"github.com/doona-dp/doona/wire/taskfile"
)

// owner is a task owner whom the operator approved. It hands over tasks without asking the operator; the relay serves
// them like configured tasks.
type owner struct {
	*ownerFolder
	source atomic.Pointer[OwnerSource] // a reload may change its Tasks, OwnerLimits and Suspended
	key    task.SignKey
	posted chan struct{} // holds a value while the relay handles a request of the owner

	withdrawn atomic.Pointer[map[task.ID]withdrawal] // see withdrawnSlots
	use       ownerUse

	upToDate time.Time // of [Host.followOwners]: the folder's last change when nothing was left to do, or zero
}

// config returns the configuration of the owner's task that is stored in folder.
func (o *owner) config(folder string) Source {
	in := func(name string) string { return filepath.Join(folder, name) }
	c := o.source.Load()
	return Source{File: in(bundleFile), Owner: c.Owner, HPKEKeys: in(keysFile), Successors: in(successorsFolder),
		Recovery: c.Recovery, Candidates: c.Candidates}
}

// sets returns the sets in the owner's folder. Each follows the set that it renews.
func (o *owner) sets() (all []*HostedSet, err error) {
	files, err := filepath.Glob(o.file(setPrefix + "*"))
	for _, file := range files {
		raw, err := os.ReadFile(file)
		if err != nil {
			return nil, err
		}
		s, err := newHostedSet(raw, o.key, o)
		if err == nil && setPrefix+s.ID.String() != filepath.Base(file) {
			err = invalid.Field("set", s.ID.String(), "the set that its file names")
		}
		if err != nil {
			return nil, fmt.Errorf("%s: %w", file, err)
		}
		all = append(all, s)
	}
	slices.SortFunc(all, func(a, b *HostedSet) int { return cmp.Compare(a.Position, b.Position) })
	return all, err
}

// ShortKey returns the first 8 characters of a key after "ed25519:", the name of an owner in metrics.
func ShortKey(key string) string {
	_, text, _ := strings.Cut(key, ":")
	return text[:min(8, len(text))]
}

// mostOwnersTasks is the largest task limit that the operator can give an owner.
const mostOwnersTasks = 1024

// loadOwners approves the configured owners, and returns the tasks in their folders.
func (r *Registry) loadOwners() (all []*loading, err error) {
	for _, c := range r.cfg.Owners {
		o, err := newOwner(c)
		if err != nil {
			return nil, err
		}
		if err := claim(c, r.ownerOf(o.key), r.paths); err != nil {
			return nil, err
		}
		approved := append(slices.Clone(r.approved()), o)
		r.owners.Store(&approved)
		tasks, _, err := o.taken()
		if err == nil {
			_, err = o.readWithdrawals()
		}
		if err != nil {
			return nil, err
		}
		for _, id := range tasks {
			all = append(all, &loading{Source: o.config(o.file(id.String())), owner: o})
		}
	}
	return all, nil
}

// newOwner returns the owner of a configuration, whose values it checks, except the folder.
func newOwner(c OwnerSource) (*owner, error) {
	key, err := taskfile.ParseKey("owners.owner", c.Owner)
	if err != nil {
		return nil, err
	}
	if _, err := taskfile.ParseRecovery(c.Recovery); err != nil {
		return nil, err
	}
	if _, err := parseCandidates(c.Candidates); err != nil {
		return nil, err
	}
	if c.Tasks < 1 || c.Tasks > mostOwnersTasks {
		return nil, invalid.Field("owners.tasks", strconv.Itoa(c.Tasks), fmt.Sprintf("1 to %d", mostOwnersTasks))
	}
	if err := c.OwnerLimits.check(); err != nil {
		return nil, err
	}
	o := &owner{ownerFolder: &ownerFolder{c.Folder}, key: key, posted: make(chan struct{}, 1)}
	o.source.Store(&c)
	return o, nil
}

// claim adds an owner's folder to the paths in use. other is an owner with the same key, which must not exist.
func claim(c OwnerSource, other *owner, paths map[string]bool) error {
	folder := resolved(c.Folder)
	switch {
	case other != nil:
		return invalid.Field("owners.owner", c.Owner, "each owner only once")
	case c.Folder == "" || paths[folder]:
		return invalid.Field("owners.folder", strconv.Quote(c.Folder), "a separate folder for each owner")
	}
	paths[folder] = true
	return nil
}

// approved returns the approved owners.
func (r *Registry) approved() []*owner {
	if all := r.owners.Load(); all != nil {
		return *all
	}
	return nil
}

// Prepare creates the missing folders of approved owners at the start: see [ownerFolder.prepare].
func (r *Registry) Prepare() error {
	for _, o := range r.approved() {
		if err := o.prepare(); err != nil {
			return err
		}
	}
	return nil
}

// KeepRoom reserves disk space in the owners' folders, so that the relay can erase keys on a full disk.
func (r *Registry) KeepRoom(in *durable.Reserve) error {
	for _, o := range r.approved() {
		if err := o.reserveSpace(in); err != nil {
			return err
		}
	}
	return nil
}

// ownerTasks counts the task slots that an approved owner uses.
type ownerTasks struct {
	Owner     string
	Folder    string
	TaskLimit int
	Tasks     int // those that use a slot; a stream counts as one task
	Withdrawn int // tasks that the owner has withdrawn and the relay has not dropped
	Asked     int // key lists made for the owner that wait for their task
	Suspended bool
	Limited   bool // a limit has refused a report lately
	OwnerLimits
}

// OwnersTasks returns these counts for each approved owner.
func (r *Registry) OwnersTasks() (all []ownerTasks, err error) {
	for _, o := range r.approved() {
		tasks, asked, err := o.taken()
		if err != nil {
			return nil, err
		}
		c := o.source.Load()
		using := o.using(tasks, c.Tasks)
		all = append(all, ownerTasks{c.Owner, c.Folder, c.Tasks, using, len(tasks) - using, len(asked), c.Suspended,
			o.use.isLimited(), c.OwnerLimits})
	}
	return all, nil
}

func (r *Registry) ownerOf(key task.SignKey) *owner {
	all := r.approved()
	at := slices.IndexFunc(all, func(o *owner) bool { return o.key == key })
	if at < 0 {
		return nil
	}
	return all[at]
}

// followOwners serves the tasks that other processes accepted from owners, and removes keys whose task has not come in
// time. It does not read a folder again in which it left nothing to do and which has not changed since.
func (h *Host) followOwners(ctx context.Context) {
	for _, o := range h.approved() {
		changed := o.lastChange()
		if changed.Equal(o.upToDate) {
			continue
		}
		tasks, asked, err := o.taken()
		if err == nil {
			err = errors.Join(o.clear(asked, h.Clock.Read()), h.takeUpWithdrawals(o), h.takeUpSets(o),
				h.takeUpTasks(ctx, o, tasks))
		}
		if o.upToDate = changed; err != nil || len(asked) > 0 {
			o.upToDate = time.Time{}
		}
		h.monitor.Logged(ctx, "couldn't read an owner's tasks", err)
	}
}

// takeUpTasks starts to serve those tasks of an owner's folder that this process does not serve yet.
func (h *Host) takeUpTasks(ctx context.Context, o *owner, tasks []task.ID) (err error) {
	for _, id := range tasks {
		err = errors.Join(err, h.takeUpTask(ctx, o, id))
	}
	return err
}

// takeUpTask starts to serve one task of an owner, unless this process serves it already. [Host.takeUp] does the same
// for the task's successors.
func (h *Host) takeUpTask(ctx context.Context, o *owner, id task.ID) error {
	h.joining.Lock()
	defer h.joining.Unlock()
	if now := h.Hosted(); now.ByID[id] != nil || now.streams[id] != nil {
		return nil
	}
	c := o.config(o.file(id.String()))
	raw, open, err := loadBundle(c)
	if err == nil && open.ID != id {
		err = invalid.Field("task", open.ID.String(), "the task that its folder names, "+id.String())
	}
	if err != nil {
		return err
	}
	s, err := h.loadFirst(c, raw, open, o)
	if err == nil {
		err = h.begin(ctx, s)
	}
	if err != nil {
		return err
	}
	h.cfg.Log.Info("owner's task accepted", "task", s.ShortID())
	return o.reserveSpace(h.monitor.Reserve)
}

// reserveSpace reserves disk space in the owner's folder, so that the relay can erase keys on a full disk.
func (o *owner) reserveSpace(in *durable.Reserve) error {
	if err := durable.MakeFolder(o.path, 0o700); err != nil {
		return invalid.Field("owners.folder", o.path, fmt.Sprintf("a folder that the relay can create (%v)", err))
	}
	tasks, _, err := o.taken()
	var files []string
	for _, id := range tasks {
		files = append(files, o.file(id.String(), keysFile))
	}
	return errors.Join(err, in.Add(o.file(ownerFile), durable.KeyReserve(files...)))
}

// fromApproved returns the approved owner who signed a request, and the request's nonce.
func (d *Desk) fromApproved(req *http.Request, body func(relay task.SignKey) []byte) (*owner, signing.Nonce, error) {
	key, err := service.PathKey[task.SignKey](req, "owner")
	if err != nil {
		return nil, signing.Nonce{}, err
	}
	o, relay := d.ownerOf(key), d.cfg.Signers.Public()[0]
	nonce, ok := handover.Verify(key, signing.Owner, body(relay), req.Header.Get(handover.Header))
	if o == nil || !ok {
		return nil, nonce, problem.New(problem.Unauthorized, "")
	}
	return o, nonce, nil
}

// admitOwner admits one request of an owner at a time. It refuses a replayed request, and every request after a state
// rollback or while the disk is full.
func (d *Desk) admitOwner(w http.ResponseWriter, o *owner, nonce signing.Nonce) (done func(), err error) {
	if back := d.Store.StateRollback(); back != nil {
		return nil, back
	}
	if d.monitor.Reserve.Short() != nil { // the remaining space is reserved for erasing keys
		return nil, d.monitor.TurnAway(problem.Overloaded)
	}
	if done, err = d.alone(w, o.posted); err != nil {
		return nil, err
	}
	fresh, err := o.fresh(nonce)
	if err == nil && !fresh {
		err = problem.New(problem.Unauthorized, "")
	}
	if err != nil {
		done()
		return nil, err
	}
	return done, nil
}

// HandleOwnersKeys makes this relay's keys for a task that an approved owner will sign.
func (d *Desk) HandleOwnersKeys(w http.ResponseWriter, req *http.Request) error {
	label, err := service.PathKey[taskfile.Label](req, "label")
	if err != nil {
		return err
	}
	kem, err := service.PathWord(req, "kem", task.KEMX25519, task.KEMMLKEM768X25519, task.KEMMLKEM768)
	if err != nil {
		return err
	}
	count, err := service.PathNumber(req, "count", 1, task.MaxEpochs)
	if err != nil {
		return err
	}
	o, nonce, err := d.fromApproved(req, func(relay task.SignKey) []byte {
		return handover.OwnersKeysBody(relay, label, kem, count)
	})
	if err != nil {
		return err
	}
	if err := taskfile.CheckListSize(kem, count); err != nil {
		return refusal(err)
	}
	done, err := d.admitOwner(w, o, nonce)
	if err != nil {
		return err
	}
	defer done()
	var list []byte
	err = d.whileApproved(o, func(limit int) (err error) {
		list, err = o.keys(label, kem, count, limit, d.Clock.Read(), d.cfg.Signers.Newest)
		return err
	})
	if err != nil {
		return d.refuseOwner(err)
	}
	w.Header().Set("Cache-Control", "no-store")
	return service.Write(w, codec.MediaType, list)
}

// HandleOwnersTask accepts a task from an approved owner. Status 204 means that the relay stored the task durably and
// serves it.
func (d *Desk) HandleOwnersTask(w http.ResponseWriter, req *http.Request) error {
	o, nonce, err := d.fromApproved(req, handover.OwnersTaskBody)
	if err != nil {
		return err
	}
	done, err := d.admitOwner(w, o, nonce)
	if err != nil {
		return err
	}
	defer done()
	raw, open, err := readBundle(w, req, func(open *taskfile.Open) error { return d.checkOwnersTask(o, open) })
	if err != nil {
		return err
	}
	var taken error
	err = d.whileApproved(o, func(limit int) error {
		err := d.takeTask(o, raw, open, limit)
		if err == nil {
			taken = d.takeUpTask(req.Context(), o, open.ID)
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

// refuseOwner returns the problem for an approved owner's refused request. It counts requests above a limit, because
// the operator may raise the limit.
func (d *Desk) refuseOwner(err error) error {
	if errors.Is(err, errTaskLimit) || errors.Is(err, errDummies) {
		d.monitor.Add(monitor.OwnerTasksRejected, 1)
	}
	return refusal(err)
}

// checkOwnersTask returns an error unless an approved owner may hand this task over.
func (d *Desk) checkOwnersTask(o *owner, open *taskfile.Open) error {
	if err := open.CheckOwner(o.key); err != nil {
		return err
	}
	now := d.unixTime()
	switch {
	case d.hopOf(open) < 0:
		return d.notInTask()
	case open.Epochs.End(0)+uint64(keysKept/time.Second) < now: // such a task begins with epochs that need ending
		return invalid.Field("epochs.start", strconv.FormatUint(open.Epochs.Start, 10), fmt.Sprintf(
			"the start of a task whose first epoch ended less than %d hours ago (keys wait no longer)", keysKept/time.Hour))
	case open.Epochs.Over() <= now:
		return invalid.Field("epochs.start", strconv.FormatUint(open.Epochs.Start, 10), "the start of a task that has not ended")
	case clock.Tolerance(open.Epochs.Length.Shortest()) < time.Minute: // the clock guard ignores such epochs
		return invalid.Field("epochs.length", strconv.FormatUint(uint64(open.Epochs.Length), 10), "at least 120 seconds")
	}
	return nil
}

// takeTask stores a task in its slot, after it has checked everything that serving the task needs.
func (d *Desk) takeTask(o *owner, raw []byte, open *taskfile.Open, limit int) error {
	if err := o.checkDummies(open); err != nil {
		return err
	}
	list := open.Relays[d.hopOf(open)].KeyList
	return o.take(open.ID, list, raw, limit, d.Clock.Read(), func(folder string) error {
		s, err := d.loadFirst(o.config(folder), raw, open, o)
		if err == nil {
			err = d.cfg.Fits(append([]*Hosted{s}, d.Hosted().Order...), nil, d.TaskLimit())
		}
		return err
	})
}
