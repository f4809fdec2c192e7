// Package server runs a verifier. It pulls the batches of its tasks from their last relays and stores them in a folder.
// It serves pages with the estimates. At a private address it serves its health and metrics.
//
// Durability: the process may be killed at any moment. A batch is on disk before the relay may delete it, and after a
// restart the server reads the stored batches.
//
// [New] makes a server from a [Config], and [Server.Run] runs it. docs/verifier.md is the manual.
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

// Server is a verifier that pulls batches. Its handlers are safe for concurrent use.
type Server struct {
	cfg       Config
	signers   *keyfile.Signers
	client    *handover.Requester // signs requests with the newest key
	streams   []*hostedStream
	site      *report.Site
	published *published
	webhook   *webhook                             // nil: none
	login     func(next http.Handler) http.Handler // guards the pages; nil if all may see them
	metrics   *service.Metrics
	release   func() error // releases the data folder for other processes

	transport http.RoundTripper // for all requests that the server makes

	ready atomic.Bool

	mu    sync.Mutex    // guards tasks
	tasks []*hostedTask // Configured tasks and their stored successors, then tasks that joined later.
}

// hostedTask is a task that the server pulls and counts.
type hostedTask struct {
	open     *taskfile.Open
	verifier *verifier.Verifier
	puller   *collect.Puller
	charging verifier.Publishing
	config   TaskConfig // configuration of the task, or of its stream's first task
}

// hostedTasks returns a copy of the current tasks.
func (s *Server) hostedTasks() []*hostedTask {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.tasks)
}

func (s *Server) find(id task.ID) *hostedTask {
	s.mu.Lock()
	defer s.mu.Unlock()
	if i := slices.IndexFunc(s.tasks, func(t *hostedTask) bool { return t.open.ID == id }); i >= 0 {
		return s.tasks[i]
	}
	return nil
}

// add adds a task. If after is not nil, both are in one stream and share an entry of the list.
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

// name returns the task's name in metrics and logs, which does not tell what the task asks.
func (s *hostedTask) name() string { return s.open.ID.String()[:8] }

// New opens the files and the folder that a configuration names, and reads the stored batches. It claims the folder for
// this process. The error is [durable.ErrClaimed] if another process uses the folder. The caller must call Run or
// Close, which release the folder.
func New(cfg Config) (*Server, error) {
	if err := cfg.validate(); err != nil {
		return nil, err
	}
	s := newServer(cfg)
	if err := s.load(); err != nil {
		return nil, errors.Join(err, s.Close())
	}
	s.metrics = newMetrics(s)
	return s, nil
}

func newServer(cfg Config) *Server { return &Server{cfg: cfg, site: report.NewSite()} }

// load loads keys, tasks and stored batches. After an error, the caller must call Close.
func (s *Server) load() error {
	if err := s.loadConfigured(); err != nil {
		return err
	}
	if err := s.openFolder(); err != nil {
		return err
	}
	if err := s.loadPublished(); err != nil {
		return err
	}
	if s.webhook != nil {
		if err := s.webhook.load(); err != nil {
			return err
		}
	}
	for _, t := range s.tasks {
		if err := s.openPuller(t); err != nil {
			return err
		}
	}
	return nil
}

// loadConfigured loads the files that the configuration names. It writes nothing, but closes files of keys to their
// group.
func (s *Server) loadConfigured() (err error) {
	if err := s.cfg.closeToGroup(); err != nil {
		return err
	}
	if s.login, err = s.loginGuard(); err != nil {
		return err
	}
	if s.cfg.PasswordFile != "" {
		s.site.SignOut = signInPath[1:]
	}
	if s.signers, err = keyfile.LoadSigners(s.cfg.SignKey, s.cfg.OldSignKeys); err != nil {
		return err
	}
	transport, err := handover.LoadTransport(s.cfg.CA)
	if err != nil {
		return err
	}
	s.transport, s.client = transport, handover.NewRequester(s.signers.Newest, transport)
	if s.webhook, err = s.newWebhook(); err != nil {
		return err
	}
	return s.loadTasks()
}

// loadTasks loads the configured tasks, and the stored tasks that follow them in their streams.
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
	if err := s.checkVisits(); err != nil {
		return err
	}
	for i, c := range s.cfg.Tasks {
		if err := s.loadStream(c, bundles[i], s.tasks[i]); err != nil {
			return err
		}
	}
	return s.checkBudgets()
}

// openPuller opens the ledger to charge for a task, then the folder of its batches, which it reads.
func (s *Server) openPuller(t *hostedTask) (err error) {
	if err := t.verifier.Publish(t.charging); errors.Is(err, verifier.ErrNoLedger) {
		return fmt.Errorf("%s: %w (ledger: in verifier.yaml names the folder of the ledgers; new_ledger: true of the task "+
			"begins one)", t.config.File, err)
	} else if err != nil {
		return err
	}
	client := handover.NewRequester(s.signers.Of(t.open.Verifier.SignKey), s.transport)
	if t.puller, err = collect.NewPuller(t.verifier, client, filepath.Join(s.cfg.Data, t.open.ID.String()),
		s.cfg.Log); err == nil {
		t.puller.Clock, t.puller.Late = s.cfg.Clock, s.cfg.Late
	}
	return err
}

// loadTask makes a task's verifier. file has the verifier's keys. c is the configuration of the task or, because all
// tasks of a stream charge one ledger, of its stream's first task.
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
	if c.Visits != "" {
		v.CountVisits(func() (map[int64]uint64, error) { return s.visits(c.Visits) })
	}
	charging := verifier.Publishing{Folder: s.cfg.Ledger, Beside: c.HPKEKeys, Budget: c.budget()}
	return &hostedTask{open: open, verifier: v, charging: charging, config: c}, nil
}

// loadBundle reads a task's bundle. If an owner is configured, that owner must have signed the task.
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

// checkLayout returns an error if batches or a quarantine folder are in the data folder itself, as in old versions. Now
// each task has its own folder.
func checkLayout(data string) error {
	entries, err := os.ReadDir(data)
	if err != nil {
		return fmt.Errorf("couldn't read the data folder: %w", err)
	}
	for _, entry := range entries {
		if _, ok := collect.ParseFileName(entry.Name()); ok || entry.Name() == collect.QuarantineFolder {
			return fmt.Errorf("couldn't keep batches in %s: %s has the layout of an old version: "+
				"move it to the folder of its task, %s", data, entry.Name(), filepath.Join(data, "ID"))
		}
	}
	return nil
}

// Close releases the folders of a server that is not running.
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

// Run pulls and serves until ctx ends. Then it finishes the current pulls, and answers the requests that have begun. It
// returns nil if that succeeds.
func (s *Server) Run(ctx context.Context) error {
	defer s.Close()
	servers, err := service.Listen(s.cfg.Log, s.cfg.Timing,
		service.Endpoint{Address: s.cfg.Listen, Listener: s.cfg.Listener, Handler: s.Handler()},
		service.Endpoint{Address: s.cfg.Admin, Listener: s.cfg.AdminListener, Handler: s.AdminHandler()})
	if err != nil {
		return err
	}
	if s.isOpen() {
		s.cfg.Log.Warn(openPages, "listen", s.pagesAddress(), "do", closePages)
	}
	s.cfg.Log.Info("serving", "page", "http://"+s.cfg.Listen, "admin", s.cfg.Admin, "tasks", len(s.cfg.Tasks))
	working, stop := context.WithCancel(ctx)
	defer stop()
	var pulling sync.WaitGroup
	for _, t := range s.hostedTasks() {
		pulling.Go(func() { t.puller.Run(working, s.cfg.PullInterval) })
	}
	pulling.Go(func() { s.follow(working, &pulling) })
	pulling.Go(func() { s.published.watch(working) })
	if s.webhook != nil {
		pulling.Go(func() { s.webhook.run(working) })
	}
	s.ready.Store(true)
	err = service.Serve(ctx, servers)
	s.ready.Store(false)
	stop()
	service.Drain(servers, s.cfg.Timing, err)
	pulling.Wait()
	return err
}

// A warning about pages that everybody may read, and what to do.
const (
	openPages  = "pages without a login at a public address: everyone who reaches it can read them"
	closePages = "set password_file or proxy_header, or let only your proxy reach it"
)

// isOpen reports whether the pages are at a public address and have no login.
func (s *Server) isOpen() bool { return s.login == nil && !isLoopback(s.pagesAddress()) }

func (s *Server) pagesAddress() string {
	if s.cfg.Listener != nil {
		return s.cfg.Listener.Addr().String()
	}
	return s.cfg.Listen
}

// Handler serves the pages: a list of the tasks at /, and each task at /tasks/ID/.
func (s *Server) Handler() http.Handler {
	hosts := display.NewHosts(settingHosts, s.cfg.Log, s.cfg.Listen, s.cfg.Hosts)
	pages := s.site.Handler()
	if s.login != nil {
		pages = s.login(pages)
	}
	return display.Protect(display.Bare, hosts.Guard(pages))
}

const settingHosts = "hosts"
