package relay_test

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/doona-dp/doona/internal/faultdisk"
	"github.com/doona-dp/doona/internal/relaytest"
	"github.com/doona-dp/doona/issuer"
	"github.com/doona-dp/doona/relay"
	"github.com/doona-dp/doona/verifier"
	"github.com/doona-dp/doona/wire/handover"
	"github.com/doona-dp/doona/wire/keyfile"
)

// party is a relay, the issuer or the verifier of a world, through all its lives.
type party struct {
	world   *world
	name    string
	address string // of what it dials
	folder  string
	disk    *faultdisk.Disk
	begin   func(p *party, l *life) (runner, error)

	told   string               // its state, in the trace
	faults sync.Mutex           // held by the fault that has the party down
	now    atomic.Pointer[life] // the one that was begun last

	mu     sync.Mutex // guards the rest
	offset time.Duration
	life   *life // nil while it is down
	run    runner
	cancel context.CancelFunc
	ended  chan struct{}
	logs   bytes.Buffer // of this life
	why    string       // it does not start, if so

	snapshots []snapshot
}

// snapshot is what a party's files were at a time.
type snapshot struct {
	at    time.Duration
	files map[string][]byte
}

// starting is held while a party makes its connections out of [http.DefaultTransport].
var starting sync.Mutex

// runner is what runs in a life.
type runner interface {
	Run(ctx context.Context) error
}

// Now is the party's clock.
func (p *party) Now() time.Time {
	p.mu.Lock()
	defer p.mu.Unlock()
	return time.Now().Add(p.offset)
}

// setClock sets how much the party's clock is ahead.
func (p *party) setClock(offset time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.offset = offset
}

// alive returns the party's life, or nil where it has none.
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

// start begins a life. It says why, where the party does not start.
func (p *party) start() error {
	l := &life{listener: relaytest.ListenPipe()}
	p.now.Store(l)
	starting.Lock()
	before := http.DefaultTransport
	http.DefaultTransport = p.transport(l) // of which parties make theirs
	run, err := p.begin(p, l)
	http.DefaultTransport = before
	starting.Unlock()
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

func (l *life) over() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.dead
}

// halt ends a life, if there is one: as an operator would, or what is left of one that has died.
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

// logger keeps warnings and errors, for the trace of a world that fails.
func (p *party) logger() *slog.Logger {
	return slog.New(slog.NewTextHandler(&lockedLog{party: p}, &slog.HandlerOptions{Level: slog.LevelWarn}))
}

type lockedLog struct{ party *party }

func (l *lockedLog) Write(b []byte) (int, error) {
	l.party.mu.Lock()
	defer l.party.mu.Unlock()
	return l.party.logs.Write(b)
}

// beginRelay starts the relay at a hop.
func beginRelay(hop int) func(p *party, l *life) (runner, error) {
	return func(p *party, l *life) (runner, error) {
		cfg, err := relay.LoadConfig(filepath.Join(p.folder, "relay.yaml"))
		if err != nil {
			return nil, err
		}
		cfg.Listener, cfg.Listen, cfg.Admin = l.listener, "", ""
		cfg.Clock, cfg.Elapsed, cfg.Log = p.Now, p.world.since, p.logger()
		cfg.GiveUp, cfg.Retention = worldGiveUp, 24*time.Hour
		for i := range cfg.Tasks {
			cfg.Tasks[i].IssuerKeys = ""
		}
		r, err := relay.New(cfg)
		if err != nil {
			return nil, err
		}
		p.world.bug.plantRelay(r, hop)
		return r, nil
	}
}

// issuerConfig is the issuer's configuration.
func (p *party) issuerConfig() issuer.Config {
	return issuer.Config{Store: "sqlite:" + filepath.Join(p.folder, "issuer.db"), Clients: "address",
		TrustedProxies: []string{"127.0.0.0/8"}, Skew: worldSkew, Clock: p.Now, Elapsed: p.world.since,
		Log: p.logger(),
		Tasks: []issuer.TaskConfig{{File: filepath.Join(filepath.Dir(p.folder), worldTask+".bundle"),
			Owner: p.world.Owner, TokenKeys: filepath.Join(p.folder, worldTask+".keys"), Quota: 1}}}
}

// beginIssuer starts the issuer.
func beginIssuer(p *party, l *life) (runner, error) {
	cfg := p.issuerConfig()
	cfg.Listener = l.listener
	i, err := issuer.New(cfg)
	if err != nil {
		return nil, err
	}
	return i, nil
}

// pulling is a verifier that runs.
type pulling struct {
	*verifier.Puller
	verifier *verifier.Verifier
}

func (p *pulling) Run(ctx context.Context) error {
	err := p.Puller.Run(ctx, 2*time.Second)
	return errors.Join(err, p.Close())
}

// beginVerifier starts the verifier.
func beginVerifier(p *party, _ *life) (runner, error) {
	keys, err := keyfile.LoadHPKE(filepath.Join(p.folder, worldTask+".keys"))
	if err != nil {
		return nil, err
	}
	sign, err := keyfile.LoadSign(filepath.Join(p.folder, "sign.key"))
	if err != nil {
		return nil, err
	}
	v, err := verifier.New(p.world.Open, keys)
	if err != nil {
		return nil, err
	}
	transport, err := handover.LoadTransport("")
	if err != nil {
		return nil, err
	}
	puller, err := verifier.NewPuller(v, handover.NewClient(sign, transport), filepath.Join(p.folder, "data"),
		p.logger())
	if err != nil {
		return nil, err
	}
	puller.Clock = p.Now
	return &pulling{puller, v}, nil
}

// part says which part of a party a file belongs to: its store, its secret, its keys, or none. A mark is part of
// what it stands beside.
func part(name string) string {
	for prefix, part := range map[string]string{"relay.db": "store", "issuer.db": "store", "relay.secret": "secret",
		worldTask + ".keys": "keys"} {
		if strings.HasPrefix(name, prefix) {
			return part
		}
	}
	return ""
}

// snapshot copies a party's files.
func (p *party) snapshot() map[string][]byte {
	out := map[string][]byte{}
	found, err := os.ReadDir(p.folder)
	if err != nil {
		panic(err)
	}
	for _, f := range found {
		if f.IsDir() || strings.HasSuffix(f.Name(), "-shm") || strings.HasSuffix(f.Name(), ".lock") {
			continue
		}
		content, err := os.ReadFile(filepath.Join(p.folder, f.Name()))
		if err != nil {
			panic(err)
		}
		out[f.Name()] = content
	}
	return out
}

// restore puts some parts of a party that is down back to an earlier moment.
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
			if err := os.WriteFile(filepath.Join(p.folder, name), content, 0o600); err != nil {
				return err
			}
		}
	}
	return nil
}
