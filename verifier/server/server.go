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
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/doona-dp/doona/internal/display"
	"github.com/doona-dp/doona/internal/durable"
	"github.com/doona-dp/doona/internal/invalid"
	"github.com/doona-dp/doona/internal/service"
	"github.com/doona-dp/doona/verifier"
	"github.com/doona-dp/doona/verifier/collect"
	"github.com/doona-dp/doona/verifier/report"
	"github.com/doona-dp/doona/wire/handover"
	"github.com/doona-dp/doona/wire/keyfile"
	"github.com/doona-dp/doona/wire/task"
	"github.com/doona-dp/doona/wire/taskfile"
)

// Server is a verifier that pulls. Its handlers are safe for concurrent use.
type Server struct {
	cfg     Config
	signers *keyfile.Signers
	client  *handover.Client // of the newest key
	streams []*stream
	site    *report.Site
	metrics *service.Metrics
	release func() error // Gives the folder back.

	transport http.RoundTripper // Of all requests that the server makes.

	ready atomic.Bool

	mu    sync.Mutex    // guards tasks
	tasks []*hostedTask // In the order of the configuration, each stream's in order; then what has joined.
}

// hostedTask is a task.
type hostedTask struct {
	open     *taskfile.Open
	verifier *verifier.Verifier
	puller   *collect.Puller
	charging verifier.Publishing
	config   TaskConfig // The task's, or that of the first of its stream.
}

// hostedTasks returns the tasks of this moment.
func (s *Server) hostedTasks() []*hostedTask {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.tasks)
}

// find returns a task that is served, or nil.
func (s *Server) find(id task.ID) *hostedTask {
	s.mu.Lock()
	defer s.mu.Unlock()
	if i := slices.IndexFunc(s.tasks, func(t *hostedTask) bool { return t.open.ID == id }); i >= 0 {
		return s.tasks[i]
	}
	return nil
}

// add adds a task, which goes on with the stream of after unless that is nil.
func (s *Server) add(t, after *hostedTask) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.tasks = append(s.tasks, t)
	if after == nil {
		s.site.Add(t.verifier, nil)
		return
	}
	s.site.Add(t.verifier, after.verifier)
}

// name is the task's in metrics and logs, and says nothing of what it asks.
func (s *hostedTask) name() string { return s.open.ID.String()[:8] }

// New opens the files and the folder that a configuration names, and reads the batches that are kept. The
// folder is this process's own from then on: [durable.ErrClaimed] where it is another's. The caller must
// call Run, which gives it back, or Close.
func New(cfg Config) (*Server, error) {
	if err := cfg.validate(); err != nil {
		return nil, err
	}
	s := &Server{cfg: cfg, site: report.NewSite()}
	if err := s.load(); err != nil {
		return nil, errors.Join(err, s.Close())
	}
	s.metrics = newMetrics(s)
	return s, nil
}

// load reads everything. What it has opened by an error is for Close.
func (s *Server) load() (err error) {
	if s.signers, err = keyfile.LoadSigners(s.cfg.SignKey, s.cfg.OldSignKeys); err != nil {
		return err
	}
	transport, err := handover.LoadTransport(s.cfg.CA)
	if err != nil {
		return err
	}
	s.transport, s.client = transport, handover.NewClient(s.signers.Newest, transport)
	if err := s.loadTasks(); err != nil {
		return err
	}
	if err := s.openFolder(); err != nil {
		return err
	}
	for _, t := range s.tasks {
		if err := s.openPuller(t); err != nil {
			return err
		}
	}
	return nil
}

// loadTasks loads the tasks of the configuration, and those that have followed them.
func (s *Server) loadTasks() error {
	bundles := make([][]byte, len(s.cfg.Tasks))
	for i, c := range s.cfg.Tasks {
		raw, open, err := loadBundle(c)
		if err != nil {
			return err
		}
		t, err := s.loadTask(open, c.HPKEKeys, c)
		if err != nil {
			return err
		}
		if s.find(open.ID) != nil {
			return invalid.Field("tasks", c.File, "each task once")
		}
		s.add(t, nil)
		bundles[i] = raw
	}
	for i, c := range s.cfg.Tasks {
		if err := s.loadStream(c, bundles[i], s.tasks[i]); err != nil {
			return err
		}
	}
	return s.checkBudgets()
}

// openPuller has a task's verifier charge what its pages show, opens the folder of its batches and reads what is in it.
func (s *Server) openPuller(t *hostedTask) (err error) {
	if err := t.verifier.Publish(t.charging); errors.Is(err, verifier.ErrNoLedger) {
		return fmt.Errorf("%s: %w (ledger: in verifier.yaml names the folder of the ledgers; begin: true of the task "+
			"begins one)", t.config.File, err)
	} else if err != nil {
		return err
	}
	client := handover.NewClient(s.signers.Of(t.open.Verifier.SignKey), s.transport)
	if t.puller, err = collect.NewPuller(t.verifier, client, filepath.Join(s.cfg.Data, t.open.ID.String()),
		s.cfg.Log); err == nil {
		t.puller.Clock, t.puller.Late = s.cfg.Clock, s.cfg.Late
	}
	return err
}

// loadTask makes a task's verifier, with the keys in a file. c is the task's configuration, or that of the first of
// its stream, which all charge to one ledger.
func (s *Server) loadTask(open *taskfile.Open, file string, c TaskConfig) (*hostedTask, error) {
	keys, err := keyfile.LoadHPKE(file)
	if err != nil {
		return nil, err
	}
	if err := s.signers.Check(open.ID, "the verifier", open.Verifier.SignKey); err != nil {
		return nil, err
	}
	v, err := verifier.New(open, keys)
	if err != nil {
		return nil, err
	}
	if s.cfg.ShowUnusable {
		v.ShowUnusable()
	}
	charging := verifier.Publishing{Folder: s.cfg.Ledger, Beside: c.HPKEKeys, Budget: c.budget()}
	return &hostedTask{open: open, verifier: v, charging: charging, config: c}, nil
}

// loadBundle reads the task, which must be its owner's where one is configured.
func loadBundle(c TaskConfig) (raw []byte, open *taskfile.Open, err error) {
	var owner *task.SignKey
	if c.Owner != "" {
		key, err := taskfile.ParseKey("owner", c.Owner)
		if err != nil {
			return nil, nil, err
		}
		owner = &key
	}
	if raw, err = taskfile.ReadFile(c.File); err != nil {
		return nil, nil, err
	}
	bundle, err := taskfile.ParseBundle(raw)
	if err == nil {
		open, err = bundle.Open(owner)
	}
	if err != nil {
		return nil, nil, fmt.Errorf("%s: %w", c.File, err)
	}
	return raw, open, nil
}

// openFolder claims the data folder.
func (s *Server) openFolder() error {
	if err := durable.MakeFolder(s.cfg.Data, 0o700); err != nil {
		return fmt.Errorf("couldn't keep batches: %w", err)
	}
	release, err := durable.Claim(s.cfg.Data)
	if err != nil {
		return fmt.Errorf("couldn't keep batches in %s: %w", s.cfg.Data, err)
	}
	s.release = release
	return checkLayout(s.cfg.Data)
}

// checkLayout is an error where batches lie in the data folder itself, or were put aside there: a verifier of one task
// kept them so before each task had a folder of its own.
func checkLayout(data string) error {
	entries, err := os.ReadDir(data)
	if err != nil {
		return fmt.Errorf("couldn't read the data folder: %w", err)
	}
	for _, entry := range entries {
		if _, ok := collect.ParseFileName(entry.Name()); ok || entry.Name() == collect.QuarantineFolder {
			return fmt.Errorf("couldn't keep batches in %s: %s lies where it did before the first release: "+
				"move it to the folder of its task, %s", data, entry.Name(), filepath.Join(data, "ID"))
		}
	}
	return nil
}

// Close gives the folder of a server back that is not running.
func (s *Server) Close() (failed error) {
	for _, t := range s.tasks {
		if t.puller != nil {
			failed = errors.Join(failed, t.puller.Close(), t.verifier.Close())
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
	s.cfg.Log.Info("serving", "page", "http://"+s.cfg.Listen, "admin", s.cfg.Admin, "tasks", len(s.cfg.Tasks))
	working, stop := context.WithCancel(ctx)
	defer stop()
	var pulling sync.WaitGroup
	for _, t := range s.hostedTasks() {
		pulling.Go(func() { t.puller.Run(working, s.cfg.PullInterval) })
	}
	pulling.Go(func() { s.follow(working, &pulling) })
	s.ready.Store(true)
	err = service.Serve(ctx, servers)
	s.ready.Store(false)
	stop()
	service.Drain(servers)
	pulling.Wait()
	return err
}

// Handler returns the pages: a list of the tasks at /, and each task's at /tasks/ID/.
func (s *Server) Handler() http.Handler {
	hosts := display.NewHosts(settingHosts, s.cfg.Log, s.cfg.Listen, s.cfg.Hosts)
	return display.Protect(display.Bare, hosts.Guard(s.site.Handler()))
}

const settingHosts = "hosts"
