package tasks

import (
	"context"
	"net/http"
	"sync"

	"github.com/doona-dp/doona/internal/clock"
	"github.com/doona-dp/doona/internal/service"
	"github.com/doona-dp/doona/relay/internal/monitor"
	"github.com/doona-dp/doona/relay/internal/store"
	"github.com/doona-dp/doona/wire/codec"
	"github.com/doona-dp/doona/wire/onion"
	"github.com/doona-dp/doona/wire/problem"
	"github.com/doona-dp/doona/wire/signing"
	"github.com/doona-dp/doona/wire/task"
	"github.com/doona-dp/doona/wire/taskfile"
)

// Host adds and drops tasks while the relay runs: successors in streams, and tasks of approved owners.
type Host struct {
	*Registry
	Store   Store
	vault   *store.Vault
	monitor *monitor.Monitor
	Clock   *clock.Guard

	nonces  nonces        // nonces of requests by next hops and owners
	came    chan struct{} // see Changes
	joining sync.Mutex    // serializes adding and dropping tasks

	// owning is held for reading while the relay stores a task or keys of an approved owner, and for writing while the
	// approved owners change.
	owning sync.RWMutex
}

// Store is what a host needs of the store: its name, to which keys are bound, and the nonces of requests.
type Store interface {
	Name(ctx context.Context) (string, error)
	StateRollback() *store.StateRollbackError
	Fresh(ctx context.Context, key task.SignKey, nonce signing.Nonce) (bool, error)
	ForgetNonces(ctx context.Context, key task.SignKey) error
}

// NewHost returns the host of a registry's tasks. The caller sets Store and Clock.
func NewHost(r *Registry, vault *store.Vault, monitor *monitor.Monitor) *Host {
	return &Host{Registry: r, vault: vault, monitor: monitor, came: make(chan struct{}, 1)}
}

// Changes returns a channel that receives a value after the host added or dropped a task.
func (h *Host) Changes() <-chan struct{} { return h.came }

// Desk answers requests for tasks, keys, streams and the time, and requests by owners who hand over tasks.
type Desk struct{ *Host }

// begin starts to serve a task that was added while the relay runs.
func (h *Host) begin(ctx context.Context, s *Hosted) error {
	if err := h.bindKeys(ctx, s); err != nil {
		return err
	}
	h.serve(s)
	h.changed()
	return nil
}

// KeepUp drops expired tasks, and adds the tasks that other processes accepted. It reads streams last, so that a slow
// owner's folder does not delay the end of other owners' epochs.
func (h *Host) KeepUp(ctx context.Context) {
	h.dropExpired(ctx)
	h.followOwners(ctx)
	h.followStreams(ctx)
}

// changed updates the clock's peers, because the new tasks may name other parties, and signals the change to Changes.
func (h *Host) changed() {
	h.SetClockPeers()
	select {
	case h.came <- struct{}{}:
	default:
	}
}

// bindKeys binds a task's keys to the store and watches the rollback mark in them. At the start, package relay does
// this for all tasks.
func (h *Host) bindKeys(ctx context.Context, s *Hosted) error {
	name, err := h.Store.Name(ctx)
	if err != nil {
		return err
	}
	if err := s.Keys.Bind(name); err != nil {
		return err
	}
	mark, err := s.Keys.Mark()
	if err == nil {
		h.vault.Watch(s.ID, mark)
	}
	return err
}

// SetClockPeers gives the clock guard the parties whose clocks it asks: the other relays and the issuers of this
// relay's tasks. It leaves out parties that only approved owners' tasks name. The operator has not checked those
// parties, and two of them could end other owners' epochs early.
func (h *Host) SetClockPeers() {
	var tasks []*taskfile.Open
	for _, s := range h.Hosted().Order {
		if s.owner == nil {
			tasks = append(tasks, s.Open)
		}
	}
	h.Clock.SetPeers(h.client(), h.cfg.Signers.Public(), tasks...)
}

func (h *Host) unixTime() uint64 { return uint64(max(h.Clock.Read().Now.Unix(), 0)) }

// ClearDropped removes the key files of dropped tasks that a crash left behind.
func (h *Host) ClearDropped(ctx context.Context) {
	for _, l := range h.Hosted().streams {
		h.monitor.Logged(ctx, "couldn't remove a dropped task's keys", l.Clear())
	}
}

// HandleTask answers with the bundle of a task for pages: with the keys of the block of epochs that is open.
func (d *Desk) HandleTask(w http.ResponseWriter, req *http.Request) error {
	t, raw, err := d.pageTask(req)
	if err != nil {
		return err
	}
	return writeBlock(w, raw, t, t.EpochNear(d.unixTime()))
}

// HandleBlock is HandleTask for the block of keys that the path names.
func (d *Desk) HandleBlock(w http.ResponseWriter, req *http.Request) error {
	t, raw, err := d.pageTask(req)
	if err != nil {
		return err
	}
	block, err := service.PathNumber(req, "block", 0, (t.Epochs.Count-1)/onion.BlockEpochs)
	if err != nil {
		return err
	}
	return writeBlock(w, raw, t, block*onion.BlockEpochs)
}

// HandleAllKeys answers with the bundle of a task with all keys, for parties.
func (d *Desk) HandleAllKeys(w http.ResponseWriter, req *http.Request) error {
	_, raw, err := d.pathTask(req)
	if err != nil {
		return err
	}
	return service.Write(w, codec.MediaType, raw)
}

// pageTask is pathTask for pages, which get no withdrawn task.
func (d *Desk) pageTask(req *http.Request) (*taskfile.Open, []byte, error) {
	if s, err := service.PathTask(req, d.Hosted().ByID); err == nil && s.IsWithdrawn() {
		return nil, nil, problem.New(problem.UnknownTask, "the owner has withdrawn the task")
	}
	return d.pathTask(req)
}

// pathTask returns the task that a request names and its bundle, even if the task belongs to a stream and the relay no
// longer serves it.
func (d *Desk) pathTask(req *http.Request) (*taskfile.Open, []byte, error) {
	s, err := service.PathTask(req, d.Hosted().ByID)
	if err == nil {
		return s.Open, s.bundle, nil
	}
	if t := d.streamTask(req); t != nil {
		return t.Open, t.Raw, nil
	}
	return nil, nil, err
}

func writeBlock(w http.ResponseWriter, raw []byte, t *taskfile.Open, epoch uint64) error {
	all, err := taskfile.ParseBundle(raw)
	if err != nil {
		return err
	}
	block, err := all.Block(t.Lists(), epoch).Bytes()
	if err != nil {
		return err
	}
	return service.Write(w, codec.MediaType, block)
}

// HandleKeys answers with this relay's signed key lists for all tasks, without the keys.
func (d *Desk) HandleKeys(w http.ResponseWriter, _ *http.Request) error {
	lists, err := d.Hosted().keyLists()
	if err != nil {
		return err
	}
	return service.Write(w, codec.MediaType, lists)
}

// HandleTime signs the time of this relay's clock. It also signs for a dropped task of a stream: a party that does not
// have the later task yet asks with the old one.
func (d *Desk) HandleTime(w http.ResponseWriter, req *http.Request) error {
	now := d.Clock.Read().Now
	s, err := service.PathTask(req, d.Hosted().ByID)
	if err == nil {
		return service.WriteTime(w, req, s.Sign, s.ID, s.Hop, now)
	}
	t := d.streamTask(req)
	if t == nil || d.hopOf(t.Open) < 0 {
		return err
	}
	hop := d.hopOf(t.Open)
	return service.WriteTime(w, req, d.cfg.Signers.Of(t.Relays[hop].SignKey), t.ID, hop, now)
}
