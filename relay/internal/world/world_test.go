// Package world plays simulated runs, called worlds, of the whole system, and checks that nothing is lost or released
// twice.
//
// A world has all parties of a task in one process: clients, two relays, the verifier, and the issuer if the task has
// tokens. All of them run the product's code on real files. Time is virtual, the test sees and controls the network
// (network_test.go), and each disk is a faultdisk. A seed determines all faults and the times of the reports: the same
// seed makes the same world.
//
// The task may also be a set of tables (set_test.go).
//
// An epoch lasts a minute. One minute after the last epoch all faults end. The parties then have a little more than
// worldGiveUp to finish. The invariants of account_test.go must hold during the run and at its end.
package world_test

import (
	"bytes"
	"context"
	"crypto/ed25519"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/doona-dp/doona/internal/quickstart"
	"github.com/doona-dp/doona/internal/testing/faultdisk"
	"github.com/doona-dp/doona/internal/testing/relaytest"
	"github.com/doona-dp/doona/internal/testing/stattest"
	"github.com/doona-dp/doona/issuer"
	"github.com/doona-dp/doona/planner"
	"github.com/doona-dp/doona/relay"
	"github.com/doona-dp/doona/shufflerclient"
	"github.com/doona-dp/doona/wire/keyfile"
	"github.com/doona-dp/doona/wire/task"
)

// The times and sizes of a world. Every world begins at the same moment.
const (
	worldLead   = 20 * time.Second // before the first epoch
	worldLength = time.Minute      // of an epoch
	worldEpochs = 3
	worldSkew   = 3 * time.Second
	worldGiveUp = 3 * time.Minute
	worldBatch  = 6
	worldTask   = "task"

	// worldPull is no multiple of the second in which a relay scans its epochs. Events at the same moment would occur
	// in a different order in each run of a seed.
	worldPull = "1987ms"
)

var relayNames = []string{"relay1", "relay2"}

// kind is the kind of a world's task: a mean without or with tokens, a count with relays' dummies, or a histogram with
// rare events (events_test.go).
type kind string

const (
	plain  kind = "plain"
	tokens kind = "tokens"
	noise  kind = "noise"
	rare   kind = "rare events"
	sets   kind = "a set" // set_test.go
)

// kindOf returns the kind of a seed's world. Worlds with planted bugs have no dummies.
func kindOf(seed uint64, planted *bug) kind {
	switch {
	case planted.rare:
		return rare
	case planted.sets:
		return sets
	case seed%4 == 3 || planted.tokens:
		return tokens
	case seed%4 == 1 && planted.name == "":
		return noise
	}
	return plain
}

// layoutFolder is the folder of the deployments that worlds copy.
var layoutFolder string

func TestMain(m *testing.M) {
	os.Exit(func() int {
		var err error
		if layoutFolder, err = os.MkdirTemp("", "worlds"); err != nil {
			panic(err)
		}
		defer os.RemoveAll(layoutFolder)
		return m.Run()
	}())
}

// layouts make the deployments that worlds copy. Their keys fit every world, because all worlds begin at the same time.
var layouts = map[kind]func() (*quickstart.Deployment, error){plain: layout(plain), tokens: layout(tokens),
	noise: layout(noise), rare: layout(rare), sets: sync.OnceValues(setLayout)}

// beginning is the time at which a bubble of package synctest starts.
var beginning = time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC)

func layout(of kind) func() (*quickstart.Deployment, error) {
	return sync.OnceValues(func() (*quickstart.Deployment, error) {
		q := planner.Query{Name: "world", Query: task.Mean, Hi: 10, Batch: worldBatch, Honest: 0.67, Epsilon: 20,
			Delta: 1e-2}
		count := uint64(worldEpochs)
		switch of {
		case noise: // the number of dummies is fixed, so that a seed has one trace
			q.Query, q.Relays = task.Count, &planner.RelayNoise{Batches: 8}
		case rare:
			q, count = rareQuery(), rareEpochs
		}
		draft, err := planner.Draft(q)
		if err != nil {
			return nil, err
		}
		draft.Epochs = task.Epochs{Start: uint64(beginning.Add(worldLead).Unix()),
			Length: task.Length(worldLength.Seconds()), Count: count, Events: q.Events}
		if of == tokens {
			draft.Clients = task.Clients{Kind: task.ClientToken, Quota: 1, Issuer: task.Party{URL: "http://issuer"}}
		}
		return writeLayout(worldSkew, []quickstart.Draft{{Name: worldTask, Task: draft}})
	})
}

func writeLayout(skew time.Duration, drafts []quickstart.Draft, of ...quickstart.Set) (*quickstart.Deployment, error) {
	var relays []quickstart.Relay
	for _, name := range relayNames {
		relays = append(relays, quickstart.Relay{URL: "http://" + name, Pull: worldPull, Skew: skew.String(),
			TrustedProxies: []string{"127.0.0.0/8"}})
	}
	dir, err := os.MkdirTemp(layoutFolder, "world") // TestMain removes it
	if err != nil {
		return nil, err
	}
	return quickstart.Write(filepath.Join(dir, "all"), relays, drafts, of...)
}

// world is one run of a seed.
type world struct {
	*relaytest.Cascade // only its deployment is used
	seed               uint64
	kind               kind
	tokens             bool
	bug                *bug
	parties            map[string]*party
	order              []string // names of parties, in starting order
	ends               map[string]*relaytest.PipeListener
	network            *network
	account            *account           // of the task, or of the set's first table
	accounts           []*account         // of the task, or by table
	firstSign          ed25519.PrivateKey // the first relay's key, for attackers who lie in its name
	t                  *testing.T         // of the bubble
	visitors           []*visitor         // only with rare events
	browsers           []*browser         // only with a set
	counted            [][4]uint64        // by table: values sent, acknowledged and counted, and covers
	intervals, missed  int                // of estimates; and those without the truth
	snapshots          bool               // parties' files are copied during the run
	records            bool               // disks record every write and sync
	clocks             bool               // some clock is wrong
	rollbacks          []string           // detected state rollbacks, from before the operator ended the epochs

	mu     sync.Mutex // guards the rest
	traced []string
}

func (w *world) log(format string, args ...any) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.traced = append(w.traced, fmt.Sprintf("%9.3f ", w.since().Seconds())+fmt.Sprintf(format, args...))
}

func (w *world) since() time.Duration { return time.Since(beginning) }

// elapsed is since by the parties' clocks: with a set, they run faster, so that a day lasts a minute.
func (w *world) elapsed() time.Duration {
	if w.kind == sets {
		return w.since() * setSpeed
	}
	return w.since()
}

// now returns the true time by the parties' clocks, which no wrong clock changes.
func (w *world) now() time.Time { return beginning.Add(w.elapsed()) }

// of returns the account of the task with an id in hexadecimal. Other ids count as the first task's.
func (w *world) of(id string) *account {
	for _, a := range w.accounts {
		if a.open.ID.String() == id {
			return a
		}
	}
	return w.account
}

// end returns when all faults end: one minute after the last epoch.
func (w *world) end() time.Duration {
	lead := worldLead
	if w.kind == sets {
		lead = setLead
	}
	return lead + time.Duration(w.Open.Epochs.Count+1)*worldLength
}

// untilHeal returns how long faults may still last.
func (w *world) untilHeal() time.Duration { return max(w.end()-w.since(), 0) }

// dummies reports whether the relays add dummies.
func (w *world) dummies() bool { return w.kind == noise || w.kind == rare || w.kind == sets }

// name returns the party that connects from an address; "clients" if there is none.
func (w *world) name(address string) string {
	for _, p := range w.parties {
		if p.address == address {
			return p.name
		}
	}
	return "clients"
}

func newWorld(seed uint64, folder string, planted *bug) (*world, error) {
	of := kindOf(seed, planted)
	w := &world{seed: seed, kind: of, tokens: of == tokens, bug: planted, parties: map[string]*party{},
		ends: map[string]*relaytest.PipeListener{}}
	from, err := layouts[of]()
	if err != nil {
		return nil, err
	}
	if err := quickstart.Copy(folder, from.Dir); err != nil {
		return nil, err
	}
	deployment := *from
	deployment.Dir = folder
	w.Cascade = &relaytest.Cascade{Deployment: &deployment, Open: from.Bundles[0]}
	w.network = &network{world: w, answers: map[string]*recordedResponse{}}
	for i, open := range from.Bundles {
		file := worldTask
		if of == sets {
			file = setName + "-" + w.Sets[0].Tables[i].Name
		}
		w.accounts = append(w.accounts, newAccount(w, open, file))
	}
	w.account = w.accounts[0]
	if w.firstSign, err = keyfile.LoadSign(filepath.Join(folder, relayNames[0], "sign.key")); err != nil {
		return nil, err
	}
	begin := map[string]func(*party, *life) (runner, error){"relay1": beginRelay(0), "relay2": beginRelay(1),
		"verifier": beginVerifier, "issuer": beginIssuer}
	w.order = []string{"relay1", "relay2", "verifier"}
	if w.tokens {
		w.order = append([]string{"issuer"}, w.order...)
	}
	for i, name := range w.order {
		p := &party{world: w, name: name, address: fmt.Sprintf("172.16.0.%d", i+1), folder: filepath.Join(folder, name),
			begin: begin[name], back: map[string]bool{}}
		w.parties[name] = p
	}
	return w, nil
}

// run plays the world. Call it in a bubble of package synctest.
func (w *world) run() {
	rng := rand.New(rand.NewPCG(w.seed, 0))
	drawn := drawFaults(rng, w.tokens, kindNames)
	if w.kind == rare {
		drawn = drawRareFaults(rng)
	}
	if w.kind == sets {
		drawn = w.drawSetFaults(rng)
	}
	faults := w.bug.faults(rng, drawn)
	w.snapshots = w.bug.needsSnapshots(faults)
	w.clocks = slices.ContainsFunc(faults, func(f fault) bool { return f.kind == faultClock })
	var servers []*http.Server
	for _, name := range w.order {
		servers = append(servers, w.prepare(w.parties[name]))
		defer w.parties[name].disk.Remove()
	}
	w.takeSnapshots()
	for i, name := range w.order {
		time.Sleep(time.Duration(100+i*37) * time.Millisecond) // so that no two parties act at the same moment
		if err := w.parties[name].start(); err != nil {
			w.account.note("does not start", "%s: %v", name, err)
		}
	}
	w.play(rng, faults)
	w.heal()
	w.awaitEnd()
	w.conclude()
	for _, name := range w.order {
		w.parties[name].halt()
	}
	for _, s := range servers {
		s.Close()
	}
	time.Sleep(time.Minute) // lets pending timers notice that the world is over
}

// prepare creates a party's disk, and starts the party's server in the network.
func (w *world) prepare(p *party) *http.Server {
	p.disk = faultdisk.New(p.folder)
	p.disk.Break(w.bug.disk)
	p.disk.Apart(".clock") // written after other parties were asked for the time
	if w.records {
		if err := p.disk.Record(); err != nil {
			panic(err)
		}
	}
	l := relaytest.ListenPipe()
	w.ends[p.name] = l
	server := &http.Server{Handler: w.network.handler(p.name)}
	go server.Serve(l)
	return server
}

// event is an action, and the time in a world at which it happens.
type event struct {
	at time.Duration
	do func()
}

// play makes clients report and faults happen, until one minute after the last epoch.
func (w *world) play(rng *rand.Rand, faults []fault) {
	var events []event
	var running sync.WaitGroup
	for _, f := range faults {
		events = append(events, event{f.at, func() {
			w.log("fault: %s: %s", f.kind, f.words)
			running.Go(func() { f.do(w) })
		}})
	}
	end := w.end()
	pause := 5 * time.Second
	switch w.kind {
	case rare:
		events = append(events, w.drawVisitors(rng, &running)...)
	case sets:
		events, pause = append(events, w.drawBrowsers(rng, &running)...), setChecks
	default:
		events = append(events, w.drawClients(rng, &running)...)
	}
	for at := pause; at < end; at += pause {
		events = append(events, event{at, w.check})
	}
	slices.SortFunc(events, func(a, b event) int { return int(a.at - b.at) })
	for _, e := range events {
		time.Sleep(e.at - w.since())
		e.do()
	}
	time.Sleep(end - w.since())
	running.Wait()
}

// drawClients draws the clients of each epoch, and when they report.
func (w *world) drawClients(rng *rand.Rand, running *sync.WaitGroup) (out []event) {
	number := 0
	for epoch := range uint64(worldEpochs) {
		for range rng.IntN(4 * worldBatch) {
			at := worldLead + time.Duration(epoch)*worldLength + between(rng, 0, worldLength-time.Second)
			c := &worldClient{world: w, epoch: epoch, network: relaytest.Network(number),
				rng: rand.New(rand.NewPCG(w.seed,
					uint64(number)+1)), reports: 1}
			if rng.IntN(6) == 0 {
				c.reports = 2 // beyond its quota
			}
			number++
			out = append(out, event{at, func() { running.Go(c.run) }})
		}
	}
	return out
}

// worldClient is one client in one epoch.
type worldClient struct {
	world   *world
	epoch   uint64
	network string
	rng     *rand.Rand
	reports int
}

// run sends the client's reports with the Go client, with random pauses between attempts.
func (c *worldClient) run() {
	w := c.world
	transport := &clientTransport{network: w.network, from: c.network}
	client, err := shufflerclient.New(w.Open, shufflerclient.Options{MaxEpsilon: 1000, MaxDelta: 1, HTTP: transport,
		Pause: func(ctx context.Context, _ time.Duration) error {
			time.Sleep(between(c.rng, 100*time.Millisecond, 8*time.Second))
			return ctx.Err()
		}})
	if err != nil {
		panic(err)
	}
	var first *shufflerclient.Report
	for i := range c.reports {
		if i > 0 {
			time.Sleep(between(c.rng, 0, 40*time.Second))
		}
		value := c.rng.Float64() * 10
		if w.kind == noise {
			value = math.Floor(value / 5)
		}
		report, err := client.Report(c.epoch, []float64{value})
		if err != nil {
			panic(err)
		}
		s := w.account.know(c.network, c.epoch, report.Body)
		transport.sends = s
		if first != nil && c.rng.IntN(2) == 0 {
			report.Token = first.Token // uses the token twice
		}
		ctx, cancel := context.WithTimeout(context.Background(), 3*time.Minute)
		err = client.Submit(ctx, report)
		cancel()
		if err == nil {
			w.account.acknowledged(s)
		}
		first = report
		w.log("client %s, report %d of epoch %d: %v", c.network, i, c.epoch, problemName(err))
	}
}

// problemName returns an error's text without numbers, which may differ between runs of a seed.
func problemName(err error) string {
	if err == nil {
		return "acknowledged"
	}
	return strings.Map(func(r rune) rune {
		if r >= '0' && r <= '9' {
			return '#'
		}
		return r
	}, err.Error())
}

// takeSnapshots copies the parties' files if a fault needs them. Call it while no party works.
func (w *world) takeSnapshots() {
	if !w.snapshots {
		return
	}
	for _, name := range w.order {
		p := w.parties[name]
		taken := snapshot{w.since(), p.snapshot()}
		p.mu.Lock()
		p.snapshots = append(p.snapshots, taken)
		p.mu.Unlock()
	}
}

// check waits until no party works, and checks the invariants that hold at any moment.
func (w *world) check() {
	synctest.Wait()
	w.takeSnapshots()
	for _, name := range relayNames {
		p := w.parties[name]
		if early := w.early(p); len(early) > w.bug.mayBeEarly() {
			w.account.note("keys erased early", "%s: of epochs %v", name, early)
		}
		if now := w.state(p); now != p.lastState && w.kind != sets {
			w.log("%s: %s", name, now)
			p.lastState = now
		}
	}
	w.account.checkQuota()
}

// heal ends all faults, repairs state rollbacks as operators do, and starts the parties that are down.
func (w *world) heal() {
	w.log("all faults end")
	w.network.heal()
	for _, name := range w.order {
		p := w.parties[name]
		p.setClock(0)
		if why := p.rollbackReport(); why != "" {
			w.rollbacks = append(w.rollbacks, name+" has detected a state rollback: "+why)
			p.halt()
			p.disk.Revive()
			if err := p.operate(endEpochs[name]); err != nil {
				w.account.note("the operator's command failed", "%s: %v", name, err)
			}
		}
		if p.disk.Dead() || p.alive() == nil {
			p.halt()
			p.disk.Revive()
			if err := p.start(); err != nil {
				w.account.note("does not start", "%s: %v", name, err)
			}
		}
		p.disk.Revive()
	}
}

// endEpochs are the operators' commands after a state rollback.
var endEpochs = map[string]func(p *party) error{
	"relay1": endRelayEpochs, "relay2": endRelayEpochs,
	"issuer": func(p *party) error {
		_, err := issuer.EndEpochs(p.issuerConfig())
		return err
	},
}

func endRelayEpochs(p *party) error {
	cfg, err := p.relayConfig()
	if err != nil {
		return err
	}
	back, err := relay.OpenRolledBack(cfg)
	if err != nil && strings.Contains(err.Error(), "it belongs to another secret file") { // the secret was lost
		lost := []string{"store"}
		p.forgets(lost)
		if err := p.restore(nil, lost); err != nil {
			return err
		}
		back, err = relay.OpenRolledBack(cfg)
	}
	if errors.Is(err, relay.ErrNoRollback) {
		return nil // no epoch had begun
	}
	if err != nil {
		return err
	}
	return errors.Join(back.End(context.Background()), back.Close())
}

// awaitEnd waits until all parties have finished all epochs, or the time limit has passed.
func (w *world) awaitEnd() {
	for deadline := w.since() + worldGiveUp + 2*time.Minute; w.since() < deadline; time.Sleep(5 * time.Second) {
		synctest.Wait()
		over := true
		for _, name := range relayNames {
			state := w.state(w.parties[name])
			over = over && strings.Count(state, "erased")+strings.Count(state, "ended") == w.epochs()
		}
		if over && w.kept() == w.made() {
			return
		}
	}
}

// epochs returns how many epochs all tasks have.
func (w *world) epochs() (n int) {
	for _, a := range w.accounts {
		n += int(a.open.Epochs.Count)
	}
	return n
}

// made returns how many batches the last relay has made.
func (w *world) made() (n int) {
	for _, text := range strings.Split(w.state(w.parties["relay2"]), ", ") {
		var epoch, confirmed, made int
		var state string
		fmt.Sscanf(strings.Replace(text, "/", " ", 1), "%d %s %d %d", &epoch, &state, &confirmed, &made)
		n += made
	}
	return n
}

// conclude checks the invariants that must hold at the end.
func (w *world) conclude() {
	synctest.Wait()
	noticed := append(w.noticed(context.Background()), w.rollbacks...)
	for _, n := range noticed {
		w.log("noticed: %s", n)
	}
	w.account.checkQuota()
	for _, a := range w.accounts {
		a.checkEndless()
		a.checkReached()
		a.checkLost(noticed)
	}
	switch w.kind {
	case rare:
		w.checkVisitors()
		w.checkEstimate()
	case sets:
		w.checkSet(noticed)
	}
	if kept, made := w.kept(), w.made(); kept < made && len(noticed) == 0 {
		w.account.note("missing at the verifier", "%d of %d batches", made-kept, made)
	}
	for _, name := range relayNames {
		p := w.parties[name]
		w.log("%s: %s", name, w.state(p))
		for _, a := range w.accounts {
			if left := a.keysLeft(p); len(left) > 0 && p.alive() != nil {
				a.note("keys kept too long", "%s: of epochs %v", name, left)
			}
		}
	}
	w.log("the verifier has %d batches", w.kept())
}

// playWorld plays the world of a seed in a bubble of package synctest.
func playWorld(t *testing.T, seed uint64, planted *bug) *world {
	t.Helper()
	return playRecorded(t, seed, planted, false)
}

// playRecorded is playWorld; if records is set, disks record every write and sync.
func playRecorded(t *testing.T, seed uint64, planted *bug, records bool) (w *world) {
	t.Helper()
	faultdisk.Install()
	folder := filepath.Join(t.TempDir(), "world")
	_, err := layouts[kindOf(seed, planted)]() // outside of the bubble, because all worlds share it
	require.NoError(t, err)
	synctest.Test(t, func(t *testing.T) {
		w, err = newWorld(seed, folder, planted)
		require.NoError(t, err)
		w.records, w.t = records, t
		w.run()
	})
	return w
}

// broken lists the violated invariants of all tasks.
func (w *world) broken() (out []string) {
	for _, a := range w.accounts {
		out = append(out, a.broken...)
	}
	return out
}

func (w *world) report() string {
	var out bytes.Buffer
	fmt.Fprintf(&out, "seed %d: %s\n", w.seed, strings.Join(w.broken(), "\n"))
	for _, line := range w.traced {
		fmt.Fprintln(&out, line)
	}
	return out.String()
}

func worldSeeds() uint64 {
	if stattest.Long {
		return 2000
	}
	return 9
}

// worldFigures are the counts that TestWorld writes to DOONA_FIGURES.
type worldFigures struct {
	Seeds, Reports, Acknowledged, Batches int
	Faults                                map[string]int // by kind
}

func (f *worldFigures) add(w *world) {
	f.Seeds++
	f.Batches += w.kept()
	for _, s := range w.account.reports {
		f.Reports++
		if s.acked {
			f.Acknowledged++
		}
	}
	for _, line := range w.traced {
		if _, fault, ok := strings.Cut(line, " fault: "); ok {
			kind, _, _ := strings.Cut(fault, ":")
			f.Faults[kind]++
		}
	}
}

// TestWorld plays the worlds of many seeds. All invariants must hold. `-run World/seed=N` plays only seed N.
func TestWorld(t *testing.T) {
	figures := worldFigures{Faults: map[string]int{}}
	for seed := range worldSeeds() {
		t.Run(fmt.Sprintf("seed=%d", seed), func(t *testing.T) {
			w := playWorld(t, seed, &bug{})
			if testing.Verbose() && !stattest.Long {
				t.Log(w.report())
			}
			require.Empty(t, w.account.broken, "%s", w.report())
			figures.add(w)
		})
	}
	out, err := json.MarshalIndent(figures, "", " ")
	require.NoError(t, err)
	t.Logf("%s", out)
	if path := os.Getenv("DOONA_FIGURES"); path != "" {
		require.NoError(t, os.WriteFile(path, out, 0o644))
	}
}

// TestWorldIsTheSameAgain: a seed must always draw the same faults, and without faults it must have the same trace.
// With a wrong clock or a crash the trace may differ: parties ask each other for the time at random moments, and again
// after a restart.
func TestWorldIsTheSameAgain(t *testing.T) {
	first := playWorld(t, 5, &bug{})
	require.NotEmpty(t, faultsOf(first))
	require.Equal(t, faultsOf(first), faultsOf(playWorld(t, 5, &bug{})))
	quiet := playWorld(t, 6, &bug{quiet: true})
	require.Greater(t, len(quiet.traced), 10)
	require.Equal(t, quiet.traced, playWorld(t, 6, &bug{quiet: true}).traced)
}

func faultsOf(w *world) (faults []string) {
	for _, line := range w.traced {
		if strings.Contains(line, "fault: ") {
			faults = append(faults, line)
		}
	}
	return faults
}
