package issuer

import (
	"context"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/doona-dp/doona/internal/service"
)

// Limits of the HTTP servers: a client that dawdles loses its connection.
const (
	ioTimeout   = 15 * time.Second
	idleTimeout = 2 * time.Minute
	maxHeader   = 8 << 10
)

// Run serves until ctx ends, then drains: it refuses what is new, answers what has begun, and closes
// the store. It returns nil after a clean drain.
func (i *Issuer) Run(ctx context.Context) error {
	defer i.Close()
	var servers []*http.Server
	failed := make(chan error, 2)
	defer func() {
		i.ready.Store(false)
		service.Drain(servers)
	}()
	for _, s := range []struct {
		address  string
		listener net.Listener
		handler  http.Handler
	}{{i.cfg.Listen, i.cfg.Listener, i.Handler()}, {i.cfg.Admin, i.cfg.AdminListener, i.AdminHandler()}} {
		l := s.listener
		if l == nil && s.address != "" {
			var err error
			if l, err = net.Listen("tcp", s.address); err != nil {
				return fmt.Errorf("couldn't listen: %w", err)
			}
		}
		if l == nil {
			continue
		}
		server := &http.Server{Handler: service.Guard(i.cfg.Log, s.handler), ErrorLog: log.New(io.Discard, "", 0), ReadHeaderTimeout: ioTimeout,
			ReadTimeout: ioTimeout, WriteTimeout: 2 * ioTimeout, IdleTimeout: idleTimeout, MaxHeaderBytes: maxHeader}
		servers = append(servers, server)
		go func() { failed <- server.Serve(l) }()
	}
	var erasing sync.WaitGroup
	defer erasing.Wait()
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	erasing.Go(func() { i.eraseLoop(ctx) })
	i.ready.Store(true)
	select {
	case <-ctx.Done():
		return nil
	case err := <-failed:
		return fmt.Errorf("couldn't serve: %w", err)
	}
}

// Status is what `issuer status` prints.
type Status struct {
	Clients string       `json:"clients"`
	Tasks   []TaskStatus `json:"tasks"`
}

// TaskStatus is the state of one task.
type TaskStatus struct {
	ID     string        `json:"id"`
	Name   string        `json:"name"`
	Quota  int           `json:"quota"`
	Epochs []EpochStatus `json:"epochs"` // Those whose keys are not erased, and that issue now.
}

// EpochStatus is the state of one epoch.
type EpochStatus struct {
	Epoch  uint64 `json:"epoch"`
	Issued uint64 `json:"issued"` // Tokens.
}

// Status returns how many tokens have been issued for the epochs that are open or next.
func (i *Issuer) Status(ctx context.Context) (*Status, error) {
	out := &Status{Clients: i.cfg.Clients}
	now := i.cfg.Clock()
	for _, s := range i.order {
		t := TaskStatus{ID: fmt.Sprintf("%x", s.ID), Name: s.Name, Quota: s.quota, Epochs: []EpochStatus{}}
		for _, epoch := range s.keys.Epochs() {
			if start, end := i.window(s, epoch); now.Before(start) || !now.Before(end) {
				continue
			}
			n, err := i.store.issued(ctx, s.ID, epoch)
			if err != nil {
				return nil, fmt.Errorf("couldn't read the store: %w", err)
			}
			t.Epochs = append(t.Epochs, EpochStatus{epoch, n})
		}
		out.Tasks = append(out.Tasks, t)
	}
	return out, nil
}
