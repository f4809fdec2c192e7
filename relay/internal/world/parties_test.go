package world_test

import (
	"bytes"
	"context"
	"crypto/ed25519"
	"encoding/base64"
	"errors"
	"io/fs"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/doona-dp/doona/internal/testing/faultdisk"
	"github.com/doona-dp/doona/internal/testing/relaytest"
	"github.com/doona-dp/doona/issuer"
	"github.com/doona-dp/doona/relay"
	"github.com/doona-dp/doona/verifier"
	"github.com/doona-dp/doona/verifier/collect"
	"github.com/doona-dp/doona/wire/handover"
	"github.com/doona-dp/doona/wire/keyfile"
)

// party is a relay, the issuer or the verifier of a world, through all its lives.
type party struct {
	world   *world
	name    string
	address string // the address that it dials from
	folder  string
	disk    *faultdisk.Disk
	begin   func(p *party, l *life) (runner, error)

	lastState string               // the last state in the trace
	back      map[string]bool      // parts of its state that were rolled back
	faults    sync.Mutex           // held by the fault that has the party down
	now       atomic.Pointer[life] // the life that began last

	twin  atomic.Pointer[party] // a copy that runs beside it, or nil
	asked atomic.Int64          // number of requests while a copy runs

	mu     sync.Mutex // guards the rest
	offset time.Duration
	life   *life // nil while it is down
	run    runner
	cancel context.CancelFunc
	ended  chan struct{}
	logs   bytes.Buffer // warnings and errors
	why    string       // why the party did not start, or ""

	snapshots []snapshot
}

// snapshot is a copy of a party's files at a time.
type snapshot struct {
	at    time.Duration
	files map[string][]byte
}

// starting is held while a starting party copies [http.DefaultTransport].
var starting sync.Mutex

// runner is the program that runs in a life.
type runner interface {
	Run(ctx context.Context) error
}

// Now returns the time of the party's clock.
func (p *party) Now() time.Time {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.world.now().Add(p.offset)
}

// setClock sets how far the party's clock is ahead of the true time.
func (p *party) setClock(offset time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.offset = offset
}

func (p *party) alive() *life {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.life == nil {
		return nil
	}
	p.life.mu.Lock()
	defer p.life.mu.Unlock()
	if p.life.dead {
		return nil
	}
	return p.life
}

// start begins a life. It returns an error if the party does not start.
func (p *party) start() error {
	l := &life{listener: relaytest.ListenPipe()}
	p.now.Store(l)
	var run runner
	err := p.within(l, func() (err error) {
		run, err = p.begin(p, l)
		return err
	})
	p.mu.Lock()
	defer p.mu.Unlock()
	p.why = ""
	if err != nil {
		l.end()
		p.why = err.Error()
		return err
	}
	ctx, cancel := context.WithCancel(context.Background())
	p.life, p.run, p.cancel, p.ended = l, run, cancel, make(chan struct{})
	go func(ended chan struct{}) {
		defer close(ended)
		if err := run.Run(ctx); err != nil && ctx.Err() == nil && !l.over() {
			p.world.log("%s ended by itself: %v", p.name, err)
		}
	}(p.ended)
	return nil
}

// within calls do while [http.DefaultTransport] uses a life's connections.
func (p *party) within(l *life, do func() error) error {
	starting.Lock()
	defer starting.Unlock()
	before := http.DefaultTransport
	defer func() { http.DefaultTransport = before }()
	http.DefaultTransport = p.transport(l) // the party's program copies it
	return do()
}

// operate runs an operator's command for a party that is down.
func (p *party) operate(command func(p *party) error) error {
	l := &life{listener: relaytest.ListenPipe()}
	defer l.end()
	return p.within(l, func() error { return command(p) })
}

// rollbackReport returns a relay's state rollback, or why a party did not start; "" if neither.
func (p *party) rollbackReport() string {
	p.mu.Lock()
	run, why := p.run, p.why
	p.mu.Unlock()
	if r, ok := run.(*relay.Relay); ok {
		status, err := r.Status(context.Background())
		if err == nil {
			why = status.StateRollback
		}
	}
	return why
}

func (l *life) over() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.dead
}

// halt stops the party's program if it runs, or cleans up after a crash.
func (p *party) halt() {
	p.mu.Lock()
	l, cancel, ended := p.life, p.cancel, p.ended
	p.life, p.run = nil, nil
	p.mu.Unlock()
	if l == nil {
		return
	}
	cancel()
	<-ended
	l.end()
	l.listener.Close()
}

func (p *party) logger() *slog.Logger {
	return slog.New(slog.NewTextHandler(&lockedLog{party: p}, &slog.HandlerOptions{Level: slog.LevelWarn}))
}

type lockedLog struct{ party *party }

func (l *lockedLog) Write(b []byte) (int, error) {
	l.party.mu.Lock()
	defer l.party.mu.Unlock()
	return l.party.logs.Write(b)
}

// beginRelay returns the function that starts the relay at a hop.
func beginRelay(hop int) func(p *party, l *life) (runner, error) {
	return func(p *party, l *life) (runner, error) {
		cfg, err := p.relayConfig()
		if err != nil {
			return nil, err
		}
		cfg.Listener = l.listener
		plantIn(&cfg, p.world.bug.plant[hop])
		r, err := relay.New(cfg)
		if err != nil {
			return nil, err
		}
		return r, nil
	}
}

// relayConfig returns a relay's configuration without addresses.
func (p *party) relayConfig() (relay.Config, error) {
	cfg, err := relay.LoadConfig(filepath.Join(p.folder, "relay.yaml"))
	cfg.Listen, cfg.Admin = "", ""
	cfg.Clock, cfg.Elapsed, cfg.Log = p.Now, p.world.elapsed, p.logger()
	cfg.GiveUp, cfg.Retention = worldGiveUp, 24*time.Hour
	if p.world.kind == sets {
		cfg.GiveUp, cfg.Retention = setGiveUp, 10*365*24*time.Hour
	}
	for i := range cfg.Tasks {
		cfg.Tasks[i].IssuerKeys = ""
	}
	owner := "ed25519:" + base64.RawURLEncoding.EncodeToString(junkOwner.Public().(ed25519.PublicKey))
	cfg.Owners = []relay.OwnerConfig{{Owner: owner, Folder: filepath.Join(p.folder, "owner"), Tasks: 2}}
	return cfg, err
}

func (p *party) issuerConfig() issuer.Config {
	return issuer.Config{Store: "sqlite:" + filepath.Join(p.folder, "issuer.db"), Clients: "address",
		TrustedProxies: []string{"127.0.0.0/8"}, Skew: worldSkew, Clock: p.Now, Elapsed: p.world.since,
		Log: p.logger(),
		Tasks: []issuer.TaskConfig{{File: filepath.Join(filepath.Dir(p.folder), worldTask+".bundle"),
			Owner: p.world.Owner, TokenKeys: filepath.Join(p.folder, worldTask+".keys"), Quota: 1}}}
}

func beginIssuer(p *party, l *life) (runner, error) {
	cfg := p.issuerConfig()
	cfg.Listener = l.listener
	i, err := issuer.New(cfg)
	if err != nil {
		return nil, err
	}
	return i, nil
}

// pulling is a running verifier, with a puller for each task.
type pulling struct {
	pullers   []*collect.Puller
	verifiers []*verifier.Verifier
	interval  time.Duration
}

func (p *pulling) Run(ctx context.Context) error {
	var running sync.WaitGroup
	errs := make([]error, len(p.pullers))
	for i, puller := range p.pullers {
		running.Go(func() { errs[i] = puller.Run(ctx, p.interval) })
	}
	running.Wait()
	return errors.Join(append(errs, p.Close())...)
}

// Close releases all folders.
func (p *pulling) Close() (err error) {
	for _, puller := range p.pullers {
		err = errors.Join(err, puller.Close())
	}
	return err
}

func beginVerifier(p *party, _ *life) (runner, error) {
	out := &pulling{interval: 2 * time.Second}
	if p.world.kind == sets {
		out.interval = setPull
	}
	for _, a := range p.world.accounts {
		v, puller, err := p.beginPuller(a)
		if err != nil {
			return nil, errors.Join(err, out.Close())
		}
		out.pullers, out.verifiers = append(out.pullers, puller), append(out.verifiers, v)
	}
	return out, nil
}

func (p *party) beginPuller(a *account) (*verifier.Verifier, *collect.Puller, error) {
	keys, err := keyfile.LoadHPKE(filepath.Join(p.folder, a.file+".keys"))
	if err != nil {
		return nil, nil, err
	}
	sign, err := keyfile.LoadSign(filepath.Join(p.folder, "sign.key"))
	if err != nil {
		return nil, nil, err
	}
	v, err := verifier.New(a.open, keys)
	if err != nil {
		return nil, nil, err
	}
	transport, err := handover.LoadTransport("")
	if err != nil {
		return nil, nil, err
	}
	puller, err := collect.NewPuller(v, handover.NewRequester(sign, transport), filepath.Join(p.folder, a.data()),
		p.logger())
	if err != nil {
		return nil, nil, err
	}
	puller.Clock = p.Now
	return v, puller, nil
}

// part returns the part of a party's state to which a file belongs: store, secret, keys, mark or data; "" if to none.
func part(name string) string {
	if name == worldTask+".keys.mark" {
		return "mark"
	}
	for prefix, part := range map[string]string{"relay.db": "store", "issuer.db": "store", "relay.secret": "secret",
		worldTask + ".keys": "keys", "data/": "data"} {
		if strings.HasPrefix(name, prefix) {
			return part
		}
	}
	return ""
}

func (p *party) snapshot() map[string][]byte {
	out := map[string][]byte{}
	files := os.DirFS(p.folder)
	err := fs.WalkDir(files, ".", func(name string, f fs.DirEntry, err error) error {
		if err != nil || f.IsDir() || strings.HasSuffix(name, "-shm") || strings.HasSuffix(name, ".lock") {
			return err
		}
		out[name], err = fs.ReadFile(files, name)
		return err
	})
	if err != nil {
		panic(err)
	}
	return out
}

// restore replaces the files of some parts of a stopped party by earlier ones.
func (p *party) restore(from map[string][]byte, parts []string) error {
	for name := range p.snapshot() {
		if _, there := from[name]; !there && slices.Contains(parts, part(name)) {
			if err := os.Remove(filepath.Join(p.folder, name)); err != nil {
				return err
			}
		}
	}
	for name, content := range from {
		if slices.Contains(parts, part(name)) {
			if err := p.put(name, content); err != nil {
				return err
			}
		}
	}
	return nil
}

func (p *party) put(name string, content []byte) error {
	path := filepath.Join(p.folder, name)
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return err
	}
	return os.WriteFile(path, content, 0o600)
}
