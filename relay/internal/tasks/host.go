package relay

import (
	"context"
	"net/http"
	"sync"

	"github.com/doona-dp/doona/internal/clock"
	"github.com/doona-dp/doona/internal/service"
	"github.com/doona-dp/doona/relay/internal/monitor"
	"github.com/doona-dp/doona/relay/internal/store"
	"github.com/doona-dp/doona/wire/signing"
	"github.com/doona-dp/doona/wire/task"
	"github.com/doona-dp/doona/wire/taskfile"
)

// host takes tasks up and drops them while the relay runs: successors in streams, and those of approved owners.
type host struct {
	*registry
	store   hostStore
	vault   *store.Vault
	monitor *monitor.Monitor
	clock   *clock.Guard

	nonces  nonces        // of the next hops' requests, and the owners'
	came    chan struct{} // see changes
	joining sync.Mutex    // one task at a time that comes or goes
}

// hostStore is what tasks' keys are tied to.
type hostStore interface {
	Name(ctx context.Context) (string, error)
	SetBack() *store.SetBack
	Fresh(ctx context.Context, key task.SignKey, nonce signing.Nonce) (bool, error)
	ForgetNonces(ctx context.Context, key task.SignKey) error
}

// newHost returns the host of a registry's tasks. Who calls it gives it its store and clock.
func newHost(r *registry, vault *store.Vault, monitor *monitor.Monitor) *host {
	return &host{registry: r, vault: vault, monitor: monitor, came: make(chan struct{}, 1)}
}

// changes tells that a task has come or gone.
func (h *host) changes() <-chan struct{} { return h.came }

// desk answers whoever asks for tasks, keys, streams and the time, and owners, who hand tasks over.
type desk struct{ *host }

// begin serves a task that has come while the relay runs.
func (h *host) begin(ctx context.Context, s *hostedTask) error {
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

// keepUp drops the tasks that have expired, and takes up those that other processes have taken. Streams come last: no
// owner's folder keeps others' epochs from ending.
func (h *host) keepUp(ctx context.Context) {
	h.dropExpired(ctx)
	h.followOwners(ctx)
	h.followStreams(ctx)
}

// changed is called when a task has come or gone: other parties may have come, and those of before may drop the tasks
// before.
func (h *host) changed() {
	h.setClockPeers()
	select {
	case h.came <- struct{}{}:
	default:
	}
}

// tie is what [Relay.join] does, for one task.
func (h *host) tie(ctx context.Context, s *hostedTask) error {
	name, err := h.store.Name(ctx)
	if err != nil {
		return err
	}
	if err := s.keys.Bind(name); err != nil {
		return err
	}
	mark, err := s.keys.Mark()
	if err == nil {
		h.vault.Watch(s.ID, mark)
	}
	return err
}

// setClockPeers has the guard ask the other relays of this one's tasks, and their issuers, for their clocks. Whom an
// approved owner names is not asked: its operator has not looked at them, and two of them could end other owners'
// epochs early.
func (h *host) setClockPeers() {
	var tasks []*taskfile.Open
	for _, s := range h.hosted().order {
		if s.owner == nil {
			tasks = append(tasks, s.Open)
		}
	}
	h.clock.Meet(h.client(), h.cfg.Signers.Public(), tasks...)
}

// unixTime is this relay's time, in Unix seconds.
func (h *host) unixTime() uint64 { return uint64(max(h.clock.Read().Now.Unix(), 0)) }

// showAll shows all tasks before anything of them changes.
func (h *host) showAll() {
	for _, t := range h.hosted().order {
		h.showTask(t)
	}
	for _, l := range h.hosted().streams {
		h.showEnd(l)
	}
}

// clearStreams removes what a crash has left of tasks that were dropped.
func (h *host) clearStreams(ctx context.Context) {
	for _, l := range h.hosted().streams {
		h.monitor.Logged(ctx, "couldn't remove a dropped task's keys", l.Clear())
	}
}

// showTask shows a task before anything of it changes.
func (h *host) showTask(s *hostedTask) { h.monitor.BeginTask(s.name(), s.hop, s.Epochs.Over()) }

// showEnd says of all tasks of a stream when the newest one ends.
func (h *host) showEnd(l *stream) {
	tasks := l.Tasks()
	for _, t := range tasks {
		h.monitor.Set(monitor.EpochsEnd, float64(tasks[len(tasks)-1].Epochs.Over()), t.ID.String()[:8])
	}
}

func (d *desk) handleTask(w http.ResponseWriter, req *http.Request) error {
	var bundle []byte
	s, err := service.PathTask(req, d.hosted().byID)
	if err == nil {
		bundle = s.bundle
	} else if t := d.streamTask(req); t != nil {
		bundle = t.Raw
	} else {
		return err
	}
	return service.Write(w, service.MediaType, bundle)
}

func (d *desk) handleKeys(w http.ResponseWriter, _ *http.Request) error {
	return service.Write(w, service.MediaType, d.hosted().keyLists)
}

// handleTime signs what this relay's clock says, also for a task that was dropped: a party that has no later task yet
// asks by it.
func (d *desk) handleTime(w http.ResponseWriter, req *http.Request) error {
	now := d.clock.Read().Now
	s, err := service.PathTask(req, d.hosted().byID)
	if err == nil {
		return service.WriteTime(w, req, s.sign, s.ID, s.hop, now)
	}
	t := d.streamTask(req)
	if t == nil || d.hopOf(t.Open) < 0 {
		return err
	}
	hop := d.hopOf(t.Open)
	return service.WriteTime(w, req, d.cfg.Signers.Of(t.Relays[hop].SignKey), t.ID, hop, now)
}
