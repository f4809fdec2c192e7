package relay

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"path/filepath"
	"slices"
	"strconv"
	"time"

	"github.com/doona-dp/doona/internal/clock"
	"github.com/doona-dp/doona/internal/durable"
	"github.com/doona-dp/doona/internal/invalid"
	"github.com/doona-dp/doona/internal/service"
	"github.com/doona-dp/doona/relay/internal/monitor"
	"github.com/doona-dp/doona/wire/handover"
	"github.com/doona-dp/doona/wire/problem"
	"github.com/doona-dp/doona/wire/signing"
	"github.com/doona-dp/doona/wire/task"
	"github.com/doona-dp/doona/wire/taskfile"
)

// owner is one whom the operator has approved: it hands tasks over by itself, each of which is then served as one that
// is configured.
type owner struct {
	OwnerConfig
	*places
	key    task.SignKey
	posted chan struct{} // has room for the one request of the owner's that is dealt with
}

// config returns the configuration of a task of the owner's that is in a folder.
func (o *owner) config(folder string) TaskConfig {
	in := func(name string) string { return filepath.Join(folder, name) }
	return TaskConfig{File: in(bundleFile), Owner: o.Owner, HPKEKeys: in(keysFile), Successors: in(successorsFolder),
		Recovery: o.Recovery, Candidates: o.Candidates}
}

// mostOwnersTasks is the largest number of tasks for which an owner may be approved.
const mostOwnersTasks = 1024

// loadOwners loads the tasks that approved owners have handed over. files are those that are in use.
func (r *setup) loadOwners(files map[string]bool) error {
	for _, c := range r.cfg.Owners {
		key, err := taskfile.ParseKey("owners.owner", c.Owner)
		if err != nil {
			return err
		}
		if _, err := taskfile.ParseRecovery(c.Recovery); err != nil {
			return err
		}
		if _, err := parseCandidates(c.Candidates); err != nil {
			return err
		}
		switch folder := resolved(c.Folder); {
		case r.ownerOf(key) != nil:
			return invalid.Field("owners.owner", c.Owner, "every owner once")
		case c.Folder == "" || files[folder]:
			return invalid.Field("owners.folder", strconv.Quote(c.Folder), "a folder of its own for every owner")
		case c.Tasks < 1 || c.Tasks > mostOwnersTasks:
			return invalid.Field("owners.tasks", strconv.Itoa(c.Tasks), fmt.Sprintf("1 to %d", mostOwnersTasks))
		default:
			files[folder] = true
		}
		o := &owner{c, &places{c.Folder, c.Tasks}, key, make(chan struct{}, 1)}
		r.owners = append(r.owners, o)
		tasks, _, err := o.taken()
		if err != nil {
			return err
		}
		for _, id := range tasks {
			if err := r.loadTask(o.config(o.file(id.String())), o, files); err != nil {
				return fmt.Errorf("%s: %w", o.file(id.String()), err)
			}
		}
	}
	return nil
}

// ownerOf returns the approved owner with a key, nil where there is none.
func (r *setup) ownerOf(key task.SignKey) *owner {
	at := slices.IndexFunc(r.owners, func(o *owner) bool { return o.key == key })
	if at < 0 {
		return nil
	}
	return r.owners[at]
}

// followOwners takes up tasks that other processes have taken, and lets go of keys that were never used.
func (r *Relay) followOwners(ctx context.Context) {
	for _, o := range r.owners {
		err := errors.Join(o.clear(r.clock.Read()), r.takeUpTasks(ctx, o))
		r.monitor.Logged(ctx, "couldn't read an owner's tasks", err)
	}
}

// takeUpTasks serves the tasks of an owner that are not served yet.
func (r *Relay) takeUpTasks(ctx context.Context, o *owner) error {
	tasks, _, err := o.taken()
	for _, id := range tasks {
		err = errors.Join(err, r.takeUpTask(ctx, o, id))
	}
	return err
}

// takeUpTask serves a task of an owner, unless it is served already. [Relay.takeUp] serves what follows in its stream.
func (r *Relay) takeUpTask(ctx context.Context, o *owner, id task.ID) error {
	r.joining.Lock()
	defer r.joining.Unlock()
	if now := r.hosted(); now.tasks[id] != nil || now.streams[id] != nil {
		return nil
	}
	c := o.config(o.file(id.String()))
	raw, open, err := loadBundle(c)
	if err == nil && open.ID != id {
		err = invalid.Field("task", open.ID.String(), "that of its folder, "+id.String())
	}
	if err != nil {
		return err
	}
	s, err := r.loadFirst(c, raw, open, o)
	if err == nil {
		err = r.begin(ctx, s)
	}
	if err != nil {
		return err
	}
	r.cfg.Log.Info("an owner's task is served", "task", s.name())
	return o.keepRoom(r.monitor.Reserve)
}

// keepRoom keeps room in the owner's folder for keys to be erased.
func (o *owner) keepRoom(in *durable.Reserve) error {
	if err := durable.MakeFolder(o.path, 0o700); err != nil {
		return invalid.Field("owners.folder", o.path, fmt.Sprintf("a folder that can be made (%v)", err))
	}
	tasks, _, err := o.taken()
	var files []string
	for _, id := range tasks {
		files = append(files, o.file(id.String(), keysFile))
	}
	return errors.Join(err, in.Keep(o.file(placesFile), durable.KeyRoom(files...)))
}

// fromApproved returns the owner of a request that it has signed, and the request's nonce.
func (r *Relay) fromApproved(req *http.Request, body func(relay task.SignKey) []byte) (*owner, signing.Nonce, error) {
	key, err := service.PathKey[task.SignKey](req, "owner")
	if err != nil {
		return nil, signing.Nonce{}, err
	}
	o, relay := r.ownerOf(key), r.signers.Public()[0]
	nonce, ok := handover.Verify(key, signing.Owner, body(relay), req.Header.Get(handover.Header))
	if o == nil || !ok {
		return nil, nonce, problem.New(problem.Unauthorized, "")
	}
	return o, nonce, nil
}

// admitOwner lets one request of an owner in at a time, where the relay can do what it asks for, and the request has
// not come before.
func (r *Relay) admitOwner(w http.ResponseWriter, o *owner, nonce signing.Nonce) (done func(), err error) {
	if back := r.store.SetBack(); back != nil {
		return nil, back
	}
	if r.monitor.Reserve.Short() != nil { // what is left is for erasing
		return nil, r.monitor.TurnAway(problem.Overloaded)
	}
	if done, err = r.alone(w, o.posted); err != nil {
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

// handleOwnersKeys makes this relay's keys for a task that an owner is about to sign.
func (r *Relay) handleOwnersKeys(w http.ResponseWriter, req *http.Request) error {
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
	o, nonce, err := r.fromApproved(req, func(relay task.SignKey) []byte {
		return handover.OwnersKeysBody(relay, label, kem, count)
	})
	if err != nil {
		return err
	}
	if err := taskfile.CheckListSize(kem, count); err != nil {
		return refusal(err)
	}
	done, err := r.admitOwner(w, o, nonce)
	if err != nil {
		return err
	}
	defer done()
	list, err := o.keys(label, kem, count, r.clock.Read(), r.signers.Newest)
	if err != nil {
		return r.refuseOwner(err)
	}
	w.Header().Set("Cache-Control", "no-store")
	return service.Write(w, mediaType, list)
}

// handleOwnersTask takes a task from its owner. 204 says that it has its place, durably, and is served.
func (r *Relay) handleOwnersTask(w http.ResponseWriter, req *http.Request) error {
	o, nonce, err := r.fromApproved(req, handover.OwnersTaskBody)
	if err != nil {
		return err
	}
	done, err := r.admitOwner(w, o, nonce)
	if err != nil {
		return err
	}
	defer done()
	raw, open, err := readBundle(w, req, func(open *taskfile.Open) error { return r.mayTake(o, open) })
	if err != nil {
		return err
	}
	if err := r.takeTask(o, raw, open); err != nil {
		return r.refuseOwner(err)
	}
	if err := r.takeUpTask(req.Context(), o, open.ID); err != nil {
		return err
	}
	w.WriteHeader(http.StatusNoContent)
	return nil
}

// refuseOwner returns the problem of what an approved owner sent, and counts those for want of a place: the operator
// may give it more.
func (r *Relay) refuseOwner(err error) error {
	if errors.Is(err, errNoPlace) {
		r.monitor.Add(monitor.NoPlace, 1)
	}
	return refusal(err)
}

// mayTake is an error unless an owner has signed a task that it may hand over.
func (r *Relay) mayTake(o *owner, open *taskfile.Open) error {
	if err := open.CheckOwner(o.key); err != nil {
		return err
	}
	now := r.unixTime()
	switch {
	case r.hopOf(open) < 0:
		return r.notInTask()
	case open.Epochs.End(0)+uint64(keysKept/time.Second) < now: // all of them would have to be ended here
		return invalid.Field("epochs.start", strconv.FormatUint(open.Epochs.Start, 10), fmt.Sprintf(
			"that of a task whose first epoch ended less than %d hours ago: no keys wait longer", keysKept/time.Hour))
	case open.Epochs.Over() <= now:
		return invalid.Field("epochs.start", strconv.FormatUint(open.Epochs.Start, 10), "that of a task that is not over")
	case clock.Tolerance(open.Epochs.Length) < time.Minute: // the guard of the time knew nothing of it
		return invalid.Field("epochs.length", strconv.FormatUint(open.Epochs.Length, 10), "at least 120, in seconds")
	}
	return nil
}

// takeTask gives a task its place when all has been checked that serving it will need.
func (r *Relay) takeTask(o *owner, raw []byte, open *taskfile.Open) error {
	list := open.Relays[r.hopOf(open)].KeyList
	return o.take(open.ID, list, raw, r.clock.Read(), func(folder string) error {
		s, err := r.loadFirst(o.config(folder), raw, open, o)
		if err == nil {
			err = r.checkMemory(s)
		}
		return err
	})
}
