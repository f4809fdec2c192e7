package world_test

import (
	"bytes"
	"crypto/ed25519"
	"encoding/base64"
	"encoding/binary"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"net/http"
	"net/url"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/doona-dp/doona/internal/testing/relaytest"
	"github.com/doona-dp/doona/relay"
	"github.com/doona-dp/doona/wire/endpoint"
	"github.com/doona-dp/doona/wire/handover"
	"github.com/doona-dp/doona/wire/keyfile"
	"github.com/doona-dp/doona/wire/onion"
	"github.com/doona-dp/doona/wire/problem"
	"github.com/doona-dp/doona/wire/signing"
	"github.com/doona-dp/doona/wire/task"
	"github.com/doona-dp/doona/wire/taskfile"
)

// The attacks of a world: other parties and strangers send requests and answers that no honest party sends. Each attack
// has an invariant that limits its effect.

// The kinds of attacks.
const (
	faultNumbers = "bad numbers"
	faultEndless = "endless batches"
	faultJunk    = "junk lists"
)

// worldAllowance is how many batches of an epoch may be destroyed in a world, besides as many as were released. Relays
// count the rest of [onion.DestroyedAllowance] as destroyed from the start.
const worldAllowance = 8

// drawNumbers draws an attack with numbers that the task does not have, by the next hop or a stranger.
func drawNumbers(rng *rand.Rand, _ bool) fault {
	return ofNumbers(moment(rng), draw(rng, 0, 1), rng.IntN(3) == 0, rng.Uint64())
}

func ofNumbers(at time.Duration, hop int, stranger bool, seed uint64) fault {
	who := map[bool]string{false: "its next hop", true: "a stranger"}[stranger]
	return fault{at, faultNumbers, fmt.Sprintf("to %s, by %s", relayNames[hop], who), func(w *world) {
		key := w.signKey(w.order[slices.Index(w.order, relayNames[hop])+1])
		if stranger {
			key = keyOf(seed)
		}
		for _, one := range w.badNumbers(hop, key) {
			w.send(relayNames[hop], one.req, func(got *recordedResponse) {
				w.account.count(&w.account.refused)
				if why := refusal(got); !slices.Contains(one.refused, why) {
					w.account.note("a bad number was accepted", "%s %s: %d %s", one.req.Method, one.req.URL.Path,
						got.status, why)
				}
			})
		}
	}}
}

// keyOf returns a key that no task names.
func keyOf(seed uint64) ed25519.PrivateKey {
	return ed25519.NewKeyFromSeed(binary.BigEndian.AppendUint64(make([]byte, ed25519.SeedSize-8), seed))
}

func (w *world) signKey(name string) ed25519.PrivateKey {
	key, err := keyfile.LoadSign(filepath.Join(w.Dir, name, "sign.key"))
	if err != nil {
		panic(err)
	}
	return key
}

// badRequest is a request, and the problems with which a relay may refuse it.
type badRequest struct {
	req     *http.Request
	refused []problem.Name
}

// badNumbers returns requests to a relay. Each has one number that is too large for the task: an epoch, a batch, a
// position in a stream or a number of keys.
func (w *world) badNumbers(hop int, key ed25519.PrivateKey) (all []badRequest) {
	open := w.Open
	add := func(method, target string, purpose signing.Purpose, body []byte, refused ...problem.Name) *http.Request {
		req := handed(method, target, key, purpose, body)
		all = append(all, badRequest{req, refused})
		return req
	}
	pull := func(epoch, seq uint64, refused ...problem.Name) {
		history := handover.HistoryDigest{1}
		req := add(http.MethodGet, open.BatchURL(hop, epoch, seq), signing.Pull,
			handover.Body(open.ID, epoch, seq, 0, history), refused...)
		req.Header.Set(handover.HistoryHeader, base64.RawURLEncoding.EncodeToString(history[:]))
	}
	count := open.Epochs.Count
	for _, epoch := range []uint64{count, count + 1, math.MaxInt64, math.MaxUint64} {
		pull(epoch, 1, problem.EpochNotOpen)
		add(http.MethodPost, open.ConfirmURL(hop, epoch, 0), signing.Confirm,
			handover.ConfirmBody(open.ID, epoch, 0, nil), problem.EpochNotOpen)
		add(http.MethodGet, open.EndURL(hop, epoch), signing.AskEnd, handover.EndBody(open.ID, epoch),
			problem.EpochNotOpen)
		reports := strings.Replace(open.ReportsURL(epoch), open.Relays[0].URL, open.Relays[hop].URL, 1)
		add(http.MethodPost, reports, signing.Pull, nil, problem.EpochNotOpen, problem.NotIngress,
			problem.StateRolledBack)
	}
	for _, seq := range []uint64{(&task.Task{}).MostBatches() + 1, math.MaxInt64, math.MaxUint64} {
		pull(0, seq, problem.Malformed)
		add(http.MethodPost, open.ConfirmURL(hop, 0, seq), signing.Confirm,
			handover.ConfirmBody(open.ID, 0, seq, nil), problem.Malformed)
	}
	own := open.Relays[hop].SignKey
	asker := task.SignKey(key.Public().(ed25519.PublicKey))
	label := taskfile.Label{1}
	for _, n := range []uint64{task.MaxEpochs + 1, math.MaxUint64} {
		add(http.MethodGet, fmt.Sprintf("%s/v1/streams/%s/successors/1/keys/%d", open.Relays[hop].URL, open.ID, n),
			signing.Succeed, handover.NextKeysBody(open.ID, 1, n), problem.Malformed, problem.UnknownTask)
		add(http.MethodGet, fmt.Sprintf("%s/v1/owners/%x/keys/%x/%s/%d", open.Relays[hop].URL, asker[:], label[:],
			task.KEMX25519, n), signing.Owner, handover.OwnersKeysBody(own, label, task.KEMX25519, n),
			problem.Malformed)
	}
	add(http.MethodGet, fmt.Sprintf("%s/v1/updates/%x/%x", open.Relays[hop].URL, own[:], open.ID[:]), signing.Updates,
		handover.UpdatesBody(own, task.SignKey(open.ID)), problem.Unauthorized)
	return all
}

// handed returns a signed request, as package handover makes it.
func handed(method, target string, key ed25519.PrivateKey, purpose signing.Purpose, body []byte) *http.Request {
	at, err := url.Parse(target)
	if err != nil {
		panic(err)
	}
	return &http.Request{Method: method, URL: at, Host: at.Host, Header: http.Header{
		handover.Header: {handover.Signed(key, purpose, body)}, "Content-Type": {"application/msgpack"}}}
}

// send sends a request to a party, if it runs, and passes the answer to check.
func (w *world) send(to string, req *http.Request, check func(got *recordedResponse)) {
	if got, err := w.parties[to].either().ask("stranger", req); err == nil {
		check(got)
	}
}

// refusal returns the name of the problem in an answer; "" if the request succeeded.
func refusal(a *recordedResponse) problem.Name {
	if a.status/100 == 2 {
		return ""
	}
	return problem.Read(a.response()).Name
}

// checkTraces checks that a relay has no epoch or finding beyond the task's numbers, and each finding only once per
// epoch.
func (a *account) checkTraces(of string, t *relay.TaskStatus) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, e := range t.Epochs {
		if e.Epoch >= a.open.Epochs.Count {
			a.breaks("a bad number was accepted", "%s has epoch %d", of, e.Epoch)
		}
	}
	for i, f := range t.Findings {
		if f.Epoch >= a.open.Epochs.Count || f.Batch > (&task.Task{}).MostBatches() {
			a.breaks("a bad number was accepted", "%s has a finding of epoch %d, batch %d", of, f.Epoch, f.Batch)
		}
		for _, other := range t.Findings[:i] {
			if other.Epoch == f.Epoch && other.Reason == f.Reason {
				a.breaks("batches without end", "%s has many findings: %s", of, f.Reason)
			}
		}
	}
}

// drawEndless draws an attack: the first relay has a batch of every number, with slots that do not open.
func drawEndless(rng *rand.Rand, _ bool) fault {
	return ofEndless(moment(rng), between(rng, time.Second, 60*time.Second))
}

// ofEndless excuses early erasure if clocks are wrong: a relay whose clock is ahead takes the epoch for over, and
// endless batches end it. The first relay could as well have signed the end, so nothing more is lost.
func ofEndless(at, lasts time.Duration) fault {
	f := ofLink(faultEndless, at, lasts, [2]string{"relay2", "relay1"}, linkEndless)
	lie := f.do
	f.do = func(w *world) {
		if w.clocks {
			w.account.excuse("keys erased early: relay2")
		}
		lie(w)
	}
	return f
}

// endlessBatch returns a batch of n submissions for the requested number, of which no slot opens. There are three times
// as many of these as the next relay may destroy.
func (a *account) endlessBatch(req *http.Request) *recordedResponse {
	epoch, seq := pathOf(req)
	if seq > 3*worldAllowance {
		return nil
	}
	layout, err := onion.NewLayout(a.open.Task)
	if err != nil {
		panic(err)
	}
	lanes, in := make(onion.Lanes, a.open.Slots.Lanes), make([]uint64, a.open.Slots.Lanes)
	for lane := range lanes {
		junk := binary.BigEndian.AppendUint64(make([]byte, layout.SlotSize(1)-16), epoch)
		lanes[lane] = [][]byte{binary.BigEndian.AppendUint64(junk, seq)}
		in[lane] = a.open.Batch.Size * a.open.Slots.PerLane
	}
	b, err := onion.NewBatch(a.world.firstSign, onion.BatchDraft{
		Context: onion.Context{TaskID: a.open.ID, Epoch: epoch},
		Seq:     seq, Submissions: a.open.Batch.Size, In: in,
	}, lanes)
	if err != nil {
		panic(err)
	}
	raw, err := b.Bytes()
	if err != nil {
		panic(err)
	}
	return &recordedResponse{status: http.StatusOK,
		header: http.Header{"Content-Type": {"application/msgpack"}}, body: raw}
}

// checkEndless checks that the second relay destroyed no more batches of an epoch than it may.
func (a *account) checkEndless() {
	a.mu.Lock()
	defer a.mu.Unlock()
	destroyed, released := map[uint64]int{}, map[uint64]int{}
	for at, m := range a.signed {
		switch {
		case at.hop != 1:
		case m.Destroyed():
			destroyed[at.epoch]++
		default:
			released[at.epoch]++
		}
	}
	for epoch, n := range destroyed {
		if n > released[epoch]+worldAllowance+1 {
			a.breaks("batches without end", "%d destroyed in epoch %d, %d released", n, epoch, released[epoch])
		}
	}
}

// junkSize is the length of a junk answer in bytes. junkRead is how many bytes of it a party may read: what is in
// buffers, and at most the longest valid answer.
const (
	junkSize = 2 << 20
	junkRead = 256 << 10
)

// attackMemory is how many bytes of memory a body of junkSize may cost.
const attackMemory = 100 << 20

// junkLists are bodies that no honest party sends: lists longer than their content, very long lists, nested lists, and
// endless bytes.
var junkLists = [][]byte{
	append([]byte{0xdd, 0xff, 0xff, 0xff, 0xff}, bytes.Repeat([]byte{0xa0}, junkSize)...),
	append(binary.BigEndian.AppendUint32([]byte{0xdd}, junkSize), bytes.Repeat([]byte{0xc4, 0}, junkSize/2)...),
	bytes.Repeat([]byte{0x91}, junkSize),
	append([]byte{0x94, 0xc6, 0xff, 0xff, 0xff, 0xff}, make([]byte, junkSize)...),
	append(append([]byte{0x94, 0xc4, 0, 0xc4, 0, 0xc4, 0, 0xdd, 0, 0x1f, 0xff, 0xf0},
		bytes.Repeat([]byte{0xa0}, 0x1ffff0)...), 0xa0),
}

// drawJunk draws an attack by a party whose answers are junk, or by a stranger who sends junk as request bodies.
func drawJunk(rng *rand.Rand, tokens bool) fault {
	at, junk := moment(rng), rng.IntN(len(junkLists))
	if rng.IntN(2) == 0 {
		ends := draw(rng, [2]string{"relay2", "relay1"}, [2]string{"verifier", "relay2"})
		what := draw(rng, linkJunk, linkJunkEnd, linkJunkNow)
		return ofJunkAnswers(at, between(rng, time.Second, 90*time.Second), ends, what, junk)
	}
	to := draw(rng, relayNames...)
	if tokens && rng.IntN(3) == 0 {
		to = "issuer"
	}
	return ofJunkHanded(at, to, junk)
}

func ofJunkHanded(at time.Duration, to string, junk int) fault {
	return fault{at, faultJunk, fmt.Sprintf("handed to %s: list %d", to, junk), func(w *world) {
		for _, req := range w.junkRequests(to, junkLists[junk]) {
			w.handJunk(to, req)
		}
	}}
}

func ofJunkAnswers(at, lasts time.Duration, ends [2]string, what string, junk int) fault {
	f := ofLink(faultJunk, at, lasts, ends, what)
	f.do = func(w *world) {
		w.network.mu.Lock()
		w.network.junk = junkLists[junk]
		w.network.mu.Unlock()
		w.network.add(&linkFault{ends[0], ends[1], what, time.Now().Add(lasts)})
	}
	return f
}

// junkOwner is the key of an owner whom the relays of every world have approved.
var junkOwner = keyOf(7)

// junkRequests returns all requests to a party that have a body, with a junk body.
func (w *world) junkRequests(to string, junk []byte) (all []*http.Request) {
	add := func(path string, purpose signing.Purpose, signed []byte) {
		req := handed(http.MethodPost, "http://"+to+path, junkOwner, purpose, signed)
		req.Body, req.ContentLength = io.NopCloser(bytes.NewReader(junk)), int64(len(junk))
		req.Header.Set("X-Forwarded-For", relaytest.Network(999))
		all = append(all, req)
	}
	id := w.Open.ID
	if to == "issuer" {
		add(fmt.Sprintf("/v1/tasks/%s/epochs/0/%s", id, endpoint.TokenRequest), signing.Owner, nil)
		return all
	}
	own := w.Open.Relays[slices.Index(relayNames, to)].SignKey
	add(fmt.Sprintf("/v1/owners/%x/tasks", junkOwner.Public()), signing.Owner, handover.OwnersTaskBody(own))
	add(fmt.Sprintf("/v1/streams/%s/successors", id), signing.Succeed, handover.SuccessorBody(id))
	add(fmt.Sprintf("/v1/streams/%s/statements", id), signing.Succeed, nil)
	for epoch := range w.Open.Epochs.Count {
		add(fmt.Sprintf("/v1/tasks/%s/epochs/%d/reports", id, epoch), signing.Pull, nil)
	}
	return all
}

// handJunk sends a junk request to a party. The party must refuse it within junkPatience and with little memory.
func (w *world) handJunk(to string, req *http.Request) {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	begun := w.since()
	w.send(to, req, func(got *recordedResponse) {
		w.account.count(&w.account.handed)
		runtime.ReadMemStats(&after)
		if got.status/100 != 4 && got.status != http.StatusServiceUnavailable {
			w.account.note("junk was accepted", "%s %s: %d", to, req.URL.Path, got.status)
		}
		if took := after.TotalAlloc - before.TotalAlloc; took > attackMemory || w.since()-begun > junkPatience {
			w.account.note("junk was accepted", "%s %s: %d bytes of memory in %v", to, req.URL.Path, took,
				w.since()-begun)
		}
	})
}

// junkPatience is how long a party may take to refuse junk.
const junkPatience = 30 * time.Second

// serveJunk answers with junk, and records if the requester reads too much of it.
func (r *network) serveJunk(w http.ResponseWriter, from string, junk []byte) {
	read := 0
	for piece := range slices.Chunk(junk, 16<<10) {
		n, err := w.Write(piece)
		if read += n; err != nil {
			break
		}
	}
	if read > junkRead {
		r.world.account.note("junk was accepted", "%s reads %d bytes of an answer", from, read>>20<<20)
	}
}

// checkJunk checks that a relay kept nothing of what junkOwner sent.
func (a *account) checkJunk(of string, owners []relay.OwnerStatus) {
	for _, o := range owners {
		if o.Tasks+o.Asked > 0 {
			a.note("junk was accepted", "%s has %d tasks and %d lists of keys", of, o.Tasks, o.Asked)
		}
	}
}

// attacked returns a world's faults: all attacks on all parties, and no other faults.
func attacked() *bug {
	b := &bug{tokens: true, quiet: true}
	at := worldLead
	next := func(f fault) {
		b.add = append(b.add, f)
		at += 2 * time.Second
	}
	for hop, name := range relayNames {
		next(ofNumbers(at, hop, false, 1))
		next(ofNumbers(at, hop, true, 1))
		for junk := range junkLists {
			next(ofJunkHanded(at, name, junk))
		}
	}
	for junk := range junkLists {
		next(ofJunkHanded(at, "issuer", junk))
	}
	for i, ends := range [][2]string{{"relay2", "relay1"}, {"verifier", "relay2"}} {
		for junk := range junkLists {
			next(ofJunkAnswers(at, 2*time.Second, ends, linkJunk, junk))
		}
		over := worldLead + worldLength + time.Duration(10*i)*time.Second
		b.add = append(b.add, ofJunkAnswers(over, 10*time.Second, ends, linkJunkEnd, i))
	}
	b.add = append(b.add, ofJunkAnswers(worldLead, 70*time.Second, [2]string{"relay1", "relay2"}, linkJunkNow, 0))
	next(ofEndless(worldLead+worldLength+30*time.Second, 20*time.Second))
	next(ofNumbers(worldLead+worldEpochs*worldLength+20*time.Second, 0, false, 1)) // when epoch Count would begin
	return b
}

// TestWorldAttacks: a world must withstand all attacks together.
func TestWorldAttacks(t *testing.T) {
	w := playWorld(t, 0, attacked())
	require.Empty(t, w.account.broken, "%s", w.report())
	require.Len(t, faultsOf(w), len(attacked().add))
	require.Contains(t, w.report(), "too many batches of the epoch were destroyed")
	require.Positive(t, w.account.handed, "no party answered junk")
	require.Positive(t, w.account.refused, "no party answered bad numbers")
}
