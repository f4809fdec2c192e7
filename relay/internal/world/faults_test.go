package world_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/doona-dp/doona/internal/quickstart"
	"github.com/doona-dp/doona/internal/testing/faultdisk"
)

// fault is something that goes wrong in a world at a time.
type fault struct {
	at    time.Duration
	kind  string
	words string // describes it, with its parameters
	do    func(w *world)
}

// drawFault draws a random fault of one kind.
type drawFault func(rng *rand.Rand, tokens bool) fault

// The kinds of faults.
const (
	faultNetwork       = "network"
	faultLie           = "lie"
	faultCrash         = "crash"
	faultFull          = "full disk"
	faultClock         = "clock"
	faultStateRollback = "state-rolled-back"
	faultCopy          = "two copies"
)

// kinds are the functions that draw faults, by kind. kindNames lists the kinds in a fixed order.
var kinds = map[string]drawFault{
	faultNetwork: drawNetwork, faultLie: drawLie, faultCrash: drawCrash, faultFull: drawFull, faultClock: drawClock,
	faultStateRollback: drawStateRollback, faultCopy: drawCopy, faultNumbers: drawNumbers, faultEndless: drawEndless,
	faultJunk: drawJunk,
}

var kindNames = []string{faultNetwork, faultLie, faultCrash, faultFull, faultClock, faultStateRollback, faultCopy,
	faultNumbers,
	faultEndless, faultJunk}

func draw[T any](rng *rand.Rand, of ...T) T { return of[rng.IntN(len(of))] }

// moment draws a time within the run of a world.
func moment(rng *rand.Rand) time.Duration {
	return time.Duration(rng.Int64N(int64(worldLead + worldEpochs*worldLength + worldLength)))
}

func between(rng *rand.Rand, lo, hi time.Duration) time.Duration {
	return lo + time.Duration(rng.Int64N(int64(hi-lo)))
}

func drawParty(rng *rand.Rand, tokens bool) string {
	if tokens {
		return draw(rng, "relay1", "relay2", "verifier", "issuer")
	}
	return draw(rng, "relay1", "relay2", "verifier")
}

// drawNetwork draws a link that fails for a while.
func drawNetwork(rng *rand.Rand, tokens bool) fault {
	ends := [][2]string{{"relay2", "relay1"}, {"verifier", "relay2"}, {"clients", "relay1"}, {"", "relay1"},
		{"", "relay2"}}
	if tokens {
		ends = append(ends, [2]string{"clients", "issuer"}, [2]string{"relay1", "issuer"})
	}
	at, lasts := moment(rng), between(rng, time.Second, 90*time.Second)
	what := draw(rng, linkRefuse, linkSwallow, linkLose, linkCut, linkSlow)
	return ofLink(faultNetwork, at, lasts, draw(rng, ends...), what)
}

// drawLie draws an attacker on a link who answers in place of a party.
func drawLie(rng *rand.Rand, _ bool) fault {
	at, lasts := moment(rng), between(rng, time.Second, 60*time.Second)
	ends := draw(rng, [2]string{"relay2", "relay1"}, [2]string{"verifier", "relay2"})
	what := draw(rng, linkReplay, linkOver, linkNoEnd, linkLie)
	if what == linkLie {
		ends = [2]string{"relay2", "relay1"}
	}
	return ofLink(faultLie, at, lasts, ends, what)
}

func ofLink(kind string, at, lasts time.Duration, ends [2]string, what string) fault {
	return fault{at, kind, fmt.Sprintf("from %q to %q: %s for %v", ends[0], ends[1], what,
		lasts.Round(time.Millisecond)),
		func(w *world) {
			w.network.add(&linkFault{ends[0], ends[1], what, time.Now().Add(lasts)})
		}}
}

// drawCrash draws a crash at a write to disk, and perhaps further crashes after restarts.
func drawCrash(rng *rand.Rand, tokens bool) fault {
	at, name := moment(rng), drawParty(rng, tokens)
	writes := []int{rng.IntN(draw(rng, 3, 40, 200))}
	for rng.IntN(3) == 0 {
		writes = append(writes, 1+rng.IntN(20))
	}
	down := between(rng, 10*time.Millisecond, draw(rng, time.Second, 60*time.Second))
	return fault{at, faultCrash,
		fmt.Sprintf("%s at writes %v, down for %v", name, writes, down.Round(time.Millisecond)),
		func(w *world) { w.parties[name].crash(writes, down, nil) }}
}

// drawFull draws a disk on which some writes fail.
func drawFull(rng *rand.Rand, tokens bool) fault {
	at, name, writes := moment(rng), drawParty(rng, tokens), 1+rng.IntN(draw(rng, 3, 30))
	return fault{at, faultFull, fmt.Sprintf("%s: %d writes fail", name, writes),
		func(w *world) { w.parties[name].disk.Fill(writes) }}
}

// drawClock draws a wrong clock, for a while or until all faults end.
func drawClock(rng *rand.Rand, tokens bool) fault {
	at, name := moment(rng), drawParty(rng, tokens)
	by := draw[time.Duration](rng, 1, -1) * draw(rng, 30*time.Second, 10*time.Minute, 24*time.Hour, 10*365*24*time.Hour)
	lasts := draw(rng, between(rng, time.Second, 60*time.Second), time.Hour)
	return fault{at, faultClock, fmt.Sprintf("%s: %v for %v", name, by, lasts.Round(time.Millisecond)), func(w *world) {
		p := w.parties[name]
		p.setClock(by)
		time.Sleep(min(lasts, w.untilHeal()))
		p.setClock(0)
	}}
}

// partsOf lists the parts of a party's state. A fault may roll back any of them, but not all.
func partsOf(name string) []string {
	switch name {
	case "verifier":
		return []string{"data", "keys"}
	case "issuer":
		return []string{"store", "keys", "mark"}
	}
	return []string{"store", "secret", "keys"}
}

// drawStateRollback draws a crash after which some parts of a party's state are older than the others.
func drawStateRollback(rng *rand.Rand, tokens bool) fault {
	at, name := moment(rng), drawParty(rng, tokens)
	back := between(rng, 0, at+1)
	all := partsOf(name)
	var parts []string
	for i, which := 0, 1+rng.IntN(1<<len(all)-2); i < len(all); i++ {
		if which>>i&1 == 1 {
			parts = append(parts, all[i])
		}
	}
	down := between(rng, 10*time.Millisecond, 20*time.Second)
	return fault{at, faultStateRollback, fmt.Sprintf("%s of %s to %v", strings.Join(parts, "+"), name,
		back.Round(time.Millisecond)), func(w *world) {
		p := w.parties[name]
		p.crash([]int{0}, down, func() error {
			p.forgets(parts)
			return p.restore(p.at(back), parts)
		})
	}}
}

// forgets records that parts of a party's state were rolled back. Once all parts have been, the party cannot detect it.
// Then other parties may get two batches of one number, and the party's own counts are void.
func (p *party) forgets(parts []string) {
	for _, part := range parts {
		p.back[part] = true
	}
	if len(p.back) < len(partsOf(p.name)) {
		return
	}
	p.world.account.excuse("lost without a finding", "reports beyond the quota", "tokens beyond the quota",
		"confirmed but not deleted: "+p.name, "a slot came out twice: of "+p.name,
		fmt.Sprintf("two batches under one number: {%d ", slices.Index(relayNames, p.name)))
}

// drawCopy draws a copy of a relay's whole folder, which runs beside the relay for a while.
func drawCopy(rng *rand.Rand, _ bool) fault {
	at, lasts, name := moment(rng), between(rng, time.Second, 2*worldLength), draw(rng, relayNames...)
	return fault{at, faultCopy, fmt.Sprintf("of %s, for %v", name, lasts.Round(time.Millisecond)),
		func(w *world) { w.parties[name].runCopy(lasts) }}
}

// voidByCopy lists the invariants that do not hold while two copies of a relay run: each copy makes its own batch of a
// number, and each applies limits separately. The next hop is honest and must still use every slot once.
func voidByCopy(name string) []string {
	void := []string{"lost without a finding", "confirmed but not deleted: " + name, "a slot came out twice: of " + name,
		fmt.Sprintf("two batches under one number: {%d ", slices.Index(relayNames, name))}
	if name == relayNames[0] {
		return append(void, "reports beyond the quota")
	}
	return append(void, "equivocation accepted") // one copy may get an offer that the other did not
}

// runCopy runs a party and a copy of it for a while. Requests go to either at random.
func (p *party) runCopy(lasts time.Duration) {
	if p.twin.Load() != nil || !p.faults.TryLock() {
		return
	}
	w := p.world
	p.halt()
	w.account.excuse(voidByCopy(p.name)...)
	twin := &party{world: w, name: p.name, address: p.address, folder: p.folder + "copy", begin: p.begin}
	if err := errors.Join(os.RemoveAll(twin.folder), quickstart.Copy(twin.folder, p.folder)); err != nil {
		panic(err)
	}
	twin.disk = faultdisk.New(twin.folder)
	defer twin.disk.Remove()
	for _, one := range []*party{p, twin} {
		if err := one.start(); err != nil {
			w.log("%s does not start: %v", one.name, err)
		}
	}
	p.twin.Store(twin)
	p.faults.Unlock()
	time.Sleep(min(lasts, w.untilHeal()))
	p.twin.Store(nil)
	twin.halt()
}

// either returns the process that answers next: the party or its copy.
func (p *party) either() *party {
	if twin := p.twin.Load(); twin != nil && p.asked.Add(1)%2 == 0 && twin.alive() != nil {
		return twin
	}
	return p
}

// at returns the party's files at the last snapshot before a moment, or at the first snapshot.
func (p *party) at(moment time.Duration) map[string][]byte {
	p.mu.Lock()
	defer p.mu.Unlock()
	last := p.snapshots[0].files
	for _, s := range p.snapshots {
		if s.at <= moment {
			last = s.files
		}
	}
	return last
}

// crash kills a party at its writes[0]-th write from now, and again after each restart at the next number in writes. It
// calls between before the last start. It does nothing if another fault has the party down.
func (p *party) crash(writes []int, down time.Duration, between func() error) {
	if !p.faults.TryLock() {
		return
	}
	defer p.faults.Unlock()
	p.dieAt(writes[0])
	p.halt()
	time.Sleep(down)
	for _, n := range writes[1:] {
		p.disk.Revive()
		p.disk.Stop(n, p.die)
		if p.start() == nil {
			p.awaitDeath()
		}
		p.halt()
		time.Sleep(down / 4)
	}
	if between != nil {
		if err := between(); err != nil {
			panic(err)
		}
	}
	p.disk.Revive()
	if err := p.start(); err != nil {
		p.world.log("%s does not start: %v", p.name, err)
	}
}

// die ends a life at once: the disk stops, and no message arrives any more.
func (p *party) die() {
	if l := p.current(); l != nil {
		l.end()
	}
}

// current returns the life that began last. It takes no lock: disks call it, perhaps while p.mu is held.
func (p *party) current() *life { return p.now.Load() }

// dieAt waits until the party has died at its n-th write. If it does not write, dieAt kills it.
func (p *party) dieAt(n int) {
	p.disk.Stop(n, p.die)
	if n > 0 {
		p.awaitDeath()
	}
}

// awaitDeath waits up to 20 s until a disk has stopped, and then stops it.
func (p *party) awaitDeath() {
	for range 200 {
		if p.disk.Dead() {
			return
		}
		time.Sleep(100 * time.Millisecond)
	}
	p.disk.Stop(0, p.die)
}

// drawFaults draws up to 8 faults of a world, in order of time. At most one clock is wrong, because parties believe two
// clocks that agree.
func drawFaults(rng *rand.Rand, tokens bool, allowed []string) []fault {
	var out []fault
	clocks := 0
	for range rng.IntN(9) {
		f := kinds[draw(rng, allowed...)](rng, tokens)
		if f.kind == faultClock {
			if clocks++; clocks > 1 {
				continue
			}
		}
		out = append(out, f)
	}
	slices.SortFunc(out, func(a, b fault) int { return int(a.at - b.at) })
	return out
}
