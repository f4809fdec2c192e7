package onion

import (
	"bytes"
	"cmp"
	"crypto/ed25519"
	"crypto/sha256"
	"errors"
	"fmt"

	"github.com/doona-dp/doona/wire/codec"
	"github.com/doona-dp/doona/wire/signing"
	"github.com/doona-dp/doona/wire/task"
)

// manifestLabel is the first field of every manifest.
const manifestLabel = "doona-manifest"

// Manifest is what a relay signs about a batch: hashes, and counts by lane. It gives no reasons for dropped slots, and
// no time finer than the epoch. Source contains the upstream relay's signed manifest, so a batch carries the manifests
// of all earlier hops.
type Manifest struct {
	Label       string
	Version     uint64
	TaskID      []byte      // 32 bytes.
	Epoch       uint64      // The epoch of every slot in the batch.
	Hop         uint64      // Hop of the relay that made the batch.
	Seq         uint64      // Number of the batch within the epoch, from 0; the same at every hop.
	Submissions uint64      // Number of client submissions in the batch.
	Lanes       []LaneCount // Slots per lane.
	Ciphertexts []byte      // SHA-256 over the slot counts and the hashes of all chunks, 32 bytes; see [ChunkSlots].
	Source      []byte      // [SignedManifest] of the upstream relay; empty at the first relay.
}

// LaneCount counts the slots of one lane. In + Added = Out + Dropped. Added counts the relay's own dummies; it is 0 if
// the task has no noise.
type LaneCount struct {
	In, Added, Out, Dropped uint64
}

// MaxManifest returns the largest number of bytes of a manifest from the relay at hop, with the manifests of all
// earlier hops inside. Of each manifest, at most 512 bytes are parts of constant size: label, version, two hashes, four
// numbers, headers and signature. By the limits of tasks the result is below 8·(512 + 65535·37), about 20 million.
func MaxManifest(t *task.Task, hop int) int64 {
	return int64(hop+1) * (512 + int64(t.Slots.Lanes)*(1+4*9)) // four counts of at most 9 bytes per lane
}

// MaxLane returns the largest number of slots in a lane of a batch from the relay at hop: the slots of Batch.Size
// clients, and the dummies that the relays up to hop may add. By the limits of tasks it is at most 2³⁶ + 8·2³⁶.
func MaxLane(t *task.Task, hop int) uint64 {
	slots := t.MostSlots()
	if t.Noise != nil {
		_, most := t.Noise.Support()
		slots += uint64(hop+1) * most
	}
	return slots
}

// SignedManifest is a manifest in its encoded form, with its relay's signature: msgpack [manifest, signature].
type SignedManifest struct {
	Manifest  []byte
	Signature []byte
}

// Batch is a shuffled batch in memory, with one list of ciphertexts per lane. A destroyed batch has no ciphertexts.
// [BatchReader] reads, and [Batch.Write] writes, the form that hops exchange and keep in .batch files, chunk by chunk.
type Batch struct {
	Manifest    []byte
	Signature   []byte
	Ciphertexts Lanes
}

// Lanes holds the ciphertexts of a batch, or one client's slots: Lanes[l][i] is slot i of lane l.
type Lanes [][][]byte

// Destroyed reports whether the relay passed on no slot of the batch.
func (m *Manifest) Destroyed() bool {
	for _, lane := range m.Lanes {
		if lane.Out > 0 {
			return false
		}
	}
	return true
}

// BatchDraft describes a batch that a relay is about to sign: its position and the counts of its manifest.
type BatchDraft struct {
	Context                     // of the relay that makes the batch
	Seq         uint64          // number of the batch within the epoch
	Submissions uint64          // number of client submissions in the batch
	In          []uint64        // slots received, by lane
	Added       []uint64        // own dummies among the ciphertexts, by lane; nil for none
	Source      *SignedManifest // signed manifest of the upstream relay's batch; nil at the first relay
}

// NewBatch signs a batch. lanes holds the ciphertexts for the next hop, which the caller has already permuted. If lanes
// is nil, the batch is a destroyed one.
func NewBatch(key ed25519.PrivateKey, d BatchDraft, lanes Lanes) (*Batch, error) {
	out := make(Lanes, len(d.In)) // with empty lists instead of nil ones, which have no encoding
	if lanes != nil && len(lanes) != len(d.In) {
		return nil, fmt.Errorf("invalid batch: %d lanes, counts for %d", len(lanes), len(d.In))
	}
	sizes := make([]uint64, len(out))
	for i := range out {
		out[i] = [][]byte{}
		if lanes != nil {
			out[i] = append(out[i], lanes[i]...)
		}
		sizes[i] = uint64(len(out[i]))
	}
	counts, err := d.counts(sizes)
	if err != nil {
		return nil, err
	}
	signed, err := d.sign(key, counts, hashLanes(out))
	if err != nil {
		return nil, err
	}
	return &Batch{signed.Manifest, signed.Signature, out}, nil
}

// counts returns the counts of a batch in which the relay passes on out[l] slots of lane l.
func (d *BatchDraft) counts(out []uint64) ([]LaneCount, error) {
	counts := make([]LaneCount, len(out))
	for i, n := range out {
		count := LaneCount{In: d.In[i], Out: n}
		if d.Added != nil {
			count.Added = d.Added[i]
		}
		if n > count.In+count.Added {
			return nil, fmt.Errorf("invalid batch: %d slots out of lane %d, %d in, %d added", n, i, count.In, count.Added)
		}
		count.Dropped = count.In + count.Added - n
		counts[i] = count
	}
	return counts, nil
}

// sign signs a manifest with these counts and this hash of the ciphertexts.
func (d *BatchDraft) sign(key ed25519.PrivateKey, counts []LaneCount, ciphertexts []byte) (*SignedManifest, error) {
	m := Manifest{
		Label: manifestLabel, Version: task.Version, TaskID: d.TaskID[:], Epoch: d.Epoch, Hop: uint64(d.Hop),
		Seq: d.Seq, Submissions: d.Submissions, Lanes: counts, Ciphertexts: ciphertexts, Source: []byte{},
	}
	if d.Source != nil {
		var err error
		if m.Source, err = codec.Marshal(d.Source); err != nil {
			return nil, err
		}
	}
	body, err := codec.Marshal(&m)
	if err != nil {
		return nil, err
	}
	return &SignedManifest{body, signing.Sign(key, signing.Manifest, body)}, nil
}

// Signed returns the batch's manifest and signature.
func (b *Batch) Signed() *SignedManifest { return &SignedManifest{b.Manifest, b.Signature} }

// Header parses the batch's manifest without any check. A caller learns from it which epoch and number the batch
// claims.
func (b *Batch) Header() (*Manifest, error) {
	var m Manifest
	if err := codec.Unmarshal(b.Manifest, &m); err != nil {
		return nil, err
	}
	return &m, nil
}

// ErrCiphertexts is the error for a batch whose ciphertexts do not match its signed manifest. The relay, or anybody in
// between, may have changed them. The same batch may still arrive unchanged later.
var ErrCiphertexts = errors.New("its ciphertexts are not those of the manifest")

// Faults in a chain of manifests whose last manifest has a valid signature; compare with errors.Is. A chain may also
// fail with [signing.ErrSigner], or because a manifest is for another task, epoch, hop or number.
var (
	ErrCounts  = errors.New("its counts do not add up")
	ErrChain   = errors.New("its chain of manifests is broken") // In an earlier manifest, or in the link to it.
	errContext = errors.New("it belongs to another task, epoch, hop or batch number")
)

// fault is an error with its own text that errors.Is also finds to be kind.
type fault struct {
	error
	kind error
}

func (f *fault) Unwrap() []error { return []error{f.kind, f.error} }

// Check verifies a signed manifest of hop c.Hop and number seq, and the manifests of all earlier hops in it, as
// [Batch.Check] does. It returns the chain of manifests, from the first relay to this hop.
func (s *SignedManifest) Check(t *task.Task, c Context, seq uint64) ([]Manifest, error) {
	return checkChain(t, c, seq, s)
}

// Bytes returns the msgpack form.
func (s *SignedManifest) Bytes() ([]byte, error) { return codec.Marshal(s) }

// ParseSigned parses a signed manifest from msgpack without checking it; see [SignedManifest.Check]. The result shares
// memory with in.
func ParseSigned(in []byte) (*SignedManifest, error) {
	v := codec.NewView(in)
	v.ArrayOf(2)
	s := &SignedManifest{v.Bytes(), v.Bytes()}
	if err := v.End(); err != nil {
		return nil, fmt.Errorf("couldn't decode a signed manifest: %w", err)
	}
	return s, nil
}

// readManifest parses a manifest of a task with this many lanes. If the manifest has more lanes, readManifest keeps
// only one of the surplus, which lets the caller see that there are too many.
func readManifest(in []byte, lanes uint64) (*Manifest, error) {
	v := codec.NewView(in)
	v.ArrayOf(10)
	m := &Manifest{Label: string(v.Text()), Version: v.Uint(), TaskID: v.Bytes(), Epoch: v.Uint(), Hop: v.Uint(),
		Seq: v.Uint(), Submissions: v.Uint(), Lanes: readLanes(v, lanes), Ciphertexts: v.Bytes(), Source: v.Bytes()}
	if err := v.End(); err != nil {
		return nil, fmt.Errorf("couldn't decode a manifest: %w", err)
	}
	return m, nil
}

// readLanes parses the counts of lanes. It keeps at most want+1 of them.
func readLanes(v *codec.View, want uint64) []LaneCount {
	n := v.Array()
	lanes := make([]LaneCount, 0, min(uint64(n), want+1))
	for ; n > 0 && !v.Failed(); n-- {
		v.ArrayOf(4)
		if count := (LaneCount{v.Uint(), v.Uint(), v.Uint(), v.Uint()}); len(lanes) < cap(lanes) {
			lanes = append(lanes, count)
		}
	}
	return lanes
}

// Open verifies that the relay at hop signed the manifest, and parses it. It returns [signing.ErrSigner] if the
// signature is not valid. It does not check the content; see [Batch.Check].
func (s *SignedManifest) Open(t *task.Task, hop int) (*Manifest, error) {
	if hop < 0 || hop >= len(t.Relays) {
		return nil, fmt.Errorf("the task has no relay at hop %d", hop)
	}
	if !signing.Verify(t.Relays[hop].SignKey[:], signing.Manifest, s.Manifest, s.Signature) {
		return nil, signing.ErrSigner
	}
	return readManifest(s.Manifest, t.Slots.Lanes)
}

// Check verifies a batch that claims to come from relay c.Hop, for this task, epoch and number. It checks the
// signatures of the whole chain of manifests, that the counts add up, and the hash and sizes of the ciphertexts. It
// returns the chain of manifests, from the first relay to this hop. [CheckCounts] decides whether the counts suffice
// for a release.
func (b *Batch) Check(t *task.Task, c Context, seq uint64) ([]Manifest, error) {
	chain, err := checkChain(t, c, seq, b.Signed())
	if err != nil {
		return nil, err
	}
	last := &chain[len(chain)-1]
	if !bytes.Equal(hashLanes(b.Ciphertexts), last.Ciphertexts) {
		return nil, fmt.Errorf("couldn't accept batch %d of hop %d: %w", seq, c.Hop, ErrCiphertexts)
	}
	layout, err := NewLayout(t)
	if err != nil {
		return nil, err
	}
	if why := checkSlots(last, b.Ciphertexts, layout.SlotSize(c.Hop+1)); why != "" {
		return nil, fmt.Errorf("couldn't accept batch %d of hop %d: %s", seq, c.Hop, why)
	}
	return chain, nil
}

// checkSlots returns what is wrong with the number and sizes of a batch's slots, or "".
func checkSlots(m *Manifest, lanes Lanes, size int) string {
	if len(lanes) != len(m.Lanes) {
		return fmt.Sprintf("%d lanes, want %d", len(lanes), len(m.Lanes))
	}
	for lane, slots := range lanes {
		if uint64(len(slots)) != m.Lanes[lane].Out {
			return fmt.Sprintf("%d slots in lane %d, manifest says %d", len(slots), lane, m.Lanes[lane].Out)
		}
		for _, slot := range slots {
			if len(slot) != size {
				return fmt.Sprintf("a slot of %d bytes, want %d", len(slot), size)
			}
		}
	}
	return ""
}

// checkChain verifies a signed manifest of hop c.Hop and the manifests of all earlier hops in it. It returns the chain.
func checkChain(t *task.Task, c Context, seq uint64, s *SignedManifest) ([]Manifest, error) {
	refuse := func(kind error, why string) ([]Manifest, error) {
		return nil, &fault{fmt.Errorf("couldn't accept batch %d of hop %d: %s", seq, c.Hop, why), kind}
	}
	fail := func(why string) ([]Manifest, error) { return refuse(errContext, why) }
	m, err := s.Open(t, c.Hop)
	if err != nil {
		return nil, fmt.Errorf("couldn't accept batch %d of hop %d: %w", seq, c.Hop, err)
	}
	switch {
	case m.Label != manifestLabel || m.Version != task.Version:
		return fail("not a manifest of this version")
	case string(m.TaskID) != string(c.TaskID[:]):
		return fail("made for another task")
	case m.Epoch != c.Epoch:
		return fail(fmt.Sprintf("made for epoch %d, want %d", m.Epoch, c.Epoch))
	case m.Hop != uint64(c.Hop) || m.Seq != seq:
		return fail(fmt.Sprintf("its manifest says batch %d of hop %d", m.Seq, m.Hop))
	case uint64(len(m.Lanes)) != t.Slots.Lanes:
		return fail(fmt.Sprintf("%d lanes, want %d", len(m.Lanes), t.Slots.Lanes))
	case !t.HasBatch(seq):
		return refuse(ErrCounts, fmt.Sprintf("the task has %d batches in an epoch", t.MostBatches()))
	case len(m.Ciphertexts) != sha256.Size:
		return fail("no hash of its ciphertexts")
	case (c.Hop == 0) != (len(m.Source) == 0):
		return refuse(ErrChain, "its chain of manifests does not reach back to the first relay")
	}
	for lane, n := range m.Lanes {
		if why := cmp.Or(n.check(t, 1), n.checkLeast(t), n.checkMost(t, c.Hop)); why != "" {
			return refuse(ErrCounts, fmt.Sprintf("lane %d %s", lane, why))
		}
	}
	if c.Hop > 0 {
		return checkSource(t, c, seq, *m)
	}
	if m.Submissions > 1<<32-1 {
		return refuse(ErrCounts, fmt.Sprintf("%d submissions, want below 2^32", m.Submissions))
	}
	if why := checkIn(t, m.Submissions, m.Lanes); why != "" {
		return refuse(ErrCounts, why)
	}
	return []Manifest{*m}, nil
}

// maxCount is the limit for counts in manifests: the sum of four counts cannot overflow.
const maxCount = 1 << 53

// check returns what is wrong with a lane's counts, or "". The counts are of one batch, or sums over a number of
// batches.
func (n LaneCount) check(t *task.Task, batches uint64) string {
	if max(n.In, n.Added, n.Out, n.Dropped) >= maxCount || n.In+n.Added != n.Out+n.Dropped {
		return fmt.Sprintf("does not add up: %d in, %d added, %d out, %d dropped", n.In, n.Added, n.Out, n.Dropped)
	}
	if n.Added == 0 {
		return ""
	}
	if t.Noise == nil {
		return fmt.Sprintf("has %d slots added, and the task has no noise", n.Added)
	}
	if _, most := t.Noise.Support(); most == 0 || (n.Added-1)/most >= batches { // not most·batches, which may overflow
		return fmt.Sprintf("has %d slots added: want at most %d in each of %d batches by the task's noise", n.Added,
			most, batches)
	}
	return ""
}

// checkLeast returns what is wrong with the number of dummies in a lane of one batch: too few, by the task's noise. A
// destroyed or empty batch needs none.
func (n LaneCount) checkLeast(t *task.Task) string {
	if t.Noise == nil || n.Out == 0 && n.Added == 0 {
		return ""
	}
	if least, _ := t.Noise.Support(); n.Added < least {
		return fmt.Sprintf("has %d slots added: want at least %d by the task's noise", n.Added, least)
	}
	return ""
}

// checkMost returns what is wrong with the number of slots in a lane that the relay at hop passes on: too many. A
// reader checks this before it allocates memory for their hashes.
func (n LaneCount) checkMost(t *task.Task, hop int) string {
	if most := MaxLane(t, hop); n.Out > most {
		return fmt.Sprintf("passes on %d slots: want at most %d", n.Out, most)
	}
	return ""
}

// checkIn returns what is wrong with the first relay's counts of received slots. Under padding full, each submission
// has PerLane slots in every lane; under padding none, it has 1 to PerLane.
func checkIn(t *task.Task, submissions uint64, lanes []LaneCount) string {
	most := submissions * t.Slots.PerLane
	least := most
	if t.Slots.Padding == task.PaddingNone {
		least = submissions
	}
	for lane, n := range lanes {
		if n.In < least || n.In > most {
			return fmt.Sprintf("%d slots into lane %d from %d submissions, want %d to %d", n.In, lane,
				submissions, least, most)
		}
	}
	return ""
}

// checkSource verifies that manifest m continues the chain of manifests in m.Source, and returns the chain with m at
// its end.
func checkSource(t *task.Task, c Context, seq uint64, m Manifest) ([]Manifest, error) {
	source, err := ParseSigned(m.Source)
	if err != nil {
		return nil, &fault{err, ErrChain}
	}
	previous := c
	previous.Hop--
	chain, err := checkChain(t, previous, seq, source)
	if err != nil && !errors.Is(err, ErrCounts) {
		return nil, &fault{err, ErrChain}
	}
	if err != nil {
		return nil, err
	}
	before := chain[len(chain)-1]
	if before.Submissions != m.Submissions {
		return nil, &fault{fmt.Errorf("couldn't accept batch %d of hop %d: %d submissions, hop %d said %d",
			seq, c.Hop, m.Submissions, previous.Hop, before.Submissions), ErrCounts}
	}
	for lane, n := range m.Lanes {
		if n.In != before.Lanes[lane].Out {
			return nil, &fault{fmt.Errorf("couldn't accept batch %d of hop %d: %d slots into lane %d, hop %d sent %d",
				seq, c.Hop, n.In, lane, previous.Hop, before.Lanes[lane].Out), ErrCounts}
		}
	}
	return append(chain, m), nil
}

// Last reports whether a batch is the last of its epoch; m is its manifest of hop 0. The last batch has fewer than n
// submissions, or was destroyed. If relays add noise to every batch, a batch is also the last if the first relay passed
// on fewer than n client slots, whatever number it claims to have received. Slots that later relays drop do not count:
// a client can send slots that only a later relay can recognize as invalid.
func (m *Manifest) Last(t *task.Task) bool {
	if t.Noise == nil {
		return m.Submissions < t.Batch.Size || m.Destroyed()
	}
	slots := uint64(0)
	for _, lane := range m.Lanes { // a task with noise has one lane
		slots += lane.Out - min(lane.Out, lane.Added)
	}
	return min(m.Submissions, slots) < t.Batch.Size
}

// DestroyedAllowance is how many more destroyed than released batches an epoch may have. Each takes one manifest on
// disk, of at most 512 bytes and 37 bytes per lane for each hop up to its relay: see [MaxManifest].
const DestroyedAllowance = 1024

// TooManyDestroyed reports whether an epoch has more destroyed batches than allowed. Then a hop must accept no further
// one. There are two possible causes. An earlier relay makes destroyed batches without end. Or clients have destroyed
// DestroyedAllowance + 1 more batches than were released, with more than n − n_min invalid reports in each.
func TooManyDestroyed(released, destroyed uint64) bool {
	return destroyed > released+DestroyedAllowance
}

// HasMinClients reports whether a batch with this many valid slots per lane can contain n_min honest clients. The batch
// must come from at least n submissions. In every lane, n_min·B valid slots (n_min under padding none) must remain
// after subtracting the dummies of all relays. B is Slots.PerLane.
func HasMinClients(t *task.Task, chain []Manifest, valid []uint64) bool {
	least := t.Batch.Min
	if t.Slots.Padding == task.PaddingFull {
		least *= t.Slots.PerLane
	}
	for lane, slots := range valid {
		added := uint64(0)
		for _, m := range chain {
			added += m.Lanes[lane].Added
		}
		if slots < added || slots-added < least {
			return false
		}
	}
	return chain[0].Submissions >= t.Batch.Size
}

// CheckCounts returns an error unless a batch of this many submissions and valid slots per lane may be released. The
// batch needs n submissions, and in every lane n_min·B valid slots (n_min under padding none; B is Slots.PerLane). A
// lane may have at most [task.Task.MostSlots] slots. Every relay and the verifier apply these rules as if all other
// parties were malicious. A claim that needs no other honest client has no such rule: the relays' noise hides a single
// client.
func CheckCounts(t *task.Task, submissions uint64, valid []uint64) error {
	if t.Claim.Assumption == task.NoneHonest {
		return nil
	}
	if submissions < t.Batch.Size {
		return fmt.Errorf("couldn't release a batch of %d submissions: want %d", submissions, t.Batch.Size)
	}
	if uint64(len(valid)) != t.Slots.Lanes {
		return fmt.Errorf("couldn't release a batch: counts for %d lanes, want %d", len(valid), t.Slots.Lanes)
	}
	least := t.Batch.Min
	if t.Slots.Padding == task.PaddingFull {
		least *= t.Slots.PerLane
	}
	for lane, n := range valid {
		if n < least {
			return fmt.Errorf("couldn't release a batch with %d valid slots in lane %d: want %d", n, lane, least)
		}
		if most := t.MostSlots(); n > most {
			return fmt.Errorf("couldn't release a batch with %d slots in lane %d: want at most %d", n, lane, most)
		}
	}
	return nil
}
