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

// phase is what a process was in the middle of when it was killed.
type phase string

const (
	ingesting  phase = "ingest"  // first relay: reports under way that it has not answered
	sealing    phase = "seal"    // first relay: a batch that is full, or an epoch's rest, not yet sealed
	pulling    phase = "pull"    // a batch under way, at either end
	mixing     phase = "mix"     // a mix or a verifier: has a batch in full and not yet its own of it on disk
	confirming phase = "confirm" // has its own batch on disk, and the relay before has not heard; or is hearing it
	erasing    phase = "erase"   // the epoch is over, its keys and replay set are not all gone
)

var phases = []phase{ingesting, sealing, pulling, mixing, confirming, erasing}

// phases of a process.
func (p *process) phases() []phase {
	switch {
	case p.task != nil:
		return []phase{pulling, mixing, confirming}
	case p.seat == 0:
		return []phase{ingesting, sealing, pulling, confirming, erasing}
	}
	return []phase{pulling, mixing, confirming, erasing}
}

// evidence says what a process that stands still is in the middle of: by the roads and its store.
func (p *process) evidence() map[phase]bool {
	out := map[phase]bool{}
	if p.task == nil {
		p.relayEvidence(out)
	}
	out[pulling] = p.serving[pull].Load() > 0 || p.asking[pull].Load() > 0
	out[confirming] = out[confirming] || p.serving[confirm].Load() > 0 || p.asking[confirm].Load() > 0
	if p.seat > 0 {
		before := p.world.roads[p.seat-1]
		if p.task != nil {
			p.keptEvidence(before, out)
		}
	}
	return out
}

func (p *process) relayEvidence(out map[phase]bool) {
	in := p.world.roads[p.seat].store.look(p.name)
	alone := len(p.world.roads[p.seat].backends) == 1 // keys are erased outside of transactions, too
	out[erasing] = (in.busy || alone) && in.ending > 0
	if p.seat == 0 {
		out[ingesting] = p.serving[report].Load() > 0
		out[sealing] = in.busy && in.sealing > 0
		return
	}
	out[confirming] = in.untold > 0
	before := p.world.roads[p.seat-1]
	before.mu.Lock()
	defer before.mu.Unlock()
	for at, delivered := range before.delivered {
		out[mixing] = out[mixing] || in.made[at] < delivered
	}
}

// keptEvidence is that of a verifier: its store is a folder.
func (p *process) keptEvidence(before *road, out map[phase]bool) {
	index, _ := p.world.placeOf(p.task.ID)
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

// killers kill processes until there are enough kills, in all and in every phase.
type killers struct {
	world  *world
	done   chan struct{}
	cancel context.CancelFunc
	work   sync.WaitGroup

	mu      sync.Mutex // guards the rest
	kills   map[string]int
	inPhase map[phase]int
	idle    int // in none of the phases
	failed  error
}

// startKillers kills every process again and again, and starts it again at once.
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

// all returns the number of kills; the caller holds mu.
func (k *killers) all() (n int) {
	for _, of := range k.kills {
		n += of
	}
	return n
}

// enough says whether there are, and batches have come through; the caller holds mu.
func (k *killers) enough() bool {
	return !slices.ContainsFunc(phases, k.wanted) && k.all() >= k.world.plan.kills &&
		k.world.released() >= k.world.plan.each*len(queries)
}

// pause bounds how long a process is left alone: the longer, the longer there are not enough kills,
// so that a slow machine comes to do something between two of them. While a phase is wanted, whoever has
// none that is mostly lives: what it takes to start again keeps others from where they are to die.
func (k *killers) pause(own []phase) time.Duration {
	k.mu.Lock()
	defer k.mu.Unlock()
	pause := k.world.plan.pause * time.Duration(1+k.all()/k.world.plan.kills)
	if slices.ContainsFunc(phases, k.wanted) && !slices.ContainsFunc(own, k.wanted) {
		pause *= 8
	}
	return pause
}

// wanted says whether there are not enough kills in a phase; the caller holds mu.
func (k *killers) wanted(ph phase) bool { return k.inPhase[ph] < k.world.plan.each }

// want picks the phase that a process is to die in: half of the time any, else the rarest so far.
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

// count notes a kill and says whether it is the last one.
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

// haunt kills one process again and again, and starts it again whenever it has ended.
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

// hauntOnce kills a process or lets it live, and then returns nil.
func (k *killers) hauntOnce(ctx context.Context, p *process) (map[phase]bool, error) {
	want := k.want(p)
	if err := k.approach(ctx, p, want); err != nil {
		return nil, err
	}
	return k.strike(ctx, p, want)
}

// approach waits for a random moment, mostly of a process that has come up, and for keys that go
// where a process is to die while it erases.
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

// awaitErasing waits until the keys of an epoch go, an epoch's length at most. All of an epoch is
// erased within some milliseconds of that, which blind looks would hardly ever hit.
func (p *process) awaitErasing(ctx context.Context) {
	before := p.keyFiles()
	for deadline := time.Now().Add(p.world.plan.epoch); ctx.Err() == nil && time.Now().Before(deadline) &&
		slices.EqualFunc(before, p.keyFiles(), os.SameFile); {
		sleep(ctx, time.Millisecond)
	}
}

// keyFiles returns a relay's files of keys, each of which another takes the place of when a key goes.
func (p *process) keyFiles() (files []os.FileInfo) {
	for _, q := range queries {
		if file, err := os.Stat(filepath.Join(p.world.folder(p.seat), q.Name+".keys")); err == nil {
			files = append(files, file)
		}
	}
	return files
}

// strike stops a process at random moments until it is in the middle of what is wanted, and kills
// it there. It returns nil if that did not come to pass within two seconds.
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

// hauntServer kills the database server, or one of its processes that serves a relay, which the
// server answers by a recovery of its own.
func (k *killers) hauntServer(ctx context.Context) error {
	s := k.world.server
	for ctx.Err() == nil {
		pause := k.pause(phases) // its end is felt in each
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
		case !errors.Is(err, errSpared):
			return err
		}
	}
	return nil
}

// errSpared is returned where there is nothing to kill.
var errSpared = errors.New("nothing to kill")

// killBackend kills the server's process of one connection and waits for the recovery.
func (k *killers) killBackend(ctx context.Context) error {
	db := k.world.roads[0].store.db
	witness, err := db.Conn(ctx)
	if err != nil {
		return err
	}
	defer witness.Close()
	var pid int
	const busiest = `SELECT pid FROM pg_stat_activity WHERE application_name LIKE 'relay%' ORDER BY xact_start IS NULL, random() LIMIT 1`
	err = witness.QueryRowContext(ctx, busiest).Scan(&pid)
	if errors.Is(err, sql.ErrNoRows) {
		return errSpared
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
		time.Sleep(time.Millisecond) // until the server has ended all connections
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
