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

// manifestLabel opens every manifest.
const manifestLabel = "doona-manifest"

// Manifest is what a relay signs about a batch: counts per lane and hashes, no reasons and no
// times finer than the epoch. Source holds the signed manifest of the batch it was made from,
// so a batch carries its whole chain back to the first relay.
type Manifest struct {
	Label       string
	Version     uint64
	TaskID      []byte      // 32 bytes.
	Epoch       uint64      // Epoch of every slot in the batch.
	Hop         uint64      // The relay that made the batch.
	Seq         uint64      // Number of the batch within the epoch, from 0; the same at every hop.
	Submissions uint64      // Clients' submissions the batch was made from.
	Lanes       []LaneCount // Slots per lane.
	Ciphertexts []byte      // Hash of the numbers of slots and of the hashes of their chunks, 32 bytes.
	Source      []byte      // [SignedManifest] of the previous hop; empty at the first.
}

// LaneCount counts slots of one lane: In + Added = Out + Dropped. Added are a relay's own dummies, 0
// unless the task has noise.
type LaneCount struct {
	In, Added, Out, Dropped uint64
}

// MaxManifest returns the most bytes that a manifest of the relay at hop takes, with those of all hops before in it.
// For each, 512 is more than what has one size takes: the label, the version, two hashes, four numbers, the heads and
// the signature. Below 8·(512 + 65535·37), some 20 million, by the limits of tasks.
func MaxManifest(t *task.Task, hop int) int64 {
	return int64(hop+1) * (512 + int64(t.Slots.Lanes)*(1+4*9)) // four counts of at most 9 bytes per lane
}

// MaxLane returns the most slots that a lane of a batch of the relay at hop has: those of Batch.Size clients, and what
// every relay so far may have added. Below 2³² + 8·2³⁶ by the limits of tasks.
func MaxLane(t *task.Task, hop int) uint64 {
	slots := t.Batch.Size * t.Slots.PerLane
	if t.Noise != nil {
		_, most := t.Noise.Support()
		slots += uint64(hop+1) * most
	}
	return slots
}

// SignedManifest is msgpack [manifest, signature].
type SignedManifest struct {
	Manifest  []byte
	Signature []byte
}

// Batch is a shuffled batch in memory, one list of ciphertexts per lane. A destroyed batch has none. Its
// form between hops and in .batch files is read and written by chunks: [BatchReader], [Batch.Write].
type Batch struct {
	Manifest    []byte
	Signature   []byte
	Ciphertexts Lanes
}

// Lanes are the ciphertexts of a batch or of one client's slots: Lanes[l][i] is number i of lane l.
type Lanes [][][]byte

// Destroyed says whether the batch was withheld: nothing left the relay.
func (m *Manifest) Destroyed() bool {
	for _, lane := range m.Lanes {
		if lane.Out > 0 {
			return false
		}
	}
	return true
}

// BatchDraft is what a relay says of a batch that it makes: where it belongs, and the counts of its manifest.
type BatchDraft struct {
	Context                     // of the relay that makes it
	Seq         uint64          // its number within the epoch
	Submissions uint64          // clients' submissions that it is made from
	In          []uint64        // slots that came in, by lane
	Added       []uint64        // of the relay's own dummies among the ciphertexts, by lane; nil for none
	Source      *SignedManifest // of the batch that it is made from; nil at the first relay
}

// NewBatch signs a batch: lanes holds the ciphertexts for the next hop, already permuted (nil for
// a destroyed batch).
func NewBatch(key ed25519.PrivateKey, d BatchDraft, lanes Lanes) (*Batch, error) {
	out := make(Lanes, len(d.In)) // with empty lists for nil ones, which have no encoding
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

// counts returns a batch's counts with so many slots out of each lane.
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

// sign signs the manifest of a batch with some counts, of which ciphertexts is the hash.
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

// Header returns the batch's manifest as it stands, before any check: enough to know which epoch
// and number it claims.
func (b *Batch) Header() (*Manifest, error) {
	var m Manifest
	if err := codec.Unmarshal(b.Manifest, &m); err != nil {
		return nil, err
	}
	return &m, nil
}

// ErrCiphertexts is returned where a batch's ciphertexts are not those its manifest was signed
// for: its maker or someone on the way changed them. A batch of the same number may still come
// unchanged.
var ErrCiphertexts = errors.New("its ciphertexts are not those of the manifest")

// What is wrong with a chain whose last manifest is signed: compare with errors.Is. Other errors of a
// chain are [signing.ErrSigner], or of a manifest that is another's or of another place.
var (
	ErrCounts = errors.New("its counts do not add up")
	ErrChain  = errors.New("its chain of manifests is broken") // A manifest of an earlier hop, or its link.
	errPlace  = errors.New("it is of another task or place")
)

// fault is an error of a kind: its text says more than the kind does.
type fault struct {
	error
	kind error
}

func (f *fault) Unwrap() []error { return []error{f.kind, f.error} }

// Check verifies a signed manifest of hop c.Hop, of this number, and, through its sources, of all hops
// before, as [Batch.Check] does. It returns the chain.
func (s *SignedManifest) Check(t *task.Task, c Context, seq uint64) ([]Manifest, error) {
	return checkChain(t, c, seq, s)
}

// Bytes returns the msgpack form.
func (s *SignedManifest) Bytes() ([]byte, error) { return codec.Marshal(s) }

// ParseSigned reads the msgpack form without checking it; see [SignedManifest.Check]. What it returns is part of in.
func ParseSigned(in []byte) (*SignedManifest, error) {
	v := codec.NewView(in)
	v.ArrayOf(2)
	s := &SignedManifest{v.Bytes(), v.Bytes()}
	if err := v.End(); err != nil {
		return nil, fmt.Errorf("couldn't decode a signed manifest: %w", err)
	}
	return s, nil
}

// readManifest reads a manifest of a task with so many lanes. Of more it keeps one, which shows that they are too many.
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

// readLanes reads the counts of lanes, and keeps at most one more than want.
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

// Open verifies that the relay at hop signed the manifest, else [signing.ErrSigner], and parses it. It
// does not check what the manifest says; see [Batch.Check].
func (s *SignedManifest) Open(t *task.Task, hop int) (*Manifest, error) {
	if hop < 0 || hop >= len(t.Relays) {
		return nil, fmt.Errorf("the task has no relay at hop %d", hop)
	}
	if !signing.Verify(t.Relays[hop].SignKey[:], signing.Manifest, s.Manifest, s.Signature) {
		return nil, signing.ErrSigner
	}
	return readManifest(s.Manifest, t.Slots.Lanes)
}

// Check verifies a batch that relay hop is said to have made for a task, epoch and number: the
// signatures of the whole chain, the conservation of counts, the hash and sizes of the
// ciphertexts. It returns the chain of manifests from the first relay to this one. It does not
// judge whether the counts suffice: [CheckCounts].
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

// checkSlots says what is wrong with the numbers and sizes of a batch's slots.
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

// checkChain verifies a signed manifest of hop c.Hop and, through its sources, of all hops before.
func checkChain(t *task.Task, c Context, seq uint64, s *SignedManifest) ([]Manifest, error) {
	refuse := func(kind error, why string) ([]Manifest, error) {
		return nil, &fault{fmt.Errorf("couldn't accept batch %d of hop %d: %s", seq, c.Hop, why), kind}
	}
	fail := func(why string) ([]Manifest, error) { return refuse(errPlace, why) }
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
		if why := cmp.Or(n.check(t, 1), n.checkLeast(t)); why != "" {
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

// maxCount bounds the counts of manifests, so that sums of four do not overflow.
const maxCount = 1 << 53

// check says what is wrong with a lane's counts, in one batch or in several together.
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
	if _, most := t.Noise.Support(); most == 0 || (n.Added-1)/most >= batches { // their product may overflow
		return fmt.Sprintf("has %d slots added: want at most %d in each of %d batches by the task's noise", n.Added,
			most, batches)
	}
	return ""
}

// checkLeast says what is wrong with what was added in a lane to one batch, unless it was destroyed or empty.
func (n LaneCount) checkLeast(t *task.Task) string {
	if t.Noise == nil || n.Out == 0 && n.Added == 0 {
		return ""
	}
	if least, _ := t.Noise.Support(); n.Added < least {
		return fmt.Sprintf("has %d slots added: want at least %d by the task's noise", n.Added, least)
	}
	return ""
}

// checkIn says what is wrong with a first relay's counts of slots that came in: each of its submissions
// has PerLane in every lane, or 1 to PerLane under padding none.
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

// checkSource verifies that m continues the chain of its source.
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

// Last says by the manifest of hop 0 whether a batch is the last of its epoch: one of fewer than n submissions, or
// that was destroyed. Where relays add noise to every batch, it is also one of fewer than n slots of clients out
// of the first relay, whatever it says came in. What later relays drop does not count: a client can send what only
// they see is bad.
func (m *Manifest) Last(t *task.Task) bool {
	if t.Noise == nil {
		return m.Submissions < t.Batch.Size || m.Destroyed()
	}
	slots := uint64(0)
	for _, lane := range m.Lanes { // one
		slots += lane.Out - min(lane.Out, lane.Added)
	}
	return min(m.Submissions, slots) < t.Batch.Size
}

// DestroyedAllowance is how many batches of an epoch may be destroyed beyond as many as were released. Each costs a disk
// a manifest, of at most 512 bytes and 37 a lane for each hop so far: see [MaxManifest].
const DestroyedAllowance = 1024

// TooManyDestroyed says whether so many of an epoch's batches were destroyed that no further one is to be taken: a hop before
// makes them without end, or clients have spoilt DestroyedAllowance + 1 more than were released so far, with more than
// n − n_min bad reports in each.
func TooManyDestroyed(released, destroyed uint64) bool {
	return destroyed > released+DestroyedAllowance
}

// HasMinClients says whether a batch with this many valid slots per lane can have n_min honest clients: it was made from n
// submissions or more, and n_min·B of the slots in every lane (n_min under padding none) are not what relays added.
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

// CheckCounts says whether a batch of this many submissions and valid slots per lane may be
// released: at least n submissions, and in every lane n_min·B valid slots (n_min under padding
// none). Every relay and the verifier apply it as if all others were malicious. The error says
// what is missing. Where no other client need be honest, nothing is: noise by relays hides one.
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
	}
	return nil
}
