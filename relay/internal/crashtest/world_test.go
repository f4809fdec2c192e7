// Package crashtest_test kills relays, verifiers and a database server at random moments, under load, and then accounts
// for every message.
//
//	clients ⇒ proxy ⇒ first relay (two processes on PostgreSQL) ⇐ proxy ⇐ mix … ⇐ proxy ⇐ verifiers
//
// All are real commands in their own processes. Before each relay is a reverse proxy of the test. It sees which
// requests are in progress, and the bytes of every batch. The test suspends a process with SIGSTOP, finds out from the
// proxies and the process's store what it was doing, and kills it with SIGKILL. The product's code does not know of the
// test.
package crashtest_test

import (
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/doona-dp/doona/internal/quickstart"
	"github.com/doona-dp/doona/internal/testing/pgtest"
	"github.com/doona-dp/doona/internal/testing/relaytest"
	"github.com/doona-dp/doona/planner"
	"github.com/doona-dp/doona/shufflerclient"
	"github.com/doona-dp/doona/wire/keyfile"
	"github.com/doona-dp/doona/wire/onion"
	"github.com/doona-dp/doona/wire/task"
	"github.com/doona-dp/doona/wire/taskfile"
)

// bin is the folder of the commands. TestMain builds them once.
var bin string

func TestMain(m *testing.M) {
	os.Exit(func() int {
		var err error
		if bin, err = os.MkdirTemp("", "crash"); err != nil {
			panic(err)
		}
		defer os.RemoveAll(bin)
		const module = "github.com/doona-dp/doona/cmd/"
		build := exec.Command("go", "build", "-o", bin+"/", module+"relay", module+"verifier", module+"issuer")
		if out, err := build.CombinedOutput(); err != nil {
			panic(fmt.Sprintf("couldn't build the commands: %v\n%s", err, out))
		}
		return m.Run()
	}())
}

const (
	batchSize  = 10
	epochCount = 300 // more than any run lasts
	skew       = 100 * time.Millisecond
)

// plan is how long a run takes and how often it kills.
type plan struct {
	kills, each int           // in total, and at least in every phase
	epoch       time.Duration // length, in whole seconds
	pause       time.Duration // longest time that a process runs without a kill
	patience    time.Duration // time limit for all kills
}

var (
	short = plan{12, 1, 2 * time.Second, 2 * time.Second, 3 * time.Minute}
	full  = plan{200, 20, 6 * time.Second, 4 * time.Second, 25 * time.Minute} // for the long form
)

// queries are the tasks of a world: with one slot per client, with many, with as many as the client's noise needs, and
// with dummies that relays add.
var queries = []planner.Query{
	{Name: "one", Query: task.Mean, Hi: 10, Epsilon: 2, Delta: 1e-4},
	{Name: "many", Query: task.Count, Protocol: "splitmix", Epsilon: 2, Delta: 1e-2},
	{Name: "burst", Query: task.Count, Protocol: "correlated", Padding: task.PaddingNone, Epsilon: 8, Delta: 1e-2},
	{Name: "noisy", Query: task.Count, Epsilon: 2, Delta: 1e-2, Relays: &planner.RelayNoise{}},
}

// world is a deployment and its processes.
type world struct {
	*quickstart.Deployment
	plan      plan
	epochs    task.Epochs
	clients   []*shufflerclient.Client // by task
	openers   [][][]*onion.Opener      // by task, hop and epoch; made before any key is erased
	proxies   []*proxy                 // by hop
	relays    []*process               // all relays' processes
	verifiers []*process               // by task
	server    *server                  // nil with SQLite
}

// newWorld creates a deployment. At first only the database server runs.
func newWorld(t *testing.T, plan plan, hops int, server *server) *world {
	t.Helper()
	w := &world{plan: plan, server: server, epochs: task.Epochs{
		Start: uint64(time.Now().Unix()) + 2, Length: task.Length(plan.epoch / time.Second), Count: epochCount,
	}}
	relays := make([]quickstart.Relay, hops)
	for hop := range relays {
		w.proxies = append(w.proxies, newProxy(t, hop))
		relays[hop] = quickstart.Relay{URL: w.proxies[hop].url, Listen: relaytest.FreeAddress(t),
			Admin:          relaytest.FreeAddress(t),
			TrustedProxies: []string{"127.0.0.0/8"}, Pull: "20ms", Skew: skew.String()}
	}
	var drafts []quickstart.Draft
	for _, q := range queries {
		q.Batch, q.Honest = batchSize, 0.9
		draft, err := planner.Draft(q)
		require.NoError(t, err)
		draft.Epochs = w.epochs
		drafts = append(drafts, quickstart.Draft{Name: q.Name, Task: draft})
	}
	var err error
	w.Deployment, err = quickstart.Write(filepath.Join(t.TempDir(), "world"), relays, drafts)
	require.NoError(t, err)
	for i, open := range w.Bundles {
		client, err := shufflerclient.New(open, shufflerclient.Options{MaxEpsilon: 1e9, MaxDelta: 1})
		require.NoError(t, err)
		w.clients = append(w.clients, client)
		w.openers = append(w.openers, w.openersOf(t, i))
	}
	w.layProcesses(t, relays)
	return w
}

// openersOf returns the relays' openers of a task's slots, by hop and epoch.
func (w *world) openersOf(t *testing.T, index int) (out [][]*onion.Opener) {
	t.Helper()
	open := w.Bundles[index]
	for hop := range open.VerifierHop() {
		keys, err := keyfile.LoadHPKE(filepath.Join(w.folder(hop), queries[index].Name+".keys"))
		require.NoError(t, err)
		var openers []*onion.Opener
		for epoch := range uint64(epochCount) {
			key, err := keys.Key(epoch)
			require.NoError(t, err)
			opener, err := onion.NewOpener(open.Task, open.ID, hop, epoch, key)
			require.NoError(t, err)
			openers = append(openers, opener)
		}
		out = append(out, openers)
	}
	return out
}

// folder returns the folder of a relay's files.
func (w *world) folder(hop int) string { return filepath.Dir(w.RelayConfig(hop + 1)) }

// layProcesses creates the processes. With PostgreSQL the first relay has two processes, which share a database.
func (w *world) layProcesses(t *testing.T, relays []quickstart.Relay) {
	t.Helper()
	for hop, r := range relays {
		store := &store{kind: "sqlite", url: filepath.Join(w.folder(hop), "relay.db")}
		description := "sqlite:" + store.url
		if w.server != nil {
			url, err := w.server.Database()
			require.NoError(t, err)
			store = openPostgres(t, url)
			description = url
		}
		w.proxies[hop].store = store
		w.addRelay(t, hop, "a", w.RelayConfig(hop+1), description, r.Listen, r.Admin)
		if hop > 0 || w.server == nil {
			continue
		}
		listen, admin := relaytest.FreeAddress(t), relaytest.FreeAddress(t)
		w.addRelay(t, 0, "b", w.twin(t, strings.NewReplacer(r.Listen, listen, r.Admin, admin)), description, listen,
			admin)
	}
	for i, open := range w.Bundles {
		page := relaytest.FreeAddress(t)
		name := queries[i].Name
		w.verifiers = append(w.verifiers, &process{
			name: "verifier " + name, admin: page, task: open, hop: open.VerifierHop(),
			log: filepath.Join(w.Dir, "verifier-"+name+".log"), world: w,
			args: []string{"verifier", "serve", "--task", filepath.Join(w.Dir, name+".bundle"), "--keys",
				w.VerifierKeys(name),
				"--sign-key", w.VerifierSign(), "--data", w.data(i), "--listen", page, "--interval", "100ms"},
		})
	}
	for h, p := range w.proxies[:len(w.proxies)-1] {
		p.next = func(task.ID) *process { return w.proxies[h+1].backends[0] }
	}
	w.proxies[len(w.proxies)-1].next = func(id task.ID) *process {
		for i, open := range w.Bundles {
			if open.ID == id {
				return w.verifiers[i]
			}
		}
		return nil
	}
	t.Cleanup(func() {
		for _, p := range w.all() {
			p.end()
		}
	})
}

// twin creates a second process of the first relay. It has the same secret and the same keys: processes share both
// files or neither.
func (w *world) twin(t *testing.T, addresses *strings.Replacer) (config string) {
	t.Helper()
	from, to := w.folder(0), w.folder(0)+"b"
	require.NoError(t, os.Mkdir(to, 0o700))
	for _, name := range []string{"sign.key", "relay.yaml"} {
		content, err := os.ReadFile(filepath.Join(from, name))
		require.NoError(t, err)
		if name == "relay.yaml" {
			text := addresses.Replace(string(content))
			for _, file := range []string{"secret: ", "hpke_keys: "} {
				require.Contains(t, text, file)
				text = strings.ReplaceAll(text, file, file+"../relay1/")
			}
			content = []byte(text)
		}
		require.NoError(t, os.WriteFile(filepath.Join(to, name), content, 0o600))
	}
	return filepath.Join(to, "relay.yaml")
}

func (w *world) addRelay(t *testing.T, hop int, letter, config, description, listen, admin string) {
	name := fmt.Sprintf("relay%d%s", hop+1, letter)
	if w.server != nil {
		description += "&application_name=" + name
	}
	p := &process{
		name: name, folder: filepath.Dir(config), address: listen, admin: admin, hop: hop,
		log: filepath.Join(w.Dir, name+".log"), world: w,
		args: []string{"relay", "serve", "--config", config, "--store", description},
	}
	w.relays = append(w.relays, p)
	w.proxies[hop].backends = append(w.proxies[hop].backends, p)
}

// data returns the folder in which a verifier stores its data.
func (w *world) data(index int) string {
	return filepath.Join(w.Dir, "verifier", queries[index].Name+".data")
}

// batches returns the folder in which a verifier stores its task's batches.
func (w *world) batches(index int) string {
	return filepath.Join(w.data(index), w.Bundles[index].ID.String())
}

func (w *world) reportURL(index int) string {
	return "http://" + w.verifiers[index].admin + "/tasks/" + w.Bundles[index].ID.String() + "/api/report"
}

func (w *world) all() []*process { return append(append([]*process{}, w.relays...), w.verifiers...) }

// epochAt returns the epoch at a moment; ok is false before the first epoch.
func (w *world) epochAt(at time.Time) (epoch uint64, ok bool) { return w.epochs.At(uint64(at.Unix())) }

// over returns the time at which the relays close an epoch.
func (w *world) over(epoch uint64) time.Time {
	return time.Unix(int64(w.epochs.End(epoch)), 0).Add(skew)
}

func (w *world) taskOf(id task.ID) (index int, open *taskfile.Open) {
	for i, open := range w.Bundles {
		if open.ID == id {
			return i, open
		}
	}
	return -1, nil
}

// server is a PostgreSQL server that crashes and recovers.
type server struct {
	*pgtest.Server
	outages outages
}

func startServer(t *testing.T, folder string) *server {
	t.Helper()
	pgtest.Need(t)
	s, err := pgtest.StartIn(folder)
	require.NoError(t, err)
	t.Cleanup(func() { s.Stop() })
	return &server{Server: s}
}

func between(from, to time.Duration) time.Duration { return from + rand.N(to-from) }

func listenLoopback(t *testing.T) net.Listener {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	return l
}
