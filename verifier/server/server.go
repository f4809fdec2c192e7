// Package server runs a verifier: it pulls the batches of its tasks from their last relays, keeps them in a
// folder, and serves the pages with the estimates and, at a private address, its health and metrics.
//
// Durability: a process may be killed at any moment. A batch is on the disk before the relay may delete it,
// and what is on the disk is read at the next start.
//
// [New] makes a server from a [Config], [Server.Run] serves it; docs/verifier.md is the manual.
package server

import (
	"context"
	"crypto/ed25519"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"

	"github.com/doona-dp/doona/internal/durable"
	"github.com/doona-dp/doona/internal/invalid"
	"github.com/doona-dp/doona/internal/service"
	"github.com/doona-dp/doona/verifier"
	"github.com/doona-dp/doona/wire/handover"
	"github.com/doona-dp/doona/wire/keyfile"
	"github.com/doona-dp/doona/wire/task"
	"github.com/doona-dp/doona/wire/taskfile"
)

// Server is a verifier that pulls. Its handlers are safe for concurrent use.
type Server struct {
	cfg       Config
	tasks     []*served // In the order of the configuration.
	verifiers []*verifier.Verifier
	metrics   *service.Metrics
	release   func() error // Gives the folder back.
	ready     atomic.Bool
}

// served is a task.
type served struct {
	open     *taskfile.Open
	verifier *verifier.Verifier
	puller   *verifier.Puller
}

// name is the task's in metrics and logs, and says nothing of what it asks.
func (s *served) name() string { return s.open.ID.String()[:8] }

// New opens the files and the folder that a configuration names, and reads the batches that are kept. The
// folder is this process's own from then on: [durable.ErrClaimed] where it is another's. The caller must
// call Run, which gives it back, or Close.
func New(cfg Config) (*Server, error) {
	if err := cfg.validate(); err != nil {
		return nil, err
	}
	s := &Server{cfg: cfg}
	if err := s.load(); err != nil {
		return nil, errors.Join(err, s.Close())
	}
	s.metrics = newMetrics(s)
	return s, nil
}

// load reads everything. What it has opened by an error is for Close.
func (s *Server) load() error {
	sign, err := keyfile.LoadSign(s.cfg.SignKey)
	if err != nil {
		return err
	}
	transport, err := handover.LoadTransport(s.cfg.CA)
	if err != nil {
		return err
	}
	for _, c := range s.cfg.Tasks {
		t, err := loadTask(c, sign, s.cfg.SignKey)
		if err != nil {
			return err
		}
		for _, other := range s.tasks {
			if other.open.ID == t.open.ID {
				return invalid.Field("tasks", c.File, "each task once")
			}
		}
		if s.cfg.ShowUnusable {
			t.verifier.ShowUnusable()
		}
		s.tasks, s.verifiers = append(s.tasks, t), append(s.verifiers, t.verifier)
	}
	if err := s.openFolder(); err != nil {
		return err
	}
	client := handover.NewClient(sign, transport)
	for i, t := range s.tasks {
		if err := s.publish(t.verifier, s.cfg.Tasks[i]); err != nil {
			return err
		}
		if t.puller, err = verifier.NewPuller(t.verifier, client, filepath.Join(s.cfg.Data, t.open.ID.String()),
			s.cfg.Log); err != nil {
			return err
		}
		t.puller.Clock, t.puller.Late = s.cfg.Clock, s.cfg.Late
	}
	return s.noteStray()
}

// publish has a task's verifier charge what its pages show.
func (s *Server) publish(v *verifier.Verifier, c TaskConfig) error {
	return v.Publish(verifier.Publishing{Folder: s.cfg.Ledger, Beside: c.HPKEKeys, Budget: c.budget()})
}

// noteStray notes with every task what was put aside and does not say whose it was.
func (s *Server) noteStray() error {
	names, err := verifier.Quarantined(s.cfg.Data)
	for _, name := range names {
		for _, t := range s.tasks {
			t.verifier.Note(verifier.FindingQuarantined, name+": put aside; it does not say of which task it was")
		}
	}
	return err
}

// loadTask reads a task and the verifier's keys for it.
func loadTask(c TaskConfig, sign ed25519.PrivateKey, signFile string) (*served, error) {
	open, err := loadBundle(c)
	if err != nil {
		return nil, err
	}
	keys, err := keyfile.LoadHPKE(c.HPKEKeys)
	if err != nil {
		return nil, err
	}
	if public := sign.Public().(ed25519.PublicKey); task.SignKey(public) != open.Verifier.SignKey {
		return nil, fmt.Errorf("couldn't use %s: it is not the key of the task's verifier", signFile)
	}
	v, err := verifier.New(open, keys)
	return &served{open: open, verifier: v}, err
}

// loadBundle reads the task, which must be its owner's where one is configured.
func loadBundle(c TaskConfig) (*taskfile.Open, error) {
	if c.Owner == "" {
		return taskfile.LoadBundle(c.File)
	}
	owner, err := taskfile.ParseKey("owner", c.Owner)
	if err != nil {
		return nil, err
	}
	raw, err := os.ReadFile(c.File)
	if err != nil {
		return nil, fmt.Errorf("couldn't read the task: %w", err)
	}
	bundle, err := taskfile.ParseBundle(raw)
	if err != nil {
		return nil, err
	}
	return bundle.Open(&owner)
}

// openFolder claims the data folder and brings it into today's layout.
func (s *Server) openFolder() error {
	if err := durable.MakeFolder(s.cfg.Data, 0o700); err != nil {
		return fmt.Errorf("couldn't keep batches: %w", err)
	}
	release, err := durable.Claim(s.cfg.Data)
	if err != nil {
		return fmt.Errorf("couldn't keep batches in %s: %w", s.cfg.Data, err)
	}
	s.release = release
	var opens []*taskfile.Open
	for _, t := range s.tasks {
		opens = append(opens, t.open)
	}
	return adopt(s.cfg.Data, opens, s.cfg.Log)
}

// Close gives the folder of a server back that is not running.
func (s *Server) Close() (failed error) {
	for _, t := range s.tasks {
		if t.puller != nil {
			failed = errors.Join(failed, t.puller.Close())
			t.puller = nil
		}
	}
	if s.release != nil {
		failed = errors.Join(failed, s.release())
		s.release = nil
	}
	return failed
}

// Run pulls and serves until ctx ends, then drains: a pull that is under way ends, what has begun is
// answered. It returns nil after a clean drain.
func (s *Server) Run(ctx context.Context) error {
	defer s.Close()
	servers, err := service.Listen(s.cfg.Log,
		service.Endpoint{Address: s.cfg.Listen, Listener: s.cfg.Listener, Handler: s.Handler()},
		service.Endpoint{Address: s.cfg.Admin, Listener: s.cfg.AdminListener, Handler: s.AdminHandler()})
	if err != nil {
		return err
	}
	working, stop := context.WithCancel(ctx)
	defer stop()
	var pulling sync.WaitGroup
	for _, t := range s.tasks {
		pulling.Go(func() { t.puller.Run(working, s.cfg.PullInterval) })
	}
	s.ready.Store(true)
	err = service.Serve(ctx, servers)
	s.ready.Store(false)
	stop()
	service.Drain(servers)
	pulling.Wait()
	return err
}

// Handler returns the pages: a list of the tasks at /, and each task's at /tasks/ID/.
func (s *Server) Handler() http.Handler { return verifier.Handler(s.verifiers...) }
