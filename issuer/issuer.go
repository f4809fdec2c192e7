// Package issuer issues the anonymous tokens with which clients report ([token]): a limited number per account and
// epoch. It signs blindly, so neither the issuer nor a relay can tell whose token a report carries.
//
//	page ── TokenRequest ─▶ site's backend ── + API key, Doona-Account ─▶ issuer: count → sign
//	page ◀──────────────────────────── blind signature ─────────────────────┘
//
// An issuer learns how many tokens each account got for each epoch, and when. It cannot learn whether a token was
// spent, or on which report. It is trusted to keep the limit: an attacker with unlimited tokens can surround one client
// with its own clients, and so learn that client's value. So the issuer must be independent of the task's owner and
// verifier.
//
// For each token, the issuer stores a hash of the account and a hash of the request. It derives the key of these hashes
// from the epoch's private key, and erases both keys together. [New] makes an issuer from a [Config]. [Issuer.Run]
// serves it. docs/issuer.md is the manual.
package issuer

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/doona-dp/doona/internal/clock"
	"github.com/doona-dp/doona/internal/durable"
	"github.com/doona-dp/doona/internal/invalid"
	"github.com/doona-dp/doona/internal/secret"
	"github.com/doona-dp/doona/internal/service"
	"github.com/doona-dp/doona/wire/handover"
	"github.com/doona-dp/doona/wire/keyfile"
	"github.com/doona-dp/doona/wire/task"
	"github.com/doona-dp/doona/wire/taskfile"
	"github.com/doona-dp/doona/wire/token"
)

// Issuer issues the tokens of its tasks. Its handlers are safe for concurrent use.
type Issuer struct {
	cfg          Config
	serving      atomic.Pointer[hostedTasks]
	streams      []*hostedStream
	metrics      *service.Metrics
	store        *store // nil if Inspect found no store
	apiKeys      []keyHash
	proxies      service.Proxies
	requestLimit *requestLimit
	opened       *service.Connections
	clock        *clock.Guard
	signers      *keyfile.Signers    // nil if the issuer does not sign its clock
	relays       *handover.Requester // asks relays for their time
	reserve      *durable.Reserve    // disk space reserved for erasing keys and counts
	ready        atomic.Bool
	failing      atomic.Bool // the last write to the store failed
	once         sync.Once   // makes Close close the store once
}

// hostedTasks are the tasks that an issuer serves. It is immutable: to add a task, Issuer.serve replaces it with a
// copy.
type hostedTasks struct {
	tasks map[task.ID]*hostedTask
	order []*hostedTask // as configured, with known later tasks of streams; then tasks added while running
}

func (i *Issuer) hosted() *hostedTasks { return i.serving.Load() }

// serve adds a task to those that the issuer serves.
func (i *Issuer) serve(s *hostedTask) {
	now := i.hosted()
	next := &hostedTasks{tasks: maps.Clone(now.tasks), order: append(slices.Clone(now.order), s)}
	next.tasks[s.ID] = s
	i.serving.Store(next)
}

// hostedTask is one task with the issuer's keys for it.
type hostedTask struct {
	*taskfile.Open
	keys  *keyfile.RSA
	file  string // path of the key file
	quota int

	mu     sync.Mutex // guards epoch
	epoch  map[uint64]*epochKey
	erased uint64 // epochs 0 to erased-1 have no key and no counts; only eraseLoop uses it
}

// epochKey signs an epoch's tokens.
type epochKey struct {
	*token.PrivateKey
	counts *secret.Bytes // key for the hashes of accounts and requests
}

// New opens the files and the store that a configuration names, and checks that each task names the configured keys.
// The caller must call Run, which closes the store, or Close.
func New(cfg Config) (*Issuer, error) {
	i, err := load(cfg)
	if err != nil {
		return nil, err
	}
	i.metrics = newMetrics(i)
	i.opened = service.NewConnections(i.cfg.MaxConnections, i.proxies, func() { i.metrics.Add(metricUnconnected, 1) })
	if err := i.loadClock(); err != nil {
		return nil, err
	}
	if i.store, err = openStore(cfg.Store); err != nil {
		return nil, err
	}
	var errs []error
	for _, s := range i.hosted().order {
		if err := i.store.join(s); err != nil {
			errs = append(errs, fmt.Errorf("couldn't issue tokens of task %s: %w", s.ID, err))
			continue
		}
		errs = append(errs, i.eraseRestoredKeys(s), s.checkWhole(i.store.erased(s.ID)))
	}
	i.reserve, err = i.newReserve()
	if err := errors.Join(append(errs, err)...); err != nil {
		return nil, errors.Join(err, i.Close())
	}
	return i, nil
}

// eraseRestoredKeys erases keys that the issuer had erased before, but that an operator brought back with an older key
// file.
func (i *Issuer) eraseRestoredKeys(s *hostedTask) error {
	for _, epoch := range s.keys.Epochs() {
		if epoch >= i.store.erased(s.ID) {
			continue
		}
		i.cfg.Log.Warn("erased a key again: an older copy of the key file was restored", "task", s.name(), "epoch", epoch)
		if err := s.eraseKey(epoch); err != nil {
			return err
		}
	}
	return nil
}

// checkWhole returns an error if the key file lacks the key of an epoch after one that has a key. An issuer erases keys
// in order, so the file was damaged, and pages would find that epoch closed.
func (s *hostedTask) checkWhole(erased uint64) error {
	left := slices.DeleteFunc(s.keys.Epochs(), func(epoch uint64) bool { return epoch < erased })
	slices.Sort(left)
	for i := range left {
		next := s.Epochs.Count
		if i < len(left)-1 {
			next = left[i+1]
		}
		if next != left[i]+1 {
			return invalid.Field("token_keys", s.file, fmt.Sprintf("the keys of all epochs from %d on (epoch %d is missing)",
				left[0], left[i]+1))
		}
	}
	return nil
}

// Inspect opens an issuer for reading its Status only: it creates no store and changes nothing.
func Inspect(cfg Config) (*Issuer, error) {
	i, err := load(cfg)
	if err != nil {
		return nil, err
	}
	if _, err := os.Stat(storePath(cfg.Store)); !errors.Is(err, fs.ErrNotExist) {
		if i.store, err = readStore(cfg.Store); err != nil {
			return nil, err
		}
	}
	var errs []error
	for _, s := range i.hosted().order {
		p, err := s.readBinding(i.store)
		if err == nil {
			err = p.check()
		}
		if err == nil {
			erased := uint64(0)
			if p.mark != nil {
				erased = p.mark.Erased
			}
			err = s.checkWhole(erased)
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("couldn't issue tokens of task %s: %w", s.ID, err))
		}
	}
	if err := errors.Join(errs...); err != nil {
		return nil, errors.Join(err, i.Close())
	}
	return i, nil
}

// load checks the configuration and loads tasks and keys. The issuer that it returns has no store yet.
func load(cfg Config) (*Issuer, error) {
	if err := cfg.validate(); err != nil {
		return nil, err
	}
	if err := cfg.closeToGroup(); err != nil {
		return nil, err
	}
	i := &Issuer{cfg: cfg, requestLimit: newRequestLimit(cfg.MaxConcurrent, len(cfg.Tasks))}
	i.serving.Store(&hostedTasks{tasks: map[task.ID]*hostedTask{}})
	trusted, err := service.ParseNetworks("trusted_proxies", cfg.TrustedProxies)
	if err != nil {
		return nil, err
	}
	i.proxies = service.Proxies{Trusted: trusted, Header: cfg.ForwardedHeader}
	keys, err := loadAPIKeys(cfg.APIKeys)
	if err != nil {
		return nil, err
	}
	for _, key := range keys {
		i.apiKeys = append(i.apiKeys, hashKey(key))
	}
	return i, i.loadTasks()
}

// Close closes the store of an issuer that is not running.
func (i *Issuer) Close() error {
	var err error
	if i.store != nil {
		i.once.Do(func() { err = i.store.close() })
	}
	return err
}

func (i *Issuer) loadTasks() error {
	files := map[string]bool{}
	for _, c := range i.cfg.Tasks {
		raw, s, err := loadTask(c)
		if err != nil {
			return fmt.Errorf("%s: %w", c.File, err)
		}
		path, err := filepath.EvalSymlinks(c.TokenKeys)
		if err != nil || files[path] || i.hosted().tasks[s.ID] != nil {
			return fmt.Errorf("%s: %w", c.File,
				invalid.Field("token_keys", c.TokenKeys, "a separate file for every task, and every task once"))
		}
		files[path] = true
		i.serve(s)
		if err := i.loadStream(c, raw, s); err != nil {
			return fmt.Errorf("%s: %w", c.File, err)
		}
	}
	return nil
}

// loadTask reads a task and the issuer's keys for it. The configured owner must have signed the task.
func loadTask(c TaskConfig) (raw []byte, s *hostedTask, err error) {
	owner, err := taskfile.ParseKey("owner", c.Owner)
	if err != nil {
		return nil, nil, err
	}
	if raw, err = taskfile.ReadFile(c.File); err != nil {
		return nil, nil, err
	}
	bundle, err := taskfile.ParseBundle(raw)
	if err != nil {
		return nil, nil, err
	}
	open, err := bundle.Open(&owner)
	if err != nil {
		return nil, nil, err
	}
	s, err = loadOpen(open, c.TokenKeys, c.Quota)
	return raw, s, err
}

// loadOpen loads the issuer's keys for an opened task from a file, and checks that the task names these keys.
func loadOpen(open *taskfile.Open, file string, quota int) (*hostedTask, error) {
	if open.Clients.Kind != task.ClientToken {
		return nil, invalid.Field("clients.kind", fmt.Sprintf("%q", open.Clients.Kind), "token")
	}
	s := &hostedTask{Open: open, file: file, quota: quota, epoch: map[uint64]*epochKey{}}
	var err error
	if s.keys, err = keyfile.LoadRSA(file); err != nil {
		return nil, err
	}
	for _, epoch := range s.keys.Epochs() {
		if _, err := s.epochKey(epoch); err != nil {
			return nil, fmt.Errorf("%s: %w", file, err)
		}
	}
	return s, nil
}

// name returns the first 8 hexadecimal digits of the task's ID, for metrics and logs.
func (s *hostedTask) name() string { return s.ID.String()[:8] }

// epochKey returns the key of an epoch, or [keyfile.ErrErased].
func (s *hostedTask) epochKey(epoch uint64) (*epochKey, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if k := s.epoch[epoch]; k != nil {
		return k, nil
	}
	private, err := s.keys.Key(epoch)
	if err != nil {
		return nil, err
	}
	if epoch >= s.Epochs.Count || private.Public().ID() != s.TokenKeys[epoch] {
		return nil, invalid.Field("token_keys", fmt.Sprintf("the key of epoch %d", epoch),
			"the keys that the task names")
	}
	counts := make([]byte, sha256.Size)
	if !private.Use(func(exponent []byte) { countsKey(counts, exponent) }) {
		return nil, keyfile.ErrErased
	}
	s.epoch[epoch] = &epochKey{private, secret.Own(counts)}
	return s.epoch[epoch], nil
}

// countsKey sets counts to the key for the epoch's hashes: HMAC-SHA256 of a constant under the private exponent. It
// leaves no copy of the exponent in memory, nor a second copy of the derived key.
func countsKey(counts, exponent []byte) {
	secret.Do(func() {
		short := shortKey(sha256.Sum256(exponent)) // HMAC itself hashes a key this long
		secret.HMAC(counts, short[:], []byte("doona issuer counts"), separator)
		clear(short[:])
	})
}

// shortKey is the SHA-256 of an HMAC key that is longer than a block (64 bytes).
type shortKey [sha256.Size]byte

// separator ends each part of a hash's input, so that different parts never form the same input.
var separator = []byte{0}

// eraseKey erases an epoch's private key and the key for its hashes. If another process has already erased the private
// key, eraseKey still erases the hash key from this process's memory.
func (s *hostedTask) eraseKey(epoch uint64) error {
	if slices.Contains(s.keys.Epochs(), epoch) {
		if err := s.keys.Erase(epoch); err != nil {
			return err
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if k := s.epoch[epoch]; k != nil {
		k.counts.Clear()
	}
	delete(s.epoch, epoch)
	return nil
}

// name returns the keyed hash of an account or a request, or [keyfile.ErrErased]. kind keeps the hashes of different
// uses apart.
func (k *epochKey) name(kind string, of []byte) (name hash, err error) {
	if !k.counts.Use(func(key []byte) { secret.HMAC(name[:], key, []byte(kind), separator, of, separator) }) {
		return name, keyfile.ErrErased
	}
	return name, nil
}

// window returns from when to when the issuer issues an epoch's tokens. It starts one epoch early, so that clients can
// get tokens before they report.
func (i *Issuer) window(s *hostedTask, epoch uint64) (start, end time.Time) {
	start = time.Unix(s.Epochs.Length.Add(int64(s.Epochs.Begin(epoch)), -1), 0)
	end = time.Unix(int64(s.Epochs.End(epoch)), 0)
	return start.Add(-i.cfg.Skew), end.Add(i.cfg.Skew)
}

// Pauses between two searches for epochs that have ended. erasePause is short: an epoch may end as soon as the relays
// confirm the time, and a search that finds no ended epoch costs nothing. After a failure the loop waits
// eraseAgainPause.
const (
	erasePause      = time.Second
	eraseAgainPause = 10 * time.Second
)

// eraseLoop erases the keys and counts of epochs that have ended, until ctx ends.
func (i *Issuer) eraseLoop(ctx context.Context) {
	for {
		pause := erasePause
		if err := i.erase(ctx); err != nil && ctx.Err() == nil {
			i.recordFailure("couldn't erase an epoch", err)
			pause = eraseAgainPause
		}
		if err := i.refill(ctx); err != nil && ctx.Err() == nil {
			i.recordFailure("couldn't reserve disk space for erasing", err)
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(pause):
		}
	}
}

// erase erases the keys and counts of epochs that have surely ended. It also deletes counts whose key an earlier run
// erased. It erases the key first: without it the counts reveal nothing, even if they cannot be deleted.
func (i *Issuer) erase(ctx context.Context) error {
	var errs []error
	read := i.clock.Read()
	for _, s := range i.hosted().order {
		complete := true
		for epoch := s.erased; epoch < s.Epochs.Count; epoch++ {
			if _, end := i.window(s, epoch); !read.Over(end) {
				break
			}
			err := i.withReserve(func() error {
				return errors.Join(i.store.setErased(s.ID, epoch+1), s.eraseKey(epoch), i.store.erase(ctx, s.ID, epoch))
			})
			errs = append(errs, err)
			if complete = complete && err == nil; complete {
				s.erased = epoch + 1
			}
		}
	}
	return errors.Join(errs...)
}
