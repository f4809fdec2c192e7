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
	"github.com/doona-dp/doona/wire/signing"
	"github.com/doona-dp/doona/wire/task"
	"github.com/doona-dp/doona/wire/taskfile"
)

// Host takes tasks up and drops them while the relay runs: successors in streams, and those of approved owners.
type Host struct {
	*Registry
	Store   Store
	vault   *store.Vault
	monitor *monitor.Monitor
	Clock   *clock.Guard

	nonces  nonces        // of the next hops' requests, and the owners'
	came    chan struct{} // see changes
	joining sync.Mutex    // one task at a time that comes or goes
}

// Store is what tasks' keys are tied to.
type Store interface {
	Name(ctx context.Context) (string, error)
	StateRollback() *store.StateRollbackError
	Fresh(ctx context.Context, key task.SignKey, nonce signing.Nonce) (bool, error)
	ForgetNonces(ctx context.Context, key task.SignKey) error
}

// NewHost returns the host of a registry's tasks. Who calls it gives it its store and clock.
func NewHost(r *Registry, vault *store.Vault, monitor *monitor.Monitor) *Host {
	return &Host{Registry: r, vault: vault, monitor: monitor, came: make(chan struct{}, 1)}
}

// Changes tells that a task has come or gone.
func (h *Host) Changes() <-chan struct{} { return h.came }

// Desk answers whoever asks for tasks, keys, streams and the time, and owners, who hand tasks over.
type Desk struct{ *Host }

// begin serves a task that has come while the relay runs.
func (h *Host) begin(ctx context.Context, s *Hosted) error {
	if err := h.tie(ctx, s); err != nil {
		return err
	}
	h.showTask(s)
	if s.stream != nil {
		h.showEnd(s.stream)
	}
	if err := h.serve(s); err != nil {
		return err
	}
	h.changed()
	return nil
}

// KeepUp drops the tasks that have expired, and takes up those that other processes have taken. Streams come last: no
// owner's folder keeps others' epochs from ending.
func (h *Host) KeepUp(ctx context.Context) {
	h.dropExpired(ctx)
	h.followOwners(ctx)
	h.followStreams(ctx)
}

// changed is called when a task has come or gone: other parties may have come, and those of before may drop the tasks
// before.
func (h *Host) changed() {
	h.SetClockPeers()
	select {
	case h.came <- struct{}{}:
	default:
	}
}

// tie is what [Relay.join] does, for one task.
func (h *Host) tie(ctx context.Context, s *Hosted) error {
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

// SetClockPeers has the guard ask the other relays of this one's tasks, and their issuers, for their clocks. Whom an
// approved owner names is not asked: its operator has not looked at them, and two of them could end other owners'
// epochs early.
func (h *Host) SetClockPeers() {
	var tasks []*taskfile.Open
	for _, s := range h.Hosted().Order {
		if s.owner == nil {
			tasks = append(tasks, s.Open)
		}
	}
	h.Clock.SetPeers(h.client(), h.cfg.Signers.Public(), tasks...)
}

// unixTime is this relay's time, in Unix seconds.
func (h *Host) unixTime() uint64 { return uint64(max(h.Clock.Read().Now.Unix(), 0)) }

// ShowAll shows all tasks before anything of them changes.
func (h *Host) ShowAll() {
	for _, t := range h.Hosted().Order {
		h.showTask(t)
	}
	for _, l := range h.Hosted().streams {
		h.showEnd(l)
	}
}

// ClearDropped removes what a crash has left of tasks that were dropped.
func (h *Host) ClearDropped(ctx context.Context) {
	for _, l := range h.Hosted().streams {
		h.monitor.Logged(ctx, "couldn't remove a dropped task's keys", l.Clear())
	}
}

// showTask shows a task before anything of it changes.
func (h *Host) showTask(s *Hosted) { h.monitor.BeginTask(s.ShortID(), s.Hop, s.Epochs.Over()) }

// showEnd says of all tasks of a stream when the newest one ends.
func (h *Host) showEnd(l *stream) {
	tasks := l.Tasks()
	for _, t := range tasks {
		h.monitor.Set(monitor.EpochsEnd, float64(tasks[len(tasks)-1].Epochs.Over()), t.ID.String()[:8])
	}
}

// HandleTask answers with the bundle of a task, also of one of a stream that is not served any more.
func (d *Desk) HandleTask(w http.ResponseWriter, req *http.Request) error {
	var bundle []byte
	s, err := service.PathTask(req, d.Hosted().ByID)
	if err == nil {
		bundle = s.bundle
	} else if t := d.streamTask(req); t != nil {
		bundle = t.Raw
	} else {
		return err
	}
	return service.Write(w, codec.MediaType, bundle)
}

// HandleKeys answers with this relay's lists of keys, of all tasks.
func (d *Desk) HandleKeys(w http.ResponseWriter, _ *http.Request) error {
	return service.Write(w, codec.MediaType, d.Hosted().keyLists)
}

// HandleTime signs what this relay's clock says, also for a task that was dropped: a party that has no later task yet
// asks by it.
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
