package relay

import (
	"context"
	"crypto/tls"
	"net"
	"slices"
	"sync"
	"time"

	"github.com/doona-dp/doona/internal/service"
	"github.com/doona-dp/doona/relay/internal/store"
	"github.com/doona-dp/doona/relay/internal/tasks"
)

// workLoop runs the loops of each task until the relay drops the task. It also starts the loops of tasks added later.
func (r *Relay) workLoop(ctx context.Context, working *sync.WaitGroup) {
	for begun := map[*tasks.Hosted]context.CancelFunc{}; ; {
		order := r.Hosted().Order
		for _, s := range order {
			if begun[s] == nil {
				begun[s] = r.work(ctx, working, s)
			}
		}
		for s, stop := range begun {
			if !slices.Contains(order, s) {
				stop()
				delete(begun, s)
			}
		}
		select {
		case <-ctx.Done():
			return
		case <-r.host.Changes():
		}
	}
}

// work runs the loops of one task until stop is called.
func (r *Relay) work(ctx context.Context, working *sync.WaitGroup, s *tasks.Hosted) (stop context.CancelFunc) {
	all := ctx
	ctx, stop = context.WithCancel(ctx)
	r.mixing.Begin(all, ctx, working, s)
	if s.WithTokens() {
		working.Go(func() { r.ingress.TokenKeyLoop(ctx, s) })
	}
	return stop
}

// Run serves until ctx ends, then drains: it refuses new requests, finishes those that have begun, and closes the
// store. It returns nil after a clean drain.
func (r *Relay) Run(ctx context.Context) error {
	defer r.Close()
	if err := r.epochs.LoadRolledBack(ctx); err != nil {
		return err
	}
	servers, err := r.listen()
	if err != nil {
		return err
	}
	r.host.ClearDropped(ctx)
	r.cfg.Log.Info("serving", "listen", r.cfg.Listen, "admin", r.cfg.Admin, "tasks", len(r.Hosted().Order))
	r.monitor.Logged(ctx, "couldn't reserve disk space for erasing", r.monitor.Reserve.Fill())
	r.host.SetClockPeers()
	work, stopWork := context.WithCancel(context.WithoutCancel(ctx))
	defer stopWork()
	var working sync.WaitGroup
	working.Go(func() { r.ingress.CommitLoop(work) })
	working.Go(func() { r.clock.Watch(ctx) })
	working.Go(func() { r.epochs.Loop(ctx) })
	working.Go(func() { r.refillLoop(ctx) })
	working.Go(func() { r.host.JoinLoop(ctx) })
	working.Go(func() { r.workLoop(ctx, &working) })
	r.ready.Store(true)
	err = service.Serve(ctx, servers)
	r.ready.Store(false)
	service.Drain(servers, r.cfg.Timing, err)
	stopWork()
	working.Wait()
	ctx, stop := context.WithTimeout(context.WithoutCancel(ctx), tallyTime)
	defer stop()
	r.monitor.Logged(ctx, "couldn't store tallies", r.epochs.KeepTallies(ctx, func(store.EpochID) bool { return true }))
	r.monitor.Logged(ctx, "couldn't sign off: if the database moves to a standby now, the epochs that have begun are lost",
		r.store.SignOff(ctx))
	return err
}

// tallyTime is how long a relay that stops tries to store its tallies.
const tallyTime = 10 * time.Second

func (r *Relay) listen() ([]*service.Server, error) {
	return service.Listen(r.cfg.Log, r.cfg.Timing,
		service.Endpoint{Address: r.cfg.Listen, Listener: r.cfg.Listener,
			Handler: r.connections.CloseWhenBusy(r.Handler()),
			Wrap:    r.bound},
		service.Endpoint{Address: r.cfg.Admin, Listener: r.cfg.AdminListener, Handler: r.AdminHandler()})
}

// bound wraps the public listener: it limits connections and provides TLS.
func (r *Relay) bound(public net.Listener) net.Listener {
	public = r.connections.Limit(public)
	if r.tls != nil {
		public = tls.NewListener(public, r.tls)
	}
	return public
}
