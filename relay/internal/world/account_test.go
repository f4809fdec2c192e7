package world_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/doona-dp/doona/internal/testing/faultdisk"
	"github.com/doona-dp/doona/relay"
	"github.com/doona-dp/doona/verifier"
	"github.com/doona-dp/doona/verifier/finding"
	"github.com/doona-dp/doona/wire/codec"
	"github.com/doona-dp/doona/wire/keyfile"
	"github.com/doona-dp/doona/wire/onion"
	"github.com/doona-dp/doona/wire/taskfile"
)

// The world knows all keys from the start. So it knows each client's slots at every hop, and recognizes them in every
// batch.

// sent is one report of a client.
type sent struct {
	client string // the client's network
	epoch  uint64
	number int    // among all reports
	slots  [2]int // how many of its slots each relay has released
	acked  bool
	lanes  onion.Lanes // its slots as the first relay releases them
	letter uint64      // only with rare events, or a set
	cover  bool        // only with a set
}

// slotName identifies a slot that a relay has released, by its hash.
type slotName [sha256.Size]byte

// batchAt names a batch of the relay at a hop.
type batchAt struct {
	hop        int
	epoch, seq uint64
}

// account records what happens in a world to a task, and checks the invariants.
type account struct {
	world *world
	open  *taskfile.Open
	file  string           // name of the task's files
	keys  [3]*keyfile.HPKE // the relays' and the verifier's keys, copied before any was erased

	mu        sync.Mutex // guards the rest
	reports   []*sent
	slots     [2]map[slotName]*sent
	out       [2]map[slotName][sha256.Size]byte // by hop: the manifest with which a slot was released
	manifests map[batchAt][sha256.Size]byte
	signed    map[batchAt]*onion.Manifest
	offers    map[batchAt]offer          // first batches offered to the second relay
	confirmed map[batchAt]bool           // batches whose confirmation the relay has acknowledged
	tokens    map[string]map[string]bool // by epoch and network: the issuer's different replies
	broken    []string                   // violated invariants
	broke     map[string]bool
	excused   []string // beginnings of violations that faults allow
	refused   int      // bad numbers that were answered
	handed    int      // junk requests that were answered
}

func newAccount(w *world, open *taskfile.Open, file string) *account {
	a := &account{world: w, open: open, file: file, manifests: map[batchAt][sha256.Size]byte{},
		signed: map[batchAt]*onion.Manifest{}, tokens: map[string]map[string]bool{}, broke: map[string]bool{},
		offers: map[batchAt]offer{}, confirmed: map[batchAt]bool{}}
	for hop := range a.slots {
		a.slots[hop], a.out[hop] = map[slotName]*sent{}, map[slotName][sha256.Size]byte{}
	}
	for hop, name := range []string{relayNames[0], relayNames[1], "verifier"} {
		keys, err := keyfile.LoadHPKE(filepath.Join(w.Dir, name, file+".keys"))
		if err != nil {
			panic(err)
		}
		a.keys[hop] = keys
	}
	return a
}

// excuse allows violations that begin with these texts, because of a fault.
func (a *account) excuse(lines ...string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.excused = append(a.excused, lines...)
}

// breaks records a violated invariant, once for each name and detail. The caller holds a.mu.
func (a *account) breaks(name, format string, args ...any) {
	line := name + ": " + fmt.Sprintf(format, args...)
	if a.broke[line] {
		return
	}
	a.broke[line] = true
	if slices.ContainsFunc(a.excused, func(start string) bool { return strings.HasPrefix(line, start) }) {
		return
	}
	a.broken = append(a.broken, line)
	a.world.log("BROKEN %s", line)
}

func (a *account) count(what *int) {
	a.mu.Lock()
	defer a.mu.Unlock()
	*what++
}

// opener returns an opener for the party at a hop.
func (a *account) opener(hop int, epoch uint64) *onion.Opener {
	key, err := a.keys[hop].Key(epoch)
	if err != nil {
		panic(err)
	}
	o, err := onion.NewOpener(a.open.Task, a.open.ID, hop, epoch, key)
	if err != nil {
		panic(err)
	}
	return o
}

// know records a report's slots at each hop. Call it before the report is sent.
func (a *account) know(client string, epoch uint64, body []byte) *sent {
	envelope, err := a.opener(0, epoch).OpenEnvelope(body)
	if err != nil {
		panic(err)
	}
	s := &sent{client: client, epoch: epoch}
	if a.world.kind == rare {
		s.letter = a.letter(epoch, body)
	}
	a.learn(s, envelope.Lanes)
	return s
}

// learn records the slots of a report for hop 1, and what they are at hop 2.
func (a *account) learn(s *sent, lanes onion.Lanes) {
	second := a.opener(1, s.epoch)
	a.mu.Lock()
	defer a.mu.Unlock()
	s.number, s.lanes = len(a.reports), lanes
	a.reports = append(a.reports, s)
	for lane, slots := range lanes {
		for _, slot := range slots {
			_, next, err := second.OpenSlot(lane, slot)
			if err != nil {
				panic(err)
			}
			a.slots[0][sha256.Sum256(slot)] = s
			a.slots[1][sha256.Sum256(next)] = s
		}
	}
}

func (a *account) acknowledged(s *sent) {
	a.mu.Lock()
	defer a.mu.Unlock()
	s.acked = true
}

// offer is the first signed manifest that the second relay got for a number. It may not use another one afterwards.
type offer struct {
	manifest [sha256.Size]byte
	life     *life // the second relay's life at that time
	disk     *faultdisk.Disk
	at       time.Time
}

// offerLasts is how long a relay may take to store an offer on disk. In virtual time it takes none.
const offerLasts = time.Second

// kept reports whether the second relay must have stored an offer: its disk worked, and it lived long enough.
func (o *offer) kept() bool {
	if o.disk.Refused(o.at, o.at.Add(offerLasts)) {
		return false // the relay has not asked for the slots, and pulls again
	}
	o.life.mu.Lock()
	defer o.life.mu.Unlock()
	return !o.life.dead || o.life.died.Sub(o.at) > offerLasts
}

// taskOf returns the id in the path of a later party's request.
func taskOf(req *http.Request) string {
	if parts := strings.Split(req.URL.Path, "/"); len(parts) > 3 {
		return parts[3]
	}
	return ""
}

func pathOf(req *http.Request) (epoch, seq uint64) {
	parts := strings.Split(req.URL.Path, "/")
	fmt.Sscan(parts[5], &epoch)
	if len(parts) > 7 {
		fmt.Sscan(parts[7], &seq)
	}
	return epoch, seq
}

// offered records the manifest in an answer to the second relay, if it is complete and signed.
func (a *account) offered(req *http.Request, got *recordedResponse) {
	second := a.world.parties["relay2"]
	life := second.alive()
	r, err := onion.NewBatchReader(bytes.NewReader(got.body), 1<<20)
	if err != nil || life == nil || got.status != http.StatusOK {
		return
	}
	at := batchAt{hop: 1}
	at.epoch, at.seq = pathOf(req)
	m, err := r.Signed().Open(a.open.Task, 0)
	if err != nil || m.Epoch != at.epoch || m.Seq != at.seq {
		return
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if before, again := a.offers[at]; !again || !before.kept() {
		a.offers[at] = offer{sha256.Sum256(r.Signed().Manifest), life, second.disk, time.Now()}
	}
}

// otherBatch returns a batch that a lying first relay may sign for the requested number. Its reports are ones that this
// relay has seen, whether or not they were released before.
func (a *account) otherBatch(req *http.Request) *recordedResponse {
	epoch, seq := pathOf(req)
	sign := a.world.firstSign
	a.mu.Lock()
	defer a.mu.Unlock()
	lanes, in := make(onion.Lanes, a.open.Slots.Lanes), make([]uint64, a.open.Slots.Lanes)
	n := uint64(0)
	for _, s := range a.reports {
		if s.epoch != epoch || n == a.open.Batch.Size {
			continue
		}
		n++
		for lane := range lanes {
			lanes[lane] = append(lanes[lane], s.lanes[lane]...)
			in[lane] += uint64(len(s.lanes[lane]))
		}
	}
	if n < a.open.Batch.Size || seq > 3 { // otherwise the lies could go on endlessly
		return nil
	}
	b, err := onion.NewBatch(sign, onion.BatchDraft{
		Context: onion.Context{TaskID: a.open.ID, Epoch: epoch}, Seq: seq, Submissions: n, In: in,
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

// commitment is what a party has told another, and must never take back.
type commitment struct {
	acked     *sent             // an acknowledged report, or one for whose token the issuer signed
	handedOut *batchAt          // a batch, or for end the epoch, that was handed out
	end       bool              // the end of the epoch was handed out
	hash      [sha256.Size]byte // hash of the batch's manifest, or of the end
	confirms  *batchAt          // an upstream batch that the party confirmed, so it must have stored it
	at        time.Duration
}

// noteRequest records the commitment in a party's request: a confirmation.
func (w *world) noteRequest(from, to string, req *http.Request) {
	if p := w.parties[from]; p != nil && question(req) == "confirm" {
		at := batchAt{hop: slices.Index(relayNames, to)}
		at.epoch, at.seq = pathOf(req)
		p.disk.AddCheckpoint(p.disk.Steps(), commitment{confirms: &at, at: w.since()})
	}
}

func (w *world) noteAnswer(_, to string, req *http.Request, got *recordedResponse) {
	hop := slices.Index(relayNames, to)
	switch kind := question(req); {
	case hop >= 0 && kind == "batch" && (got.status == http.StatusOK || got.status == http.StatusPartialContent):
		w.of(taskOf(req)).released(hop, got.body)
		if b, err := onion.ParseBatch(got.body); err == nil {
			m, _ := b.Header()
			w.parties[to].disk.AddCheckpoint(got.step, commitment{handedOut: &batchAt{hop, m.Epoch, m.Seq},
				hash: sha256.Sum256(b.Manifest), at: w.since()})
		}
	case hop >= 0 && kind == "end" && got.status == http.StatusOK:
		at := batchAt{hop: hop}
		at.epoch, _ = pathOf(req)
		w.parties[to].disk.AddCheckpoint(got.step,
			commitment{handedOut: &at, end: true, hash: sha256.Sum256(got.body), at: w.since()})
	case hop >= 0 && kind == "confirm" && got.status == http.StatusNoContent:
		at := batchAt{hop: hop}
		at.epoch, at.seq = pathOf(req)
		a := w.of(taskOf(req))
		a.mu.Lock()
		a.confirmed[at] = true
		a.mu.Unlock()
	case to == "issuer" && req.Method == http.MethodPost && got.status == http.StatusOK:
		w.account.issued(req.URL.Path+" "+req.Header.Get("X-Forwarded-For"), got.body)
	}
}

// issued checks that a client gets one token per epoch: replies to one client must not differ.
func (a *account) issued(to string, reply []byte) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.tokens[to] == nil {
		a.tokens[to] = map[string]bool{}
	}
	if a.tokens[to][string(reply)] = true; len(a.tokens[to]) > 1 {
		a.breaks("tokens beyond the quota", "%d for %s", len(a.tokens[to]), to[strings.LastIndex(to, " ")+1:])
	}
}

// released checks a batch that a relay handed out.
func (a *account) released(hop int, body []byte) {
	b, err := onion.ParseBatch(body)
	if err != nil {
		return // the relay crashed meanwhile
	}
	m, err := b.Header()
	if err != nil {
		panic(err)
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	at, hash := batchAt{hop, m.Epoch, m.Seq}, sha256.Sum256(b.Manifest)
	before, again := a.manifests[at]
	if again && before != hash {
		a.breaks("two batches under one number", "%v", at)
	}
	if again && before == hash {
		return
	}
	a.manifests[at], a.signed[at] = hash, m
	a.checkSource(at, m)
	for lane, slots := range b.Ciphertexts {
		a.releasedLane(at, lane, slots, hash)
	}
	if n := m.Submissions; !m.Destroyed() && hop == 0 && n != a.open.Batch.Size && !a.world.dummies() {
		a.breaks("a batch without n submissions", "%d in %v", n, at)
	}
	if a.world.dummies() {
		a.checkNoise(at, m, b)
	}
}

// checkNoise checks a batch of a task with dummies. This relay must have added the number that the law demands. All
// slots must be clients' slots or dummies. No batch may follow one that is not full. The caller holds a.mu.
func (a *account) checkNoise(at batchAt, m *onion.Manifest, b *onion.Batch) {
	if least, most := a.open.Noise.Support(); !m.Destroyed() && (m.Lanes[0].Added < least || m.Lanes[0].Added > most) {
		a.breaks("a wrong number of dummies", "%d in %v", m.Lanes[0].Added, at)
	}
	dummies := uint64(0)
	for _, slot := range b.Ciphertexts[0] {
		if a.slots[at.hop][sha256.Sum256(slot)] == nil {
			dummies++
		}
	}
	added := m.Lanes[0].Added
	if at.hop == 1 {
		added += m.Lanes[0].In - min(m.Lanes[0].In, m.Submissions)
	}
	if dummies > added {
		a.breaks("a slot that no client sent", "%d in %v, %d of them added", dummies, at, added)
	}
	for seq := range at.seq {
		before := a.signed[batchAt{at.hop, at.epoch, seq}]
		if at.hop == 0 && before != nil && before.Submissions < a.open.Batch.Size {
			a.breaks("a batch after the last", "%v", at)
		}
	}
}

// checkSource checks that the second relay made a batch from the first offer for its number. The caller holds a.mu.
func (a *account) checkSource(at batchAt, m *onion.Manifest) {
	first, offered := a.offers[at]
	if at.hop != 1 || !offered {
		return
	}
	var source onion.SignedManifest
	if err := codec.Unmarshal(m.Source, &source); err != nil {
		panic(err)
	}
	if sha256.Sum256(source.Manifest) != first.manifest && len(m.Lanes) > 0 && !m.Destroyed() {
		a.breaks("equivocation accepted", "in %v", at)
	}
}

// checkConfirmed checks that a relay deletes the batches that the next hop has confirmed.
func (a *account) checkConfirmed(hop int, of *relay.TaskStatus) {
	a.mu.Lock()
	defer a.mu.Unlock()
	confirmed := map[uint64]uint64{}
	for at := range a.confirmed {
		if at.hop == hop {
			confirmed[at.epoch]++
		}
	}
	for _, e := range of.Epochs {
		if e.Confirmed < confirmed[e.Epoch] && e.State != "ended" {
			a.breaks("confirmed but not deleted", "%s, epoch %d", relayNames[hop], e.Epoch)
		}
	}
}

// releasedLane checks the slots of a lane of a released batch. The caller holds a.mu.
func (a *account) releasedLane(at batchAt, lane int, slots [][]byte, manifest [sha256.Size]byte) {
	clients := map[*sent]bool{}
	for _, slot := range slots {
		name := slotName(sha256.Sum256(slot))
		s := a.slots[at.hop][name]
		if _, before := a.out[at.hop][name]; before {
			a.breaks("a slot came out twice", "of %s, again in %v", relayNames[at.hop], at)
		}
		a.out[at.hop][name] = manifest
		if s == nil && a.world.dummies() { // see checkNoise
			continue
		}
		if s == nil {
			a.breaks("a slot that no client sent", "lane %d of %v", lane, at)
			continue
		}
		s.slots[at.hop]++
		clients[s] = true
		if s.epoch != at.epoch {
			a.breaks("a slot of another epoch", "of %d in %v", s.epoch, at)
		}
	}
	if least := a.open.Batch.Min; !a.world.dummies() && len(slots) > 0 && uint64(len(clients)) < least {
		a.breaks("fewer clients than n_min", "%d clients in %v, at least %d", len(clients), at, least)
	}
}

// checkReached checks that no slot is in two of the verifier's batch files, whatever the relays have released.
func (a *account) checkReached() {
	in := map[slotName]string{}
	for _, path := range a.keptFiles() {
		raw, err := os.ReadFile(path)
		if err != nil {
			panic(err)
		}
		name := filepath.Base(path)
		b, err := onion.ParseBatch(raw)
		if err != nil {
			a.note("a batch that cannot be read", "%s: %v", name, err)
			continue
		}
		for _, slot := range slices.Concat(b.Ciphertexts...) {
			is := slotName(sha256.Sum256(slot))
			if other := in[is]; other != "" {
				a.note("a slot reached the verifier twice", "in %s and %s", other, name)
			}
			in[is] = name
		}
	}
}

// checkQuota checks that the first relay released no more reports of a client than its quota allows.
func (a *account) checkQuota() {
	a.mu.Lock()
	defer a.mu.Unlock()
	counts := map[string]uint64{}
	for _, s := range a.reports {
		if s.slots[0] > 0 {
			counts[fmt.Sprint(s.epoch, " ", s.client)]++
		}
	}
	for of, n := range counts {
		if most := 2*a.open.Clients.Quota - 1; n > most { // a quota q allows up to 2q−1 reports
			a.breaks("reports beyond the quota", "%d of client %s", n, of)
		}
	}
}

// checkLost checks that the last relay released each acknowledged report or destroyed its batch. If not, a party must
// have noticed the loss.
func (a *account) checkLost(noticed []string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	missing, rest := map[uint64]uint64{}, map[uint64]uint64{}
	for _, s := range a.reports {
		if s.acked && s.slots[1] == 0 {
			missing[s.epoch]++
		}
	}
	for at, m := range a.signed {
		if at.hop == 1 && m.Destroyed() {
			rest[at.epoch] += m.Submissions
		}
	}
	for _, epoch := range slices.Sorted(maps.Keys(missing)) {
		if missing[epoch] > rest[epoch] && len(noticed) == 0 {
			a.breaks("lost without a finding", "%d acknowledged of epoch %d, %d of them destroyed", missing[epoch],
				epoch, rest[epoch])
		}
	}
}

// early returns the epochs whose keys a relay erased before their ends by the true clock.
func (w *world) early(p *party) (epochs []string) {
	for _, a := range w.accounts {
		left := a.keysLeft(p)
		for epoch := range a.open.Epochs.Count {
			end := time.Unix(int64(a.open.Epochs.End(epoch)), 0)
			if !left[epoch] && w.now().Before(end.Add(worldSkew)) {
				epochs = append(epochs, fmt.Sprint(a.file, " ", epoch))
			}
		}
	}
	return epochs
}

// keysLeft returns the epochs whose keys are in a relay's key file.
func (a *account) keysLeft(p *party) map[uint64]bool {
	out := map[uint64]bool{}
	keys, err := keyfile.LoadHPKE(filepath.Join(p.folder, a.file+".keys"))
	if err != nil {
		a.note("keys that cannot be read", "%s: %v", p.name, err)
		return out
	}
	for epoch := range a.open.Epochs.Count {
		if _, err := keys.Key(epoch); err == nil {
			out[epoch] = true
		} else if !errors.Is(err, keyfile.ErrErased) {
			a.note("keys that cannot be read", "%s: %v", p.name, err)
		}
	}
	return out
}

// note is breaks for callers that do not hold a.mu.
func (a *account) note(name, format string, args ...any) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.breaks(name, format, args...)
}

// noticed returns the findings of the parties, and why they do not start. It leaves out findings that also occur if all
// are honest, such as a destroyed last batch.
func (w *world) noticed(ctx context.Context) (out []string) {
	for _, name := range w.order {
		p := w.parties[name]
		p.mu.Lock()
		run, why := p.run, p.why
		p.mu.Unlock()
		if why != "" {
			out = append(out, name+" does not start: "+why)
		}
		switch r := run.(type) {
		case *relay.Relay:
			out = append(out, relayFindings(ctx, name, r)...)
		case *pulling:
			for _, v := range r.verifiers {
				out = append(out, verifierFindings(v)...)
			}
		}
	}
	return out
}

func relayFindings(ctx context.Context, name string, r *relay.Relay) (out []string) {
	status, err := r.Status(ctx)
	if err != nil {
		return []string{name + " has no status: " + err.Error()}
	}
	for _, t := range status.Tasks {
		for _, f := range t.Findings {
			out = append(out, fmt.Sprintf("%s: epoch %d, batch %d: %s", name, f.Epoch, f.Batch, f.Reason))
		}
	}
	return out
}

func verifierFindings(v *verifier.Verifier) (out []string) {
	report, err := v.Report()
	if err != nil {
		return []string{"verifier has no report: " + err.Error()}
	}
	for _, f := range report.Findings {
		if f.Name != finding.Destroyed {
			out = append(out, fmt.Sprintf("verifier: %s: %s", f.Name, f.Example))
		}
	}
	return out
}

// state describes a relay's progress for the trace, and checks its status.
func (w *world) state(p *party) string {
	p.mu.Lock()
	run := p.run
	p.mu.Unlock()
	r, ok := run.(*relay.Relay)
	if !ok {
		return "down"
	}
	status, err := r.Status(context.Background())
	if err != nil {
		return "no status"
	}
	var out []string
	w.account.checkJunk(p.name, status.Owners)
	for _, t := range status.Tasks {
		a := w.of(t.ID)
		a.checkTraces(p.name, &t)
		if status.StateRollback == "" {
			a.checkConfirmed(t.Hop, &t)
		}
		for _, e := range t.Epochs {
			out = append(out, fmt.Sprintf("%d %s %d/%d", e.Epoch, e.State, e.Confirmed, e.Batches))
		}
	}
	return strings.Join(out, ", ")
}

// kept counts the batches in the verifier's folders.
func (w *world) kept() (n int) {
	for _, a := range w.accounts {
		n += len(a.keptFiles())
	}
	return n
}

func (a *account) keptFiles() []string {
	found, err := filepath.Glob(filepath.Join(a.world.parties["verifier"].folder, a.data(), "*.batch"))
	if err != nil {
		panic(err)
	}
	return found
}

// data returns the verifier's folder of the task's batches, below its own.
func (a *account) data() string {
	if a.world.kind == sets {
		return filepath.Join("data", a.file)
	}
	return "data"
}
