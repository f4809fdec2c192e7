package issuer

import (
	"context"
	"fmt"
	"sync"

	"github.com/doona-dp/doona/internal/service"
)

// Run serves until ctx ends, then drains: it refuses new requests, answers those that have begun, and closes the store.
// It returns nil after a clean drain.
func (i *Issuer) Run(ctx context.Context) error {
	defer i.Close()
	servers, err := service.Listen(i.cfg.Log, i.cfg.Timing,
		service.Endpoint{Address: i.cfg.Listen, Listener: i.cfg.Listener, Handler: i.opened.CloseWhenBusy(i.Handler()),
			Wrap: i.opened.Limit},
		service.Endpoint{Address: i.cfg.Admin, Listener: i.cfg.AdminListener, Handler: i.AdminHandler()})
	if err != nil {
		return err
	}
	i.cfg.Log.Info("serving", "listen", i.cfg.Listen, "admin", i.cfg.Admin, "tasks", len(i.cfg.Tasks))
	if err := i.reserve.Fill(); err != nil {
		i.recordFailure("couldn't reserve disk space for erasing", err)
	}
	i.setClockPeers()
	work, stopWork := context.WithCancel(ctx)
	var loops sync.WaitGroup
	loops.Go(func() { i.clock.Watch(work) })
	loops.Go(func() { i.eraseLoop(work) })
	loops.Go(func() { i.follow(work) })
	i.ready.Store(true)
	err = service.Serve(ctx, servers)
	i.ready.Store(false)
	service.Drain(servers, i.cfg.Timing, err)
	stopWork()
	loops.Wait()
	return err
}

// Status is the state of an issuer, as `issuer status` prints it.
type Status struct {
	Clients string `json:"clients"`

	// Full names a full disk, while the space that the issuer reserved on it for erasing is in use or incomplete.
	Full string `json:"full,omitempty"`

	Tasks []TaskStatus `json:"tasks"`
}

// TaskStatus is the state of one task.
type TaskStatus struct {
	ID     string        `json:"id"`
	Name   string        `json:"name"`
	Quota  int           `json:"quota"`
	Epochs []EpochStatus `json:"epochs"` // Epochs whose tokens the issuer issues now, and whose keys are not erased.
}

// EpochStatus is the state of one epoch.
type EpochStatus struct {
	Epoch  uint64 `json:"epoch"`
	Issued uint64 `json:"issued"` // Number of tokens.
}

// Status returns how many tokens have been issued for each epoch that is open or next.
func (i *Issuer) Status(ctx context.Context) (*Status, error) {
	out := &Status{Clients: i.cfg.Clients}
	if i.reserve != nil { // Inspect sets no reserve
		if short := i.reserve.Short(); short != nil {
			out.Full = short.Error()
		}
	}
	now := i.cfg.Clock()
	for _, s := range i.hosted().order {
		t := TaskStatus{ID: s.ID.String(), Name: s.Name, Quota: s.quota, Epochs: []EpochStatus{}}
		for _, epoch := range s.keys.Epochs() {
			if start, end := i.window(s, epoch); now.Before(start) || !now.Before(end) {
				continue
			}
			var n uint64
			if i.store != nil {
				var err error
				if n, err = i.store.issued(ctx, s.ID, epoch); err != nil {
					return nil, fmt.Errorf("couldn't read the store: %w", err)
				}
			}
			t.Epochs = append(t.Epochs, EpochStatus{epoch, n})
		}
		out.Tasks = append(out.Tasks, t)
	}
	return out, nil
}
