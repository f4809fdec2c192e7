package onion

import (
	"crypto/ed25519"
	"errors"
	"fmt"
	"slices"

	"github.com/doona-dp/doona/wire/codec"
	"github.com/doona-dp/doona/wire/signing"
	"github.com/doona-dp/doona/wire/task"
)

// endLabel is the first field of every end.
const endLabel = "doona-end"

// End is what a relay signs when it will make no further batch of an epoch: the number of its batches, and the sums of
// their manifests' counts. Only that relay can end the epoch for the next hop.
type End struct {
	Label       string
	Version     uint64
	TaskID      []byte // 32 bytes.
	Epoch       uint64
	Hop         uint64
	Batches     uint64      // Number of batches; the highest batch number plus one.
	Submissions uint64      // Sum over all batches.
	Lanes       []LaneCount // Sums over all batches.
	Source      []byte      // [SignedEnd] of the upstream relay. Empty at the first relay, or if it never arrived.
}

// SignedEnd is an end in its encoded form, with its relay's signature: msgpack [end, signature].
type SignedEnd struct {
	End       []byte
	Signature []byte
}

// NewEnd signs the end of an epoch. batches holds the relay's own manifests, one for each batch. source is the upstream
// relay's end; nil at the first relay, or if the end never arrived.
func NewEnd(key ed25519.PrivateKey, t *task.Task, c Context, batches []Manifest,
	source *SignedEnd) (*SignedEnd, error) {
	e := End{Label: endLabel, Version: task.Version, TaskID: c.TaskID[:], Epoch: c.Epoch, Hop: uint64(c.Hop),
		Batches: uint64(len(batches)), Lanes: make([]LaneCount, t.Slots.Lanes), Source: []byte{}}
	e.addAll(batches)
	var err error
	if source != nil {
		if e.Source, err = codec.Marshal(source); err != nil {
			return nil, err
		}
	}
	body, err := codec.Marshal(&e)
	if err != nil {
		return nil, err
	}
	return &SignedEnd{body, signing.Sign(key, signing.End, body)}, nil
}

func (e *End) addAll(batches []Manifest) {
	for _, m := range batches {
		e.Submissions += m.Submissions
		for lane := range min(len(e.Lanes), len(m.Lanes)) {
			e.Lanes[lane].add(m.Lanes[lane])
		}
	}
}

func (n *LaneCount) add(more LaneCount) {
	n.In += more.In
	n.Added += more.Added
	n.Out += more.Out
	n.Dropped += more.Dropped
}

// Bytes returns the msgpack form.
func (s *SignedEnd) Bytes() ([]byte, error) { return codec.Marshal(s) }

// ParseEnd parses a signed end from msgpack without checking it; see [SignedEnd.Check]. The result shares memory with
// in.
func ParseEnd(in []byte) (*SignedEnd, error) {
	v := codec.NewView(in)
	v.ArrayOf(2)
	s := &SignedEnd{v.Bytes(), v.Bytes()}
	if err := v.End(); err != nil {
		return nil, fmt.Errorf("couldn't decode a signed end: %w", err)
	}
	return s, nil
}

// readEnd parses an end of a task with this many lanes. Like readManifest, it keeps one surplus lane at most.
func readEnd(in []byte, lanes uint64) (*End, error) {
	v := codec.NewView(in)
	v.ArrayOf(9)
	e := &End{Label: string(v.Text()), Version: v.Uint(), TaskID: v.Bytes(), Epoch: v.Uint(), Hop: v.Uint(),
		Batches: v.Uint(), Submissions: v.Uint(), Lanes: readLanes(v, lanes), Source: v.Bytes()}
	if err := v.End(); err != nil {
		return nil, fmt.Errorf("couldn't decode an end: %w", err)
	}
	return e, nil
}

// Check verifies the end that relay c.Hop is said to have signed, and the ends of earlier hops in it. It returns these
// ends in order, with this relay's end last. The first is the first relay's, or the end of a relay that stopped waiting
// for its upstream relay's end.
func (s *SignedEnd) Check(t *task.Task, c Context) ([]End, error) {
	fail := func(why string) ([]End, error) {
		return nil, fmt.Errorf("couldn't accept the end of epoch %d of hop %d: %s", c.Epoch, c.Hop, why)
	}
	e, err := s.open(t, c)
	if err != nil {
		return nil, fmt.Errorf("couldn't accept the end of epoch %d of hop %d: %w", c.Epoch, c.Hop, err)
	}
	for lane, n := range e.Lanes {
		if why := n.check(t, e.Batches); why != "" {
			return fail(fmt.Sprintf("lane %d %s", lane, why))
		}
	}
	if why := e.checkBatches(t); why != "" {
		return fail(why)
	}
	if len(e.Source) == 0 {
		return []End{*e}, nil
	}
	source, err := ParseEnd(e.Source)
	if err != nil {
		return nil, err
	}
	c.Hop--
	chain, err := source.Check(t, c)
	if err != nil {
		return nil, err
	}
	before := chain[len(chain)-1]
	if before.Batches != e.Batches || before.Submissions != e.Submissions {
		return fail(fmt.Sprintf("%d batches of %d submissions, hop %d said %d of %d", e.Batches, e.Submissions, c.Hop,
			before.Batches, before.Submissions))
	}
	for lane, n := range e.Lanes {
		if n.In != before.Lanes[lane].Out {
			return fail(fmt.Sprintf("%d slots into lane %d, hop %d sent %d", n.In, lane, c.Hop, before.Lanes[lane].Out))
		}
	}
	return append(chain, *e), nil
}

// open verifies the signature, and that the end is for the requested task, epoch and hop. It returns the parsed end.
func (s *SignedEnd) open(t *task.Task, c Context) (*End, error) {
	if c.Hop < 0 || c.Hop >= len(t.Relays) {
		return nil, fmt.Errorf("the task has no relay at hop %d", c.Hop)
	}
	if !signing.Verify(t.Relays[c.Hop].SignKey[:], signing.End, s.End, s.Signature) {
		return nil, signing.ErrSigner
	}
	e, err := readEnd(s.End, t.Slots.Lanes)
	if err != nil {
		return nil, err
	}
	switch {
	case e.Label != endLabel || e.Version != task.Version:
		return nil, errors.New("not an end of this version")
	case string(e.TaskID) != string(c.TaskID[:]) || e.Epoch != c.Epoch || e.Hop != uint64(c.Hop):
		return nil, fmt.Errorf("it is of epoch %d of hop %d, or of another task", e.Epoch, e.Hop)
	case uint64(len(e.Lanes)) != t.Slots.Lanes:
		return nil, fmt.Errorf("%d lanes, want %d", len(e.Lanes), t.Slots.Lanes)
	case c.Hop == 0 && len(e.Source) > 0:
		return nil, errors.New("a source at the first relay")
	}
	return e, nil
}

// checkBatches returns what is wrong with the numbers of batches and submissions, or "".
func (e *End) checkBatches(t *task.Task) string {
	if e.Batches >= maxCount || e.Submissions >= maxCount/t.Slots.PerLane {
		return fmt.Sprintf("%d batches of %d submissions: too many", e.Batches, e.Submissions)
	}
	if e.Batches > 0 && !t.HasBatch(e.Batches-1) {
		return fmt.Sprintf("%d batches: the task has %d in an epoch", e.Batches, t.MostBatches())
	}
	if e.Hop > 0 {
		if e.Batches == 0 && e.slots() > 0 {
			return "slots in no batches"
		}
		return ""
	}
	if e.Batches == 0 && e.Submissions > 0 {
		return fmt.Sprintf("%d submissions in no batches", e.Submissions)
	}
	return checkIn(t, e.Submissions, e.Lanes)
}

// slots returns the number of slots that the relay received or added as dummies in the epoch.
func (e *End) slots() (sum uint64) {
	for _, n := range e.Lanes {
		sum += n.In + n.Added
	}
	return sum
}

// MatchesBatches reports whether the end states the number and the summed counts of these batches of the same relay.
func (e *End) MatchesBatches(batches []Manifest) bool {
	sum := End{Lanes: make([]LaneCount, len(e.Lanes))}
	sum.addAll(batches)
	return e.Batches == uint64(len(batches)) && e.Submissions == sum.Submissions && slices.Equal(e.Lanes, sum.Lanes)
}

// MatchesTaken reports whether taken, the manifests of the next hop, received exactly what this end says the relay
// passed on.
func (e *End) MatchesTaken(taken []Manifest) bool {
	sum := End{Lanes: make([]LaneCount, len(e.Lanes))}
	sum.addAll(taken)
	for lane, n := range sum.Lanes {
		if n.In != e.Lanes[lane].Out {
			return false
		}
	}
	return e.Batches == uint64(len(taken)) && e.Submissions == sum.Submissions
}
