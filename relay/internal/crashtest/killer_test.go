package crashtest_test

import (
	"context"
	"database/sql"
	"errors"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"
)

// phase is what a process was doing when it was killed.
type phase string

const (
	ingesting  phase = "ingest"  // first relay: reports without an answer yet
	sealing    phase = "seal"    // first relay: a full batch, or the last of an epoch, is not sealed yet
	pulling    phase = "pull"    // a batch is being transferred, to or from it
	mixing     phase = "mix"     // mix or verifier: has all of a batch, but its own result is not on disk
	confirming phase = "confirm" // its batch is on disk, but the upstream batch is not confirmed yet
	erasing    phase = "erase"   // the epoch is over, but its keys and replay set are not all erased
)

var phases = []phase{ingesting, sealing, pulling, mixing, confirming, erasing}

// phases returns the phases in which a process can be.
func (p *process) phases() []phase {
	switch {
	case p.task != nil:
		return []phase{pulling, mixing, confirming}
	case p.hop == 0:
		return []phase{ingesting, sealing, pulling, confirming, erasing}
	}
	return []phase{pulling, mixing, confirming, erasing}
}

// evidence returns the phases that a suspended process is in, according to the proxies and its store.
func (p *process) evidence() map[phase]bool {
	out := map[phase]bool{}
	if p.task == nil {
		p.relayEvidence(out)
	}
	out[pulling] = p.serving[pull].Load() > 0 || p.asking[pull].Load() > 0
	out[confirming] = out[confirming] || p.serving[confirm].Load() > 0 || p.asking[confirm].Load() > 0
	if p.hop > 0 {
		before := p.world.proxies[p.hop-1]
		if p.task != nil {
			p.keptEvidence(before, out)
		}
	}
	return out
}

func (p *process) relayEvidence(out map[phase]bool) {
	in := p.world.proxies[p.hop].store.read(p.name)
	alone := len(p.world.proxies[p.hop].backends) == 1 // a single process also erases keys outside of transactions
	out[erasing] = (in.busy || alone) && in.ending > 0
	if p.hop == 0 {
		out[ingesting] = p.serving[report].Load() > 0
		out[sealing] = in.busy && in.sealing > 0
		return
	}
	out[confirming] = in.unconfirmed > 0
	before := p.world.proxies[p.hop-1]
	before.mu.Lock()
	defer before.mu.Unlock()
	for at, delivered := range before.delivered {
		out[mixing] = out[mixing] || in.made[at] < delivered
	}
}

// keptEvidence adds the phases of a verifier, whose store is a folder.
func (p *process) keptEvidence(before *proxy, out map[phase]bool) {
	index, _ := p.world.taskOf(p.task.ID)
	before.mu.Lock()
	defer before.mu.Unlock()
	for at := range before.batches {
		if at.task != p.task.ID || before.confirmed[at] {
			continue
		}
		_, err := os.Stat(filepath.Join(p.world.batches(index), batchFile(at.epoch, at.seq)))
		out[mixing] = out[mixing] || err != nil
		out[confirming] = out[confirming] || err == nil
	}
}

// killers kill processes until there are enough kills, in total and in every phase.
type killers struct {
	world  *world
	done   chan struct{}
	cancel context.CancelFunc
	work   sync.WaitGroup

	mu      sync.Mutex // guards the rest
	kills   map[string]int
	inPhase map[phase]int
	idle    int // kills in none of the phases
	failed  error
}

// startKillers repeatedly kills every process at random moments, and starts it again.
func startKillers(ctx context.Context, w *world) *killers {
	ctx, cancel := context.WithCancel(ctx)
	k := &killers{world: w, done: make(chan struct{}), cancel: cancel, kills: map[string]int{},
		inPhase: map[phase]int{}}
	run := func(loop func(context.Context) error) {
		k.work.Go(func() {
			if err := loop(ctx); err != nil && ctx.Err() == nil {
				k.mu.Lock()
				k.failed = errors.Join(k.failed, err)
				k.mu.Unlock()
				cancel()
			}
		})
	}
	for _, p := range w.all() {
		run(func(ctx context.Context) error { return k.haunt(ctx, p) })
	}
	if w.server != nil {
		run(k.hauntServer)
	}
	go func() {
		k.work.Wait()
		close(k.done)
	}()
	return k
}

// all returns the number of kills. The caller holds mu.
func (k *killers) all() (n int) {
	for _, of := range k.kills {
		n += of
	}
	return n
}

// enough reports whether there are enough kills and released batches. The caller holds mu.
func (k *killers) enough() bool {
	return !slices.ContainsFunc(phases, k.wanted) && k.all() >= k.world.plan.kills &&
		k.world.released() >= k.world.plan.each*len(queries)
}

// pause limits how long a process runs without a kill. The limit grows with the number of kills, so that a slow machine
// makes progress. While kills in some phase are missing, processes that cannot be in that phase mostly keep running:
// their restarts would keep others from reaching it.
func (k *killers) pause(own []phase) time.Duration {
	k.mu.Lock()
	defer k.mu.Unlock()
	pause := k.world.plan.pause * time.Duration(1+k.all()/k.world.plan.kills)
	if slices.ContainsFunc(phases, k.wanted) && !slices.ContainsFunc(own, k.wanted) {
		pause *= 8
	}
	return pause
}

// wanted reports whether more kills in a phase are needed. The caller holds mu.
func (k *killers) wanted(ph phase) bool { return k.inPhase[ph] < k.world.plan.each }

// want chooses the phase in which to kill a process: half of the time any (""), otherwise the one with the fewest
// kills.
func (k *killers) want(p *process) phase {
	k.mu.Lock()
	defer k.mu.Unlock()
	if rand.IntN(2) == 0 {
		return ""
	}
	var rarest phase
	for _, ph := range p.phases() {
		if rarest == "" || k.inPhase[ph] < k.inPhase[rarest] {
			rarest = ph
		}
	}
	return rarest
}

// count records a kill, and stops the killers when there are enough.
func (k *killers) count(victim string, in map[phase]bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.kills[victim]++
	found := false
	for ph, yes := range in {
		if yes {
			k.inPhase[ph]++
			found = true
		}
	}
	if in != nil && !found {
		k.idle++
	}
	if k.enough() {
		k.cancel()
	}
}

// haunt repeatedly kills one process, and starts it again whenever it has ended.
func (k *killers) haunt(ctx context.Context, p *process) error {
	for ctx.Err() == nil {
		in, err := k.hauntOnce(ctx, p)
		if err := p.excused(err); err != nil {
			return err
		}
		if in != nil {
			k.count(p.name, in)
		}
		if p.cmd == nil {
			sleep(ctx, rand.N(50*time.Millisecond))
			if err := p.start(); err != nil {
				return err
			}
		}
	}
	return nil
}

// hauntOnce tries to kill a process. It returns nil if the process lives.
func (k *killers) hauntOnce(ctx context.Context, p *process) (map[phase]bool, error) {
	want := k.want(p)
	if err := k.approach(ctx, p, want); err != nil {
		return nil, err
	}
	return k.strike(ctx, p, want)
}

// approach waits until a random moment, usually until the process is up. If want is erasing, it waits until keys
// disappear.
func (k *killers) approach(ctx context.Context, p *process, want phase) error {
	for up := rand.IntN(8) == 0; !up && ctx.Err() == nil; up = p.up() {
		if err := p.check(); err != nil {
			return err
		}
		sleep(ctx, 20*time.Millisecond)
	}
	sleep(ctx, rand.N(k.pause(p.phases())))
	if want == erasing {
		p.awaitErasing(ctx)
		sleep(ctx, rand.N(30*time.Millisecond))
	}
	return nil
}

// awaitErasing waits until keys of an epoch disappear, at most one epoch's length. The rest of the epoch is erased
// within milliseconds after that, so random moments would hardly ever hit it.
func (p *process) awaitErasing(ctx context.Context) {
	before := p.keyFiles()
	for deadline := time.Now().Add(p.world.plan.epoch); ctx.Err() == nil && time.Now().Before(deadline) &&
		slices.EqualFunc(before, p.keyFiles(), os.SameFile); {
		sleep(ctx, time.Millisecond)
	}
}

// keyFiles returns a relay's key files. The relay replaces a file when it erases a key.
func (p *process) keyFiles() (files []os.FileInfo) {
	for _, q := range queries {
		if file, err := os.Stat(filepath.Join(p.world.folder(p.hop), q.Name+".keys")); err == nil {
			files = append(files, file)
		}
	}
	return files
}

// strike suspends a process at random moments until it is in the wanted phase, and then kills it. It returns nil if
// that does not happen within two seconds.
func (k *killers) strike(ctx context.Context, p *process, want phase) (map[phase]bool, error) {
	for deadline := time.Now().Add(2 * time.Second); ctx.Err() == nil &&
		time.Now().Before(deadline); sleep(ctx, rand.N(60*time.Millisecond)) {
		if err := p.freeze(); err != nil {
			return nil, err
		}
		in := p.evidence()
		if want == "" || in[want] {
			return in, p.kill()
		}
		if err := p.thaw(); err != nil {
			return nil, err
		}
	}
	return nil, nil
}

// hauntServer repeatedly kills the database server, or one server process that serves a relay. The server then
// recovers.
func (k *killers) hauntServer(ctx context.Context) error {
	s := k.world.server
	for ctx.Err() == nil {
		pause := k.pause(phases) // a database outage affects every phase
		sleep(ctx, between(2*pause, 6*pause))
		if ctx.Err() != nil {
			return nil
		}
		s.outages.begin()
		var err error
		victim := "postgres"
		if rand.IntN(2) == 0 {
			if err = s.Crash(); err == nil {
				sleep(ctx, rand.N(200*time.Millisecond))
				err = s.Restart()
			}
		} else {
			victim = "postgres backend"
			err = k.killBackend(ctx)
		}
		s.outages.end()
		switch {
		case err == nil:
			k.count(victim, nil)
		case !errors.Is(err, errNothingToKill):
			return err
		}
	}
	return nil
}

// errNothingToKill means that no server process serves a relay.
var errNothingToKill = errors.New("nothing to kill")

// killBackend kills the server process of one connection and waits until the server has recovered.
func (k *killers) killBackend(ctx context.Context) error {
	db := k.world.proxies[0].store.db
	witness, err := db.Conn(ctx)
	if err != nil {
		return err
	}
	defer witness.Close()
	var pid int
	const busiest = `SELECT pid FROM pg_stat_activity WHERE application_name LIKE 'relay%' ORDER BY xact_start IS NULL, random() LIMIT 1`
	err = witness.QueryRowContext(ctx, busiest).Scan(&pid)
	if errors.Is(err, sql.ErrNoRows) {
		return errNothingToKill
	}
	if err != nil {
		return err
	}
	p, err := os.FindProcess(pid)
	if err != nil {
		return err
	}
	if err := p.Kill(); err != nil {
		return err
	}
	for deadline := time.Now().Add(time.Minute); time.Now().Before(deadline) && witness.PingContext(ctx) == nil; {
		time.Sleep(time.Millisecond) // until the server has closed all connections
	}
	return k.world.server.Wait()
}

// finish waits until there are enough kills, or ctx ends.
func (k *killers) finish(t *testing.T) error {
	tick := time.NewTicker(10 * time.Second)
	defer tick.Stop()
	for {
		select {
		case <-k.done:
			return k.failed
		case <-tick.C:
			k.mu.Lock()
			t.Logf("%d batches out, kills %v, in phases %v", k.world.released(), k.kills, k.inPhase)
			k.mu.Unlock()
		}
	}
}

func sleep(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}
