// Package relay carries reports from clients to the verifier so that neither can tell whose is
// whose. It moves opaque bytes and imports no protocol.
//
// The first relay of a task (hop 0, the ingress) takes envelopes from clients over HTTP, opens
// them and keeps their slots; an acknowledged report is on disk. When a batch has exactly n
// submissions it is permuted and sealed, for good. Every later relay (a mix) pulls the sealed
// batches of the relay before it by number, opens one layer of every slot, drops what repeats or
// does not open, permutes what is left and seals its own batch of the same number:
//
//	clients → ingress: commit → seal ⇒ batch 0, 1, … → mix: check, open, drop, permute, seal ⇒ …
//
// Guarantee: where clients send one slot in each lane, one honest relay suffices, whatever all others do.
// Where they send several, a malicious first relay can put them into different batches, unseen: what
// then holds is in docs/proofs/slots.md. Under padding none the first relay must be honest. Each relay
// withholds by itself, as a batch with no slots and a signed manifest, what the task's n and n_min
// do not allow out; there is no override.
//
// Durability: a process may be killed at any moment. No acknowledged report is lost, and a batch
// number stands for the same bytes for ever.
//
// [New] makes a relay from a [Config], [Relay.Run] serves it; docs/relay.md is the manual.
package relay

import (
	"context"
	"crypto/tls"
	"errors"
	"io/fs"
	"net"
	"net/http"
	"sync"
	"sync/atomic"

	"github.com/doona-dp/doona/internal/clock"
	"github.com/doona-dp/doona/internal/durable"
	display "github.com/doona-dp/doona/internal/look"
	"github.com/doona-dp/doona/internal/service"
	"github.com/doona-dp/doona/relay/internal/monitor"
	"github.com/doona-dp/doona/relay/internal/spill"
	"github.com/doona-dp/doona/relay/internal/storage"
	"github.com/doona-dp/doona/relay/internal/store"
	"github.com/doona-dp/doona/wire/endpoint"
	"github.com/doona-dp/doona/wire/handover"
	"github.com/doona-dp/doona/wire/keyfile"
)

// setup is what a configuration comes to without its store: keys, a certificate, the tasks.
type setup struct {
	cfg      Config
	signers  *keyfile.Signers
	serving  atomic.Pointer[hostedTasks]
	owners   []*owner // who hand tasks over; immutable
	proxies  service.Proxies
	outgoing http.RoundTripper // of all requests that the relay makes
	tls      *tls.Config       // of the public address; nil where a proxy speaks TLS
}

// Relay is one relay that serves its tasks. Its handlers are safe for concurrent use.
type Relay struct {
	*setup
	store   storage.Store
	vault   *store.Vault
	monitor *monitor.Monitor

	queue  chan *pending // to the committer
	ending sync.RWMutex  // guards ended
	ended  bool          // nothing further goes into queue
	wake   chan struct{} // tells epochLoop that there is something to do: see stir
	came   chan struct{} // tells workLoop that a task has come or gone
	ready  atomic.Bool

	admission   *admission           // of reports
	connections *service.Connections // to the public address
	handouts    handouts
	nonces      nonces // of the next hops' requests
	instance    instance
	clock       *clock.Guard

	memory int // bytes of slots that are permuted without a file

	settling durable.Coalescer[struct{}]
	looked   look    // of epochLoop
	backlog  backlog // of epochLoop

	joining    sync.Mutex  // one task at a time that comes or goes
	unscrubbed atomic.Bool // the store's log may hold what was deleted
	once       sync.Once   // closes the store
}

// New opens the files and the store that a configuration names and checks every task: its
// owner, this relay's place in it, and its keys. The caller must call Run, which closes the
// store, or Close.
func New(cfg Config) (*Relay, error) {
	r, err := open(cfg)
	if err != nil {
		return nil, err
	}
	if err = r.join(); err == nil {
		r.clock, err = r.guard()
	}
	if err != nil {
		r.Close()
		return nil, err
	}
	r.applySeam()
	return r, nil
}

// open is New without looking at what the files and the store say of each other.
func open(cfg Config) (*Relay, error) {
	s, err := load(cfg)
	if err != nil {
		return nil, err
	}
	r := &Relay{
		setup:     s,
		queue:     make(chan *pending, s.cfg.MaxConcurrent),
		wake:      make(chan struct{}, 1),
		came:      make(chan struct{}, 1),
		memory:    spill.Memory,
		admission: newAdmission(room{s.cfg.MaxConcurrent, int64(s.cfg.MaxMemory)}, s.cfg.places()),
		instance:  newInstance(),
	}
	r.monitor = monitor.New(s.cfg.Log)
	for _, t := range r.hosted().order {
		r.showTask(t)
	}
	for _, l := range r.hosted().streams {
		r.showEnd(l)
	}
	r.connections = service.NewConnections(s.cfg.MaxConnections, s.proxies,
		func() { r.monitor.Add(monitor.Unconnected, 1) })
	for _, o := range s.owners {
		if err := o.prepare(); err != nil {
			return nil, err
		}
	}
	if r.vault, err = store.OpenVault(s.cfg.Secret, true); err != nil {
		return nil, err
	}
	kept, err := store.Open(s.cfg.Store, r.vault, r.monitor)
	if err == nil {
		r.store = storage.New(kept)
		err = s.keepRoom(r.monitor.Reserve)
	}
	return r, err
}

// join ties the tasks' keys to the store, and holds the store against the marks in the key files. A relay
// where something was set back runs, and says so; it does nothing else.
func (r *Relay) join() error {
	if err := r.bind(r.store, (*keyfile.HPKE).Bind); err != nil {
		return err
	}
	if err := r.watch(r.vault); err != nil {
		return err
	}
	all, err := r.store.Follow(context.Background())
	if back := r.store.SetBack(); back != nil {
		r.cfg.Log.Error("set back", "cause", back.Cause, "detail", back.Detail,
			"do", "put back what is newer, or end the epochs: relay end-epochs --help")
		return nil
	}
	if err != nil {
		return err
	}
	return r.loadStates(all)
}

// Inspected is a relay that is only looked at, also beside the process that serves it.
type Inspected struct {
	*setup
	store *store.Store
	vault *store.Vault // nil where there is no secret yet
}

// Inspect checks what [New] checks, and neither creates nor changes anything. A relay that has never
// run has no store yet, and no secret. The caller must call Close.
func Inspect(cfg Config) (*Inspected, error) {
	s, err := load(cfg)
	if err != nil {
		return nil, err
	}
	vault, err := store.OpenVault(s.cfg.Secret, false)
	if err == nil {
		err = s.watch(vault)
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	kept, err := store.Read(s.cfg.Store)
	if err != nil {
		return nil, err
	}
	i := &Inspected{s, kept, vault}
	if err := i.join(); err != nil {
		kept.Close()
		return nil, err
	}
	return i, nil
}

// join checks what [Relay.join] checks.
func (i *Inspected) join() error {
	if err := i.bind(i.store, (*keyfile.HPKE).CheckStore); err != nil {
		return err
	}
	if back, err := i.setBack(context.Background()); back != nil || err != nil {
		return err // what was set back is in the status
	}
	all, err := i.store.Progress(context.Background())
	if err != nil {
		return err
	}
	return i.loadStates(all)
}

// setBack returns what was set back.
func (i *Inspected) setBack(ctx context.Context) (*store.SetBack, error) {
	if i.vault == nil {
		return nil, nil
	}
	return i.store.Behind(ctx, i.vault)
}

// Status reads the store.
func (i *Inspected) Status(ctx context.Context) (*Status, error) {
	back, err := i.setBack(ctx)
	if err != nil {
		return nil, err
	}
	out, err := i.status(ctx, i.store, back)
	if err != nil || i.vault == nil {
		return out, err
	}
	joining, err := i.store.Joins(ctx, i.vault)
	out.Joining = string(joining)
	return out, err
}

// Close closes the store.
func (i *Inspected) Close() error { return i.store.Close() }

// load reads all that a configuration names but the secret and the store.
func load(cfg Config) (*setup, error) {
	if err := cfg.validate(); err != nil {
		return nil, err
	}
	s := &setup{cfg: cfg}
	trusted, err := service.ParseTrusted(cfg.TrustedProxies)
	if err != nil {
		return nil, err
	}
	s.proxies = service.Proxies{Trusted: trusted, Header: cfg.ForwardedHeader}
	if s.signers, err = keyfile.LoadSigners(cfg.SignKey, cfg.OldSignKeys); err != nil {
		return nil, err
	}
	if s.outgoing, err = handover.LoadTransport(cfg.CA); err != nil {
		return nil, err
	}
	if s.tls, err = cfg.tlsConfig(s.outgoing); err != nil {
		return nil, err
	}
	return s, s.loadTasks()
}

// Close closes the store, and the files with marks, of a relay that is not running.
func (r *Relay) Close() error {
	var err error
	r.once.Do(func() {
		err = r.store.Close()
		r.vault.Close()
	})
	return err
}

// Run serves until ctx ends, then drains: it refuses what is new, answers what has begun, and
// closes the store. It returns nil after a clean drain.
func (r *Relay) Run(ctx context.Context) error {
	defer r.Close()
	if err := r.loadBehind(ctx); err != nil {
		return err
	}
	servers, err := r.listen()
	if err != nil {
		return err
	}
	for _, l := range r.hosted().streams {
		r.monitor.Logged(ctx, "couldn't remove a dropped task's keys", l.Clear())
	}
	r.cfg.Log.Info("serving", "listen", r.cfg.Listen, "admin", r.cfg.Admin, "tasks", len(r.hosted().order))
	r.monitor.Logged(ctx, "couldn't keep room for erasing", r.monitor.Reserve.Take())
	r.meet()
	work, stopWork := context.WithCancel(context.WithoutCancel(ctx))
	defer stopWork()
	var working sync.WaitGroup
	working.Go(func() { r.commitLoop(work) })
	working.Go(func() { r.clock.Watch(ctx) })
	working.Go(func() { r.epochLoop(ctx) })
	working.Go(func() { r.refillLoop(ctx) })
	working.Go(func() { r.joinLoop(ctx) })
	working.Go(func() { r.workLoop(ctx, &working) })
	r.ready.Store(true)
	err = service.Serve(ctx, servers)
	r.ready.Store(false)
	service.Drain(servers)
	stopWork()
	working.Wait()
	ctx, stop := context.WithTimeout(context.WithoutCancel(ctx), service.DrainTimeout)
	defer stop()
	r.monitor.Logged(ctx, "couldn't keep tallies", r.keepTallies(ctx, func(store.EpochID) bool { return true }))
	return err
}

// listen opens the public and the admin address.
func (r *Relay) listen() ([]*service.Server, error) {
	return service.Listen(r.cfg.Log,
		service.Endpoint{Address: r.cfg.Listen, Listener: r.cfg.Listener, Handler: r.connections.Sparing(r.Handler()),
			Wrap: r.bound},
		service.Endpoint{Address: r.cfg.Admin, Listener: r.cfg.AdminListener, Handler: r.AdminHandler()})
}

// bound returns the public listener with bounded connections and TLS.
func (r *Relay) bound(public net.Listener) net.Listener {
	public = r.connections.Bound(public)
	if r.tls != nil {
		public = tls.NewListener(public, r.tls)
	}
	return public
}

// Handler returns the public HTTP interface. Reports are answered only while Run runs.
func (r *Relay) Handler() http.Handler { return display.ProtectPublic(r.mux()) }

func (r *Relay) mux() *service.Mux {
	mux := &service.Mux{}
	mux.HandleFunc("GET "+endpoint.TaskPath, r.open(r.handleTask))
	mux.HandleFunc("GET "+endpoint.KeysPath, r.open(r.handleKeys))
	mux.HandleFunc("OPTIONS "+endpoint.ReportsPath, r.answer(r.handlePreflight))
	mux.HandleFunc("POST "+endpoint.ReportsPath, r.answer(r.handleReport))
	mux.HandleFunc("GET "+endpoint.BatchPath, r.answer(r.handlePull))
	mux.HandleFunc("POST "+endpoint.ConfirmPath, r.answer(r.handleConfirm))
	mux.HandleFunc("GET "+endpoint.EndPath, r.answer(r.handleEnd))
	mux.HandleFunc("GET "+endpoint.NewsPath, r.answer(r.handleNews))
	mux.HandleFunc("GET "+endpoint.TimePath, r.open(r.handleTime))
	mux.HandleFunc("GET "+endpoint.StreamPath, r.open(r.handleStream))
	mux.HandleFunc("GET "+endpoint.NextKeysPath, r.answer(r.handleNextKeys))
	mux.HandleFunc("POST "+endpoint.SuccessorsPath, r.answer(r.handleSuccessor))
	mux.HandleFunc("POST "+endpoint.StatementsPath, r.answer(r.handleStatement))
	mux.HandleFunc("GET "+endpoint.OwnersKeysPath, r.answer(r.handleOwnersKeys))
	mux.HandleFunc("POST "+endpoint.OwnersTasksPath, r.answer(r.handleOwnersTask))
	mux.HandleFunc("/", r.open(service.NotFound))
	return mux
}
