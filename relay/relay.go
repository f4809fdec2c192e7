// Package relay carries reports from clients to the verifier, so that nobody can tell which client sent a report. It
// moves opaque bytes and does not know the statistical protocol of a task.
//
// The first relay of a task (hop 0, the ingress) accepts envelopes from clients over HTTP, opens them and stores their
// slots. An acknowledged report is on disk. When a batch has exactly n submissions, the relay permutes and seals it
// permanently. Every later relay (a mix) pulls the sealed batches of its upstream relay by number. It opens one layer
// of every slot, drops replays and slots that do not open, permutes the rest, and seals its own batch of the same
// number:
//
//	clients → ingress: commit → seal ⇒ batch 0, 1, … → mix: check, open, drop, permute, seal ⇒ …
//
// Guarantee: if clients send one slot in each lane, one honest relay suffices, whatever all others do. If they send
// several, a malicious first relay can put them into different batches, unnoticed: docs/proofs/slots.md says which
// guarantee remains. With padding none the first relay must be honest. Each relay by itself destroys a batch that the
// task's n and n_min do not allow to release: it signs a manifest for a batch without slots. There is no override.
//
// Durability: a process may be killed at any moment. Still no acknowledged report is lost, and a batch number always
// names the same bytes.
//
// [New] makes a relay from a [Config]. [Relay.Run] serves it. docs/relay.md is the manual.
package relay

import (
	"context"
	"crypto/tls"
	"errors"
	"io/fs"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/doona-dp/doona/internal/clock"
	"github.com/doona-dp/doona/internal/durable"
	"github.com/doona-dp/doona/internal/service"
	"github.com/doona-dp/doona/relay/internal/epochs"
	"github.com/doona-dp/doona/relay/internal/handout"
	"github.com/doona-dp/doona/relay/internal/ingress"
	"github.com/doona-dp/doona/relay/internal/mixing"
	"github.com/doona-dp/doona/relay/internal/monitor"
	"github.com/doona-dp/doona/relay/internal/storage"
	"github.com/doona-dp/doona/relay/internal/store"
	"github.com/doona-dp/doona/relay/internal/tasks"
	"github.com/doona-dp/doona/wire/handover"
	"github.com/doona-dp/doona/wire/keyfile"
	"github.com/doona-dp/doona/wire/task"
)

// setup holds all that a configuration names, except the store and the secret: keys, a certificate, the tasks.
type setup struct {
	cfg Config
	*tasks.Registry
	signers  *keyfile.Signers
	proxies  service.Proxies
	outgoing http.RoundTripper // carries all requests that the relay makes
	tls      *tls.Config       // for the public address; nil if a proxy provides TLS
}

// beat returns the interval between scans of the store, at most one second.
func (s *setup) beat() time.Duration { return min(s.cfg.PullInterval, time.Second) }

// Relay is one relay that serves its tasks. Its handlers are safe for concurrent use.
//
// It only connects its stages: ingress commits reports, epochs seals full batches, mixing makes batches from the
// upstream relay's batches, and handout gives batches to the next hop. The host adds and drops tasks.
type Relay struct {
	*setup
	store   *store.Store
	stores  storage.Stores // the same store, split into one interface per stage
	vault   *store.Vault
	monitor *monitor.Monitor
	clock   *clock.Guard

	host    *tasks.Host
	desk    *tasks.Desk
	maker   *mixing.Maker
	epochs  *epochs.Lifecycle
	ingress *ingress.Ingress
	mixing  *mixing.Mixer
	handout *handout.Server

	answers     answers
	reloads     reloads
	shown       shown
	connections *service.Connections // to the public address
	ready       atomic.Bool
	once        sync.Once // makes Close close the store only once
}

// New opens the files and the store that a configuration names. It checks every task: its owner, this relay's hop and
// this relay's keys. The caller must call Run or Close; both close the store.
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
	r.assemble()
	r.applySeam()
	return r, nil
}

// open does what New does, except that it does not compare the key files with the store.
func open(cfg Config) (*Relay, error) {
	s, err := load(cfg)
	if err != nil {
		return nil, err
	}
	r := &Relay{setup: s}
	r.monitor = monitor.New(s.cfg.Log)
	r.connections = service.NewConnections(s.cfg.MaxConnections, s.proxies,
		func() { r.monitor.Add(monitor.Unconnected, 1) })
	if err := s.Prepare(); err != nil {
		return nil, err
	}
	// A relay starts on a full disk, because it must erase keys.
	if err := s.checkFolders(); err != nil && !durable.Full(err) {
		return nil, err
	}
	if r.vault, err = store.OpenOrCreateVault(s.cfg.Secret); err != nil {
		return nil, err
	}
	kept, err := store.Open(s.cfg.Store, r.vault, store.Process{
		Reserve: r.monitor, Every: s.beat(), Heartbeat: func(ctx context.Context) { r.epochs.Heartbeat(ctx) },
	})
	if err == nil {
		r.store, r.stores = kept, storage.New(kept)
		err = s.reserveSpace(r.monitor.Reserve)
	}
	return r, err
}

func (r *Relay) assemble() {
	r.host = tasks.NewHost(r.Registry, r.vault, r.monitor)
	r.desk = &tasks.Desk{Host: r.host}
	r.maker = mixing.NewMaker(r.monitor, r.cfg.Scratch)
	ends := epochs.Config{Beat: r.beat(), Retention: r.cfg.Retention}
	r.epochs = epochs.New(r.host, ends, r.vault, r.monitor, r.maker)
	r.ingress = ingress.New(r.Registry, r.ingressConfig(), r.vault, r.monitor, r.epochs.Wake)
	patience := mixing.Config{PullInterval: r.cfg.PullInterval, GiveUp: r.cfg.GiveUp}
	r.mixing = mixing.New(r.Registry, patience, r.vault, r.maker, r.epochs)
	r.handout = handout.New(r.host, r.monitor, r.epochs, r.cfg.PullInterval)
	r.answers = answers{now: r.cfg.Clock, blocks: map[task.ID]*block{}}
	r.use(r.stores, r.clock)
}

func (r *Relay) ingressConfig() ingress.Config {
	return ingress.Config{Proxies: r.proxies, Outgoing: r.outgoing, MaxConcurrent: r.cfg.MaxConcurrent,
		MaxMemory: int64(r.cfg.MaxMemory), Group: r.cfg.Group,
		KeyInterval: r.cfg.PullInterval}
}

// use gives all stages their stores and their clock.
func (r *Relay) use(stores storage.Stores, now *clock.Guard) {
	r.stores, r.clock = stores, now
	r.host.Store, r.host.Clock = stores.Tasks, now
	r.maker.Store = stores.Seals
	r.epochs.Store, r.epochs.Whole, r.epochs.Clock = stores.Epochs, stores.Whole, now
	r.ingress.Store, r.ingress.Clock = stores.Ingress, now
	r.mixing.Store, r.mixing.Confirms, r.mixing.Clock = stores.Mixes, stores.Confirms, now
	r.handout.Store, r.handout.Clock = stores.Handout, now
}

// join binds the tasks' keys to the store, and compares the store with the rollback marks in the key files. After a
// state rollback the relay starts only to report it.
func (r *Relay) join() error {
	if err := r.Bind(r.store, (*keyfile.HPKE).Bind); err != nil {
		return err
	}
	if err := r.Watch(r.vault); err != nil {
		return err
	}
	all, err := r.store.Reconcile(context.Background())
	if back := r.store.StateRollback(); back != nil {
		r.cfg.Log.Error("state rollback detected", "cause", back.Cause, "detail", back.Detail,
			"do", "restore the newer files, or end the epochs: relay end-epochs --help")
		return nil
	}
	if err != nil {
		return err
	}
	return r.LoadStates(all)
}

// Inspected is a relay opened read-only. The relay itself may run at the same time.
type Inspected struct {
	*setup
	store *store.Store
	vault *store.Vault // nil if there is no secret yet
}

// Inspect makes the checks of [New], but creates and changes nothing. The store and the secret may be missing if the
// relay has never run. The caller must call Close.
func Inspect(cfg Config) (*Inspected, error) {
	s, err := load(cfg)
	if err != nil {
		return nil, err
	}
	vault, err := store.OpenVault(s.cfg.Secret)
	if err == nil {
		err = s.Watch(vault)
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

// join makes the same checks as [Relay.join], but changes nothing.
func (i *Inspected) join() error {
	if err := i.Bind(i.store, (*keyfile.HPKE).CheckStore); err != nil {
		return err
	}
	if back, err := i.findRollback(context.Background()); back != nil || err != nil {
		return err // Status reports the rollback
	}
	all, err := i.store.Progress(context.Background())
	if err != nil {
		return err
	}
	return i.LoadStates(all)
}

// findRollback returns the detected state rollback, or nil if there is none.
func (i *Inspected) findRollback(ctx context.Context) (*store.StateRollbackError, error) {
	if i.vault == nil {
		return nil, nil
	}
	return i.store.FindRollback(ctx, i.vault)
}

// Status returns the relay's state as the store has it.
func (i *Inspected) Status(ctx context.Context) (*Status, error) {
	back, err := i.findRollback(ctx)
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

// load reads the files that a configuration names, except the secret and the store.
func load(cfg Config) (*setup, error) {
	if err := cfg.validate(); err != nil {
		return nil, err
	}
	s := &setup{cfg: cfg}
	if err := s.tighten(); err != nil {
		return nil, err
	}
	trusted, err := service.ParseNetworks("trusted_proxies", cfg.TrustedProxies)
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
	s.Registry, err = tasks.Load(s.tasksConfig())
	return s, err
}

func (s *setup) tasksConfig() tasks.Config {
	c := tasks.Config{Signers: s.signers, Outgoing: s.outgoing, Skew: s.cfg.Skew, PullInterval: s.cfg.PullInterval,
		Retention: s.cfg.Retention, Clock: s.cfg.Clock, Log: s.cfg.Log, Fits: s.cfg.checkMemory}
	for _, t := range s.cfg.Tasks {
		service.Default(&t.HPKEKeys, s.cfg.HPKEKeys)
		c.Tasks = append(c.Tasks, tasks.Source(t))
	}
	for _, set := range s.cfg.Sets {
		c.Sets = append(c.Sets, tasks.SetSource(set))
	}
	c.Owners = s.cfg.ownerSources()
	return c
}

// Close closes the store, and the files with rollback marks, of a relay that is not running.
func (r *Relay) Close() error {
	var err error
	r.once.Do(func() {
		err = r.store.Close()
		r.vault.Close()
	})
	return err
}
