// Package relaytest creates a task with all its parties on loopback. It runs the relays inside the test's process, and
// plays the clients and the verifier. A message is 8 bytes that hold a number, so that a test can follow each message
// through the relays.
package relaytest

import (
	"bytes"
	"cmp"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/doona-dp/doona/internal/quickstart"
	"github.com/doona-dp/doona/internal/testing/pgtest"
	"github.com/doona-dp/doona/randomizer"
	"github.com/doona-dp/doona/relay"
	"github.com/doona-dp/doona/wire/handover"
	"github.com/doona-dp/doona/wire/keyfile"
	"github.com/doona-dp/doona/wire/onion"
	"github.com/doona-dp/doona/wire/problem"
	"github.com/doona-dp/doona/wire/task"
	"github.com/doona-dp/doona/wire/taskfile"
)

// Options describes a cascade: a task with its relays. The zero value has two relays and an epoch that is open now.
type Options struct {
	Hops  int // Number of relays. Default 2.
	Tasks int // Number of tasks of these relays; see [Cascade.Other]. Default 1.
	// Task changes the draft of batches of 10, 9/10 of them honest clients, one lane of one slot, and quota 1.
	Task   func(*task.Task)
	Each   func(i int, draft *task.Task)    // Changes the draft of task i, after Task.
	Config func(hop int, cfg *relay.Config) // Changes the configurations of relays that run in this process.

	Set *quickstart.Set // A set of tables, beside the tasks: see [Cascade.Table] and [Cascade.PostSet].

	Pull     string // How often relays poll. Default "20ms".
	Postgres bool   // Each relay stores its state in a PostgreSQL database. Default SQLite.
	CA       string // Certificate file of the authority. If set, URLs are https, and Config must set TLS.
}

// Cascade is a task with its running parties: their keys, addresses and files.
type Cascade struct {
	*quickstart.Deployment
	Open      *taskfile.Open
	Clock     *Clock              // the clock of the relays in this process
	Verifier  *handover.Requester // sends requests signed by the verifier
	index     int                 // index of the task
	twin      string              // address that gets reports instead of the first relay; "" for none
	options   Options
	addresses []string // the relays' addresses
	sealer    *onion.Sealer
	http      *http.Client
	issuer    string // the issuer's address, if clients need tokens
	ownerKey  string // file of the owner's signing key; "" for the deployment's owner.key
}

// Clock is a clock that a test can move.
type Clock struct{ offset atomic.Int64 }

// Now returns the time of the clock.
func (c *Clock) Now() time.Time { return time.Now().Add(time.Duration(c.offset.Load())) }

// Advance moves the clock forward.
func (c *Clock) Advance(d time.Duration) { c.offset.Add(int64(d)) }

// Epoch is the length of an epoch in Draft's task.
const Epoch = time.Hour

// Draft returns the task that Options.Task may change.
func Draft() *task.Task {
	return &task.Task{
		Name: "test", Query: task.Count, Protocol: "opaque", Rule: "none", KEM: task.KEMX25519,
		Input:   task.Input{Lo: randomizer.NewRational(0, 1), Hi: randomizer.NewRational(1, 1)},
		Claim:   task.NewClaim("1", "1e-6"),
		Batch:   task.Batch{Size: 10, Honest: randomizer.NewRational(9, 10)},
		Slots:   task.Slots{Padding: task.PaddingFull, Lanes: 1, PerLane: 1, MessageBytes: 8},
		Epochs:  task.Epochs{Start: uint64(time.Now().Unix()), Length: task.Length(Epoch / time.Second), Count: 2},
		Clients: task.Clients{Kind: task.ClientAddress, Quota: 1},
	}
}

// New creates a cascade's files in a temporary folder. It starts no party.
func New(t testing.TB, o Options) *Cascade {
	t.Helper()
	if o.Hops == 0 {
		o.Hops = 2
	}
	draft := Draft()
	if o.Task != nil {
		o.Task(draft)
	}
	if draft.Batch.Min == 0 {
		draft.Batch.Min = max(draft.Batch.DefaultMin(), 1)
	}
	transport, err := handover.LoadTransport(o.CA)
	require.NoError(t, err)
	transport.(*http.Transport).MaxIdleConns, transport.(*http.Transport).MaxIdleConnsPerHost = 0, 256
	c := &Cascade{Clock: &Clock{}, options: o, http: &http.Client{Transport: transport}}
	relays := make([]quickstart.Relay, o.Hops)
	for hop := range relays {
		address, admin := FreeAddress(t), FreeAddress(t)
		c.addresses = append(c.addresses, address)
		relays[hop] = quickstart.Relay{URL: c.scheme() + address, Listen: address, Admin: admin,
			TrustedProxies: []string{"127.0.0.0/8"}, Pull: cmp.Or(o.Pull, "20ms"), Skew: "1s"}
		if o.Postgres {
			relays[hop].Store = NewDatabase(t)
		}
	}
	if draft.Clients.Kind == task.ClientToken {
		c.placeIssuer(t, draft)
	}
	drafts := make([]quickstart.Draft, max(o.Tasks, 1))
	for i := range drafts {
		copied := *draft
		copied.Name = fmt.Sprintf("test %d", i)
		if o.Each != nil {
			o.Each(i, &copied)
		}
		drafts[i] = quickstart.Draft{Name: taskName(i), Task: &copied}
	}
	var sets []quickstart.Set
	if o.Set != nil {
		sets = append(sets, *o.Set)
	}
	c.Deployment, err = quickstart.Write(filepath.Join(t.TempDir(), "deployment"), relays, drafts, sets...)
	require.NoError(t, err)
	c.use(t, 0)
	sign, err := keyfile.LoadSign(c.VerifierSign())
	require.NoError(t, err)
	c.Verifier = handover.NewRequester(sign, transport)
	return c
}

func (c *Cascade) scheme() string {
	if c.options.CA != "" {
		return "https://"
	}
	return "http://"
}

// NewDatabase returns the URL of an empty PostgreSQL database. The database server runs until [pgtest.StopShared].
func NewDatabase(t testing.TB) string {
	t.Helper()
	pgtest.Need(t)
	server, err := pgtest.Shared()
	require.NoError(t, err)
	url, err := server.Database()
	require.NoError(t, err)
	return url
}

// taskName returns the file name, without extension, of the cascade's i-th task.
func taskName(i int) string { return fmt.Sprint("task", i) }

// Other returns the same cascade with methods for its i-th task.
func (c *Cascade) Other(t testing.TB, i int) *Cascade {
	t.Helper()
	other := *c
	other.use(t, i)
	return &other
}

func (c *Cascade) use(t testing.TB, i int) {
	t.Helper()
	var err error
	c.index, c.Open = i, c.Bundles[i]
	c.sealer, err = onion.NewSealer(c.Open.Task, c.Open.ID, c.Open.KeyLists)
	require.NoError(t, err)
}

// FreeAddress returns a loopback address on which nothing listens. On Linux, a socket that does not listen holds it
// until the test ends. So no other test gets the port, but a program that names the address can share it.
func FreeAddress(t testing.TB) string {
	t.Helper()
	syscall.ForkLock.RLock()
	fd, err := syscall.Socket(syscall.AF_INET, syscall.SOCK_STREAM, 0)
	if err == nil {
		syscall.CloseOnExec(fd)
	}
	syscall.ForkLock.RUnlock()
	require.NoError(t, err)
	require.NoError(t, syscall.SetsockoptInt(fd, syscall.SOL_SOCKET, syscall.SO_REUSEADDR, 1))
	require.NoError(t, syscall.Bind(fd, &syscall.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}))
	at, err := syscall.Getsockname(fd)
	require.NoError(t, err)
	if runtime.GOOS == "linux" {
		t.Cleanup(func() { syscall.Close(fd) })
	} else {
		syscall.Close(fd)
	}
	return fmt.Sprintf("127.0.0.1:%d", at.(*syscall.SockaddrInet4).Port)
}

// Config returns a relay's configuration, with the cascade's clock.
func (c *Cascade) Config(t testing.TB, hop int) relay.Config {
	t.Helper()
	cfg, err := relay.LoadConfig(c.RelayConfig(hop + 1))
	require.NoError(t, err)
	cfg.Clock = c.Clock.Now
	if c.options.Config != nil {
		c.options.Config(hop, &cfg)
	}
	return cfg
}

// Start runs a relay in this process until stop is called or the test ends.
func (c *Cascade) Start(t testing.TB, hop int) (stop func()) {
	t.Helper()
	_, stop = c.StartRelay(t, hop)
	return stop
}

// StartRelay is Start for tests that need the relay itself.
func (c *Cascade) StartRelay(t testing.TB, hop int) (r *relay.Relay, stop func()) {
	t.Helper()
	cfg := c.Config(t, hop)
	r, err := relay.New(cfg)
	require.NoError(t, err)
	return r, c.Serve(t, r, cfg.Admin)
}

// Serve runs a relay and waits until it is ready at its admin address. The relay ends when stop is called or the test
// ends.
func (c *Cascade) Serve(t testing.TB, r *relay.Relay, admin string) (stop func()) {
	t.Helper()
	stop = c.ServeUnready(t, r)
	c.WaitReady(t, admin)
	return stop
}

// ServeUnready is Serve for a relay that may never be ready.
func (c *Cascade) ServeUnready(t testing.TB, r *relay.Relay) (stop func()) {
	t.Helper()
	end := Run(t, r.Run)
	return func() {
		c.http.CloseIdleConnections() // another relay at this address does not know these connections
		end()
	}
}

// Run runs a party until stop is called or the test ends. It does not wait until the party is ready.
func Run(t testing.TB, run func(context.Context) error) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- run(ctx) }()
	stop = sync.OnceFunc(func() {
		cancel()
		require.NoError(t, <-ended)
	})
	t.Cleanup(stop)
	return stop
}

// StartAll runs all relays in this process until the test ends.
func (c *Cascade) StartAll(t testing.TB) {
	t.Helper()
	for hop := range c.addresses {
		c.Start(t, hop)
	}
}

// WaitReady waits until the relay with the given admin address is ready, even if it is so for none of its tasks.
func (c *Cascade) WaitReady(t testing.TB, admin string) {
	t.Helper()
	require.Eventually(t, func() bool {
		resp, err := c.http.Get("http://" + admin + "/readyz")
		if err != nil {
			return false
		}
		defer resp.Body.Close()
		answer, err := io.ReadAll(resp.Body)
		return err == nil && (resp.StatusCode/100 == 2 || bytes.Contains(answer, []byte(" refuses all reports: ")))
	}, Patience, 10*time.Millisecond)
}

// Patience is how long a test waits for an event that must happen. It is long because the machine may be busy.
const Patience = 2 * time.Minute

// Seal returns a client's submission, with the given tags or random ones. The first message of every lane holds value;
// all other slots hold covers.
func (c *Cascade) Seal(t testing.TB, epoch, value uint64, tags ...[onion.TagSize]byte) []byte {
	t.Helper()
	lanes := make([][]task.Message, c.Open.Slots.Lanes)
	for lane := range lanes {
		lanes[lane] = append(lanes[lane], Message(value, c.Open.Slots.MessageBytes))
		for len(lanes[lane]) < int(c.Open.Slots.PerLane) && c.Open.Slots.Padding == task.PaddingFull {
			lanes[lane] = append(lanes[lane], task.Message{Cover: true})
		}
	}
	body, err := c.sealer.Seal(epoch, lanes, tags...)
	require.NoError(t, err)
	return body
}

// Message returns a message of size bytes that holds a number, big endian, in its first 8 bytes, or in all if it is
// shorter.
func Message(value, size uint64) task.Message {
	body, number := make([]byte, size), binary.BigEndian.AppendUint64(nil, value)
	copy(body, number[8-min(size, 8):])
	return task.Message{Body: body}
}

// Network returns an IP address in the n-th network. Relays count different networks as different clients.
func Network(n int) string { return fmt.Sprintf("10.%d.%d.1", n>>8&0xff, n&0xff) }

// Post sends a submission to the first relay from a client's IP address. The error is a [problem.Problem] or a network
// error.
func (c *Cascade) Post(ctx context.Context, epoch uint64, body []byte, client string) error {
	return c.PostWith(ctx, epoch, body, http.Header{"X-Forwarded-For": {client}})
}

// PostWith is Post with headers that the caller chooses.
func (c *Cascade) PostWith(ctx context.Context, epoch uint64, body []byte, header http.Header) error {
	return c.postTo(ctx, c.ReportsURL(epoch), body, header)
}

func (c *Cascade) postTo(ctx context.Context, url string, body []byte, header http.Header) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, url, bytes.NewReader(body))
	if err != nil {
		return err
	}
	maps.Copy(req.Header, header)
	if req.Header.Get("Content-Type") == "" {
		req.Header.Set("Content-Type", "application/msgpack")
	}
	resp, err := c.http.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusCreated {
		return problem.Read(resp)
	}
	return nil
}

// ReportsURL returns the URL to which clients post reports of an epoch.
func (c *Cascade) ReportsURL(epoch uint64) string {
	return c.atTwin(c.Open.ReportsURL(epoch))
}

func (c *Cascade) atTwin(url string) string {
	if c.twin != "" {
		url = "http://" + c.twin + strings.TrimPrefix(url, c.Open.Relays[0].URL)
	}
	return url
}

// Twin creates the files of a second process of a relay, with the same store and its own addresses. It returns the
// process's configuration file, and a cascade whose clients report to that process.
func (c *Cascade) Twin(t testing.TB, hop int) (config string, seen *Cascade) {
	t.Helper()
	from, to := filepath.Dir(c.RelayConfig(hop+1)), filepath.Dir(c.RelayConfig(hop+1))+"twin"
	require.NoError(t, quickstart.Copy(to, from))
	config = filepath.Join(to, "relay.yaml")
	text, err := os.ReadFile(config)
	require.NoError(t, err)
	cfg := c.Config(t, hop)
	other := *c
	other.twin = FreeAddress(t)
	replaced := strings.NewReplacer(cfg.Listen, other.twin, cfg.Admin, FreeAddress(t)).Replace(string(text))
	require.NoError(t, os.WriteFile(config, []byte(replaced), 0o600))
	return config, &other
}

// Pull waits until the last relay serves a batch to the verifier, and checks it. It first asks for all previous
// batches, as a next hop does: a request for a batch tells the relay that the hop has the previous ones.
func (c *Cascade) Pull(t testing.TB, epoch, seq uint64) (*onion.Batch, []onion.Manifest) {
	t.Helper()
	var batch *onion.Batch
	last := c.Open.VerifierHop() - 1
	for before := range seq {
		require.Eventually(t, func() bool {
			_, err := c.Verifier.Pull(t.Context(), c.Open, last, epoch, before)
			answered := new(problem.Problem)
			return !errors.Is(err, handover.ErrNotSealed) &&
				(!errors.As(err, &answered) || answered.Name == problem.Confirmed)
		}, Patience, 10*time.Millisecond, "the last relay does not serve batch %d of epoch %d", before, epoch)
	}
	require.Eventually(t, func() bool {
		var err error
		batch, err = c.Verifier.Pull(t.Context(), c.Open, last, epoch, seq)
		return err == nil
	}, Patience, 10*time.Millisecond, "the last relay does not serve batch %d of epoch %d", seq, epoch)
	chain, err := batch.Check(c.Open.Task, onion.Context{TaskID: c.Open.ID, Epoch: epoch, Hop: last}, seq)
	require.NoError(t, err)
	return batch, chain
}

// Values opens a batch with the verifier's key and returns the numbers in its messages, by lane.
func (c *Cascade) Values(t testing.TB, epoch uint64, b *onion.Batch) [][]uint64 {
	t.Helper()
	opener := c.VerifierOpener(t, epoch)
	out := make([][]uint64, len(b.Ciphertexts))
	for lane, slots := range b.Ciphertexts {
		for _, slot := range slots {
			_, m, err := opener.OpenMessage(lane, slot)
			require.NoError(t, err)
			if !m.Cover {
				out[lane] = append(out[lane], binary.BigEndian.Uint64(m.Body))
			}
		}
	}
	return out
}

// VerifierOpener returns an opener with the verifier's key of an epoch.
func (c *Cascade) VerifierOpener(t testing.TB, epoch uint64) *onion.Opener {
	t.Helper()
	keys, err := keyfile.LoadHPKE(c.VerifierKeys(c.fileName()))
	require.NoError(t, err)
	key, err := keys.Key(epoch)
	require.NoError(t, err)
	opener, err := onion.NewOpener(c.Open.Task, c.Open.ID, c.Open.VerifierHop(), epoch, key)
	require.NoError(t, err)
	return opener
}

// PublicKey returns the serialized HPKE public key of a hop for an epoch.
func (c *Cascade) PublicKey(t testing.TB, hop int, epoch uint64) []byte {
	t.Helper()
	keys := c.Open.KeyLists[hop].Keys
	size := len(keys) / int(c.Open.Epochs.Count)
	return keys[int(epoch)*size : int(epoch+1)*size]
}
