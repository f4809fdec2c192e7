package onion_test

import (
	"bytes"
	"crypto/ed25519"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/doona-dp/doona/internal/testing/fixture"
	"github.com/doona-dp/doona/randomizer"
	"github.com/doona-dp/doona/wire/codec"
	"github.com/doona-dp/doona/wire/onion"
	"github.com/doona-dp/doona/wire/task"
)

var kems = []task.KEM{task.KEMX25519, task.KEMMLKEM768X25519, task.KEMMLKEM768}

// world is a task with the private keys of all its parties.
type world struct {
	*task.Task
	id    task.ID
	sign  []ed25519.PrivateKey
	keys  [][]*onion.PrivateKey // by hop and epoch
	lists []*onion.SignedKeyList
}

const epochs = 2

// newWorld returns a task of n = 3 submissions with this number of relays. change may be nil; it edits the task before
// newWorld computes the task's id.
func newWorld(t testing.TB, kem task.KEM, relays int, change func(*task.Task)) *world {
	t.Helper()
	w := &world{Task: &task.Task{
		Name: "t", Query: task.Sum, Protocol: "p", Rule: "r", KEM: kem,
		Input:   task.Input{Lo: randomizer.NewRational(0, 1), Hi: randomizer.NewRational(1, 1)},
		Claim:   task.NewClaim("1", "1e-6"),
		Batch:   task.Batch{Size: 3, Honest: randomizer.NewRational(2, 3), Min: 2},
		Slots:   task.Slots{Padding: task.PaddingFull, Lanes: 2, PerLane: 3, MessageBytes: 4},
		Epochs:  task.Epochs{Start: 1, Length: 60, Count: epochs},
		Clients: task.Clients{Kind: task.ClientAddress, Quota: 1},
	}}
	if change != nil {
		change(w.Task)
	}
	for hop := range relays + 1 {
		seed := sha256.Sum256(fmt.Append(nil, "sign", hop))
		w.sign = append(w.sign, ed25519.NewKeyFromSeed(seed[:]))
		w.keys = append(w.keys, nil)
		for range w.Epochs.Count {
			key, err := onion.GenerateKey(kem)
			require.NoError(t, err)
			w.keys[hop] = append(w.keys[hop], key)
		}
		list, err := onion.NewSignedKeyList(kem, w.keys[hop], w.sign[hop])
		require.NoError(t, err)
		w.lists = append(w.lists, list)
		party := task.Party{URL: "https://relay.example",
			SignKey: task.SignKey(w.sign[hop].Public().(ed25519.PublicKey)), KeyList: list.Hash()}
		if hop < relays {
			w.Relays = append(w.Relays, party)
		} else {
			w.Verifier = party
		}
	}
	require.NoError(t, w.Validate())
	w.id = sha256.Sum256(w.Canonical())
	return w
}

func (w *world) sealer(t testing.TB) *onion.Sealer {
	t.Helper()
	s, err := onion.NewSealer(w.Task, w.id, w.lists)
	require.NoError(t, err)
	return s
}

func (w *world) opener(t testing.TB, hop int, epoch uint64) *onion.Opener {
	t.Helper()
	o, err := onion.NewOpener(w.Task, w.id, hop, epoch, w.keys[hop][epoch])
	require.NoError(t, err)
	return o
}

// messages returns lanes of perLane messages each. Every third message is a cover.
func (w *world) messages(perLane int) [][]task.Message {
	lanes := make([][]task.Message, w.Slots.Lanes)
	for lane := range lanes {
		for i := range perLane {
			m := task.Message{Cover: i%3 == 2}
			if !m.Cover {
				m.Body = bytes.Repeat([]byte{byte(16*lane + i)}, int(w.Slots.MessageBytes))
			}
			lanes[lane] = append(lanes[lane], m)
		}
	}
	return lanes
}

// carry opens a submission at every hop and returns the messages that the verifier finds, by lane. It fails unless all
// tags are new and the slots at each hop have the layout's size.
func (w *world) carry(t *testing.T, epoch uint64, body []byte) [][]task.Message {
	t.Helper()
	layout, err := onion.NewLayout(w.Task)
	require.NoError(t, err)
	envelope, err := w.opener(t, 0, epoch).OpenEnvelope(body)
	require.NoError(t, err)
	tags := map[[onion.TagSize]byte]bool{envelope.Tag: true, {}: true}
	slots := envelope.Lanes
	for hop := 1; hop < w.VerifierHop(); hop++ {
		opener := w.opener(t, hop, epoch)
		for lane := range slots {
			for i, slot := range slots[lane] {
				require.Len(t, slot, layout.SlotSize(hop))
				tag, next, err := opener.OpenSlot(lane, slot)
				require.NoError(t, err)
				require.False(t, tags[tag], "tag repeats")
				tags[tag], slots[lane][i] = true, next
			}
		}
	}
	out := make([][]task.Message, len(slots))
	verifier := w.opener(t, w.VerifierHop(), epoch)
	for lane := range slots {
		for _, slot := range slots[lane] {
			require.Len(t, slot, layout.SlotSize(w.VerifierHop()))
			tag, m, err := verifier.OpenMessage(lane, slot)
			require.NoError(t, err)
			require.False(t, tags[tag], "tag repeats")
			tags[tag] = true
			out[lane] = append(out[lane], m)
		}
	}
	return out
}

func TestRoundTrip(t *testing.T) {
	for _, kem := range kems {
		for relays := 1; relays <= 3; relays++ {
			w := newWorld(t, kem, relays, nil)
			sent := w.messages(3)
			body, err := w.sealer(t).Seal(1, sent)
			require.NoError(t, err)
			got := w.carry(t, 1, body)
			for lane := range sent {
				for i, m := range sent[lane] {
					if m.Cover {
						m.Body = make([]byte, w.Slots.MessageBytes)
					}
					require.Equal(t, m, got[lane][i], "%s, %d relays, lane %d, slot %d", kem, relays, lane, i)
				}
			}
		}
	}
}

// TestMaxBodyIsExact: under padding full, every submission must have exactly MaxBody bytes, for any mix of messages and
// covers. The cases lie on both sides of every size at which msgpack headers grow. Under padding none, a submission
// with all slots must have MaxBody bytes, and none may be larger.
func TestMaxBodyIsExact(t *testing.T) {
	for _, c := range []struct{ lanes, perLane, bytes uint64 }{
		{1, 1, 1}, {1, 1, 1024}, {1, 15, 100}, {1, 16, 100}, {15, 1, 4}, {16, 1, 4}, {17, 2, 4}, {1, 2, 142},
		{1, 2, 143}, {1, 700, 30}, {3, 300, 1},
	} {
		for relays := 1; relays <= 2; relays++ {
			for _, padding := range []task.Padding{task.PaddingFull, task.PaddingNone} {
				w := newWorld(t, task.KEMMLKEM768, relays, func(t *task.Task) {
					t.Slots = task.Slots{Padding: padding, Lanes: c.lanes, PerLane: c.perLane, MessageBytes: c.bytes}
				})
				sealer := w.sealer(t)
				body, err := sealer.Seal(0, w.messages(int(c.perLane)))
				require.NoError(t, err)
				require.Len(t, body, sealer.MaxBody(), "%+v, %d relays, padding %s", c, relays, padding)
			}
		}
	}
	for _, kem := range kems {
		w := newWorld(t, kem, 2, nil)
		sealer := w.sealer(t)
		for _, covers := range []bool{false, true} {
			lanes := w.messages(3)
			for lane := range lanes {
				for i := range lanes[lane] {
					lanes[lane][i] = task.Message{Cover: covers, Body: make([]byte, 4)}
				}
			}
			body, err := sealer.Seal(0, lanes)
			require.NoError(t, err)
			require.Len(t, body, sealer.MaxBody(), kem)
		}
	}
}

// TestLimitsCostReportsNothing: a cap and a pace are in the task alone. They add no byte to a report.
func TestLimitsCostReportsNothing(t *testing.T) {
	for _, kem := range kems {
		var sizes []int
		for _, limits := range []task.Epochs{{}, {Cap: task.Cap{Reports: 56, Window: 365}},
			{Cap: task.Cap{Reports: 56, Window: 365}, Pace: task.Cap{Reports: 4, Window: 28}}} {
			w := newWorld(t, kem, 2, func(t *task.Task) { t.Epochs.Cap, t.Epochs.Pace = limits.Cap, limits.Pace })
			sealer := w.sealer(t)
			body, err := sealer.Seal(0, w.messages(3))
			require.NoError(t, err)
			sizes = append(sizes, len(body), sealer.MaxBody())
		}
		require.Len(t, slices.Compact(sizes), 1, kem)
	}
}

// TestSizesDoNotOverflow: the sizes of the largest valid task must fit into a msgpack byte string.
func TestSizesDoNotOverflow(t *testing.T) {
	w := newWorld(t, task.KEMMLKEM768X25519, 8, func(t *task.Task) {
		t.Slots = task.Slots{Padding: task.PaddingFull, Lanes: 1, PerLane: 1 << 18, MessageBytes: 1024}
		t.Epochs.Count = 1
	})
	layout, err := onion.NewLayout(w.Task)
	require.NoError(t, err)
	require.Less(t, layout.MaxBody(), 1<<32)
	require.Equal(t, 1<<18, layout.SlotsPerClient())
}

func TestPaddingNone(t *testing.T) {
	w := newWorld(t, task.KEMX25519, 2, func(t *task.Task) { t.Slots.Padding = task.PaddingNone })
	sealer := w.sealer(t)
	for n := 1; n <= 3; n++ {
		body, err := sealer.Seal(0, w.messages(n))
		require.NoError(t, err)
		require.LessOrEqual(t, len(body), sealer.MaxBody())
		require.Len(t, w.carry(t, 0, body)[1], n)
	}
	for _, n := range []int{0, 4} {
		_, err := sealer.Seal(0, w.messages(n))
		require.ErrorContains(t, err, "number of slots", n)
	}
}

func TestSealRejects(t *testing.T) {
	w := newWorld(t, task.KEMX25519, 1, nil)
	sealer := w.sealer(t)
	for name, seal := range map[string]func() ([]byte, error){
		"an epoch after the last": func() ([]byte, error) { return sealer.Seal(epochs, w.messages(3)) },
		"too few lanes":           func() ([]byte, error) { return sealer.Seal(0, w.messages(3)[:1]) },
		"too few slots":           func() ([]byte, error) { return sealer.Seal(0, w.messages(2)) },
		"too many slots":          func() ([]byte, error) { return sealer.Seal(0, w.messages(4)) },
		"a short message": func() ([]byte, error) {
			lanes := w.messages(3)
			lanes[0][0].Body = lanes[0][0].Body[1:]
			return sealer.Seal(0, lanes)
		},
	} {
		_, err := seal()
		require.Error(t, err, name)
	}
	_, err := onion.NewSealer(w.Task, w.id, w.lists[:1])
	require.Error(t, err)
	_, err = onion.NewSealer(w.Task, w.id, []*onion.SignedKeyList{w.lists[1], w.lists[0]})
	require.ErrorContains(t, err, "not the list the task names")
}

// TestContextIsBound: a ciphertext that is sealed for one context must open in no other.
func TestContextIsBound(t *testing.T) {
	for _, kem := range kems {
		key, err := onion.GenerateKey(kem)
		require.NoError(t, err)
		other, err := onion.GenerateKey(kem)
		require.NoError(t, err)
		base := onion.Context{TaskID: task.ID{1}, Epoch: 2, Hop: 3}
		sealed, err := onion.SealFor(key.Public(), base, 4, onion.KindSlot, []byte("slot"))
		require.NoError(t, err)

		open := func(key *onion.PrivateKey, c onion.Context, lane int, kind onion.Kind) error {
			_, err := onion.OpenWith(key, c.Info(key.Public().ID()), onion.AAD(lane, kind), sealed)
			return err
		}
		require.NoError(t, open(key, base, 4, onion.KindSlot))
		task, epoch, hop := base, base, base
		task.TaskID[31]++
		epoch.Epoch++
		hop.Hop++
		for name, err := range map[string]error{
			"task":  open(key, task, 4, onion.KindSlot),
			"epoch": open(key, epoch, 4, onion.KindSlot),
			"hop":   open(key, hop, 4, onion.KindSlot),
			"lane":  open(key, base, 5, onion.KindSlot),
			"kind":  open(key, base, 4, onion.KindEnvelope),
			"key":   open(other, base, 4, onion.KindSlot),
		} {
			require.ErrorIs(t, err, onion.ErrOpen, "%s: another %s", kem, name)
		}
		_, err = onion.OpenWith(key, base.Info(other.Public().ID()), onion.AAD(4, onion.KindSlot), sealed)
		require.ErrorIs(t, err, onion.ErrOpen, "%s: another key id", kem)
	}
}

// TestContextIsBoundOnEveryPath checks the same through the functions that hops call.
func TestContextIsBoundOnEveryPath(t *testing.T) {
	w := newWorld(t, task.KEMX25519, 2, nil)
	body, err := w.sealer(t).Seal(0, w.messages(3))
	require.NoError(t, err)
	opener := func(hop int, epoch uint64, key *onion.PrivateKey, id task.ID) *onion.Opener {
		o, err := onion.NewOpener(w.Task, id, hop, epoch, key)
		require.NoError(t, err)
		return o
	}
	strange := w.id
	strange[0]++
	for name, o := range map[string]*onion.Opener{
		"hop": opener(1, 0, w.keys[0][0], w.id), "epoch": opener(0, 1, w.keys[0][0], w.id),
		"key": opener(0, 0, w.keys[0][1], w.id), "task": opener(0, 0, w.keys[0][0], strange),
	} {
		_, err := o.OpenEnvelope(body)
		require.ErrorIs(t, err, onion.ErrOpen, name)
	}
	envelope, err := w.opener(t, 0, 0).OpenEnvelope(body)
	require.NoError(t, err)
	slot := envelope.Lanes[0][0]
	relay := w.opener(t, 1, 0)
	_, _, err = relay.OpenSlot(1, slot)
	require.ErrorIs(t, err, onion.ErrOpen, "a slot moved to another lane")
	_, _, err = w.opener(t, 2, 0).OpenMessage(0, slot)
	require.ErrorIs(t, err, onion.ErrOpen, "a slot that skips a hop")
	_, next, err := relay.OpenSlot(0, slot)
	require.NoError(t, err)
	_, _, err = relay.OpenSlot(0, next)
	require.ErrorIs(t, err, onion.ErrOpen, "a slot opened twice")
	_, _, err = w.opener(t, 2, 0).OpenMessage(1, next)
	require.ErrorIs(t, err, onion.ErrOpen, "a message moved to another lane")

	_, err = onion.NewOpener(w.Task, w.id, 3, 0, w.keys[0][0])
	require.Error(t, err)
	_, err = onion.NewOpener(w.Task, w.id, -1, 0, w.keys[0][0])
	require.Error(t, err)
	other, err := onion.GenerateKey(task.KEMMLKEM768)
	require.NoError(t, err)
	_, err = onion.NewOpener(w.Task, w.id, 0, 0, other)
	require.ErrorContains(t, err, "kem")
}

// lowOrder returns the points of Curve25519 and its twist that any clamped scalar multiplies to zero
// (cr.yp.to/ecdh.html). They are 0, 1, the two points of order 8, -1, and the values above p that reduce to 0 and 1.
// Each comes with the highest bit, which X25519 ignores, clear and set.
func lowOrder(t *testing.T) (out [][]byte) {
	for _, s := range []string{
		"0000000000000000000000000000000000000000000000000000000000000000",
		"0100000000000000000000000000000000000000000000000000000000000000",
		"e0eb7a7c3b41b8ae1656e3faf19fc46ada098deb9c32b1fd866205165f49b800",
		"5f9c95bca3508c24b1d0b1559c83ef5b04445cc4581c8e86d8224eddd09f1157",
		"ecffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff7f",
		"edffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff7f",
		"eeffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff7f",
	} {
		point, err := hex.DecodeString(s)
		require.NoError(t, err)
		high := bytes.Clone(point)
		high[31] |= 0x80
		out = append(out, point, high)
	}
	return out
}

// TestLowOrderKeyShares: a key share of low order makes the shared secret zeros, which everybody knows. Such a
// ciphertext must not open, although it is correctly encrypted under that secret.
func TestLowOrderKeyShares(t *testing.T) {
	w := newWorld(t, task.KEMX25519, 1, nil)
	public, id := publicKey(t, w.lists[1]), w.keys[1][0].Public().ID()
	info, aad := onion.Context{TaskID: w.id, Hop: 1}.Info(id), onion.AAD(0, onion.KindSlot)
	plain := append(make([]byte, onion.TagSize), 1, 9, 9, 9, 9)
	for _, point := range lowOrder(t) {
		slot := fixture.SealZero(public, point, info, aad, plain)
		_, _, err := w.opener(t, 1, 0).OpenMessage(0, slot)
		require.ErrorIs(t, err, onion.ErrOpen, "share %x", point)

		key, err := onion.ParsePublicKey(task.KEMX25519, point)
		if err == nil {
			_, err = onion.SealFor(key, onion.Context{}, 0, onion.KindSlot, nil)
		}
		require.Error(t, err, "public key %x", point)
	}
	hybrid, err := onion.GenerateKey(task.KEMMLKEM768X25519)
	require.NoError(t, err)
	sealed, err := onion.SealFor(hybrid.Public(), onion.Context{}, 0, onion.KindSlot, nil)
	require.NoError(t, err)
	for _, point := range lowOrder(t) {
		forged := bytes.Clone(sealed)
		copy(forged[1088:], point)
		_, err = onion.OpenWith(hybrid, onion.Context{}.Info(hybrid.Public().ID()), onion.AAD(0, onion.KindSlot),
			forged)
		require.ErrorIs(t, err, onion.ErrOpen, "hybrid share %x", point)
	}
}

// TestSecondImplementation: ciphertexts that the independent second implementation seals must open here, for every KEM.
func TestSecondImplementation(t *testing.T) {
	ids := map[task.KEM]uint16{task.KEMX25519: fixture.X25519, task.KEMMLKEM768: fixture.MLKEM768,
		task.KEMMLKEM768X25519: fixture.MLKEM768X25519}
	for _, kem := range kems {
		w := newWorld(t, kem, 1, nil)
		c := onion.Context{TaskID: w.id, Epoch: 1, Hop: 1}
		plain := append(bytes.Repeat([]byte{7}, onion.TagSize), 1, 1, 2, 3, 4)
		e := fixture.Ephemeral{X25519: bytes.Repeat([]byte{5}, 32), MLKEM: bytes.Repeat([]byte{6}, 32)}
		id := w.keys[1][1].Public().ID()
		info := append([]byte("doona-v1 onion"), w.id[:]...)
		info = append(append(info, 0, 0, 0, 0, 0, 0, 0, 1, 1), id[:]...)
		require.Equal(t, info, c.Info(id))
		slot, err := fixture.Seal(ids[kem], publicKeyOf(t, w.lists[1], 1), e, info, []byte{0, 1, 0}, plain)
		require.NoError(t, err)
		tag, m, err := w.opener(t, 1, 1).OpenMessage(1, slot)
		require.NoError(t, err, kem)
		require.Equal(t, plain[:16], tag[:])
		require.Equal(t, task.Message{Body: []byte{1, 2, 3, 4}}, m)
	}
}

func publicKey(t *testing.T, s *onion.SignedKeyList) []byte { return publicKeyOf(t, s, 0) }

func publicKeyOf(t *testing.T, s *onion.SignedKeyList, epoch int) []byte {
	var list onion.KeyList
	require.NoError(t, codec.Unmarshal(s.List, &list))
	size := len(s.Keys) / int(list.Count)
	return s.Keys[epoch*size : (epoch+1)*size]
}

// bodyHeader returns the offset of the envelope in a submission of fewer than 2^16 bytes.
func bodyHeader(body []byte) int {
	if body[2] == 0xc5 {
		return 5
	}
	return 4
}

// TestRFC9180Vector opens appendix A.1.1.1 of RFC 9180, DHKEM(X25519, HKDF-SHA256), HKDF-SHA256,
// AES-128-GCM, base mode, sequence number 0, with the suite of this package.
func TestRFC9180Vector(t *testing.T) {
	unhex := func(s string) []byte {
		b, err := hex.DecodeString(s)
		require.NoError(t, err)
		return b
	}
	key, err := onion.OwnPrivateKey(task.KEMX25519,
		unhex("4612c550263fc8ad58375df3f557aac531d26850903e55a9f23f21d8534e8ac8"))
	require.NoError(t, err)
	sealed := unhex("37fda3567bdbd628e88668c3c8d7e97d1d1253b6d4ea6d44c150f741f1bf4431" + // enc
		"f938558b5d72f1a23810b4be2ab4f84331acc02fc97babc53a52ae8218a355a96d8770ac83d07bea87e13c512a") // ct
	plain, err := onion.OpenWith(key, unhex("4f6465206f6e2061204772656369616e2055726e"), unhex("436f756e742d30"),
		sealed)
	require.NoError(t, err)
	require.Equal(t, "Beauty is truth, truth beauty", string(plain))
}

// TestEveryByteCounts flips each bit of a submission and of a slot, and shortens and lengthens them. Each result must
// be refused.
func TestEveryByteCounts(t *testing.T) {
	w := newWorld(t, task.KEMX25519, 2, func(t *task.Task) { t.Slots.Lanes, t.Slots.PerLane = 1, 1 })
	body, err := w.sealer(t).Seal(0, w.messages(1))
	require.NoError(t, err)
	first := w.opener(t, 0, 0)
	envelope, err := first.OpenEnvelope(body)
	require.NoError(t, err)
	slot := envelope.Lanes[0][0]
	second := w.opener(t, 1, 0)
	for i := range body {
		for bit := range 8 {
			flipped := bytes.Clone(body)
			flipped[i] ^= 1 << bit
			_, err := first.OpenEnvelope(flipped)
			require.Error(t, err, "body, byte %d, bit %d", i, bit)
		}
		_, err := first.OpenEnvelope(body[:i])
		require.Error(t, err, "%d bytes of a body", i)
	}
	for i := range slot {
		for bit := range 8 {
			flipped := bytes.Clone(slot)
			flipped[i] ^= 1 << bit
			_, _, err := second.OpenSlot(0, flipped)
			require.ErrorIs(t, err, onion.ErrOpen, "slot, byte %d, bit %d", i, bit)
		}
		_, _, err := second.OpenSlot(0, slot[:i])
		require.ErrorIs(t, err, onion.ErrOpen)
	}
	_, err = first.OpenEnvelope(append(bytes.Clone(body), 0))
	require.Error(t, err)
	_, _, err = second.OpenSlot(0, append(bytes.Clone(slot), 0))
	require.ErrorIs(t, err, onion.ErrOpen)
}

// TestContentIsChecked: a client may seal correctly and still send wrong content. The hops must refuse wrong content.
func TestContentIsChecked(t *testing.T) {
	w := newWorld(t, task.KEMX25519, 1, func(t *task.Task) { t.Slots.Padding = task.PaddingNone })
	c := onion.Context{TaskID: w.id}
	relay, verifier := w.opener(t, 0, 0), w.opener(t, 1, 0)
	submit := func(plain []byte) error {
		sealed, err := onion.SealFor(w.keys[0][0].Public(), c, 0, onion.KindEnvelope, plain)
		require.NoError(t, err)
		body, err := onion.MarshalSubmission(sealed)
		require.NoError(t, err)
		_, err = relay.OpenEnvelope(body)
		require.NotErrorIs(t, err, onion.ErrOpen)
		return err
	}
	size := relay.SlotSize(1)
	content := func(tag int, slots ...[]int) []byte { // lists the sizes of the tag and, by lane, of the slots
		out := append([]byte{0x92, 0xc4, byte(tag)}, make([]byte, tag)...)
		out = append(out, 0x90|byte(len(slots)))
		for _, lane := range slots {
			out = append(out, 0x90|byte(len(lane)))
			for _, n := range lane {
				out = append(append(out, 0xc4, byte(n)), make([]byte, n)...)
			}
		}
		return out
	}
	require.NoError(t, submit(content(16, []int{size}, []int{size, size})))
	for name, plain := range map[string][]byte{
		"short tag":       content(15, []int{size}, []int{size}),
		"long tag":        content(17, []int{size}, []int{size}),
		"one lane":        content(16, []int{size}),
		"three lanes":     content(16, []int{size}, []int{size}, []int{size}),
		"an empty lane":   content(16, []int{size}, []int{}),
		"too many slots":  content(16, []int{size}, []int{size, size, size, size}),
		"a short slot":    content(16, []int{size}, []int{size - 1}),
		"a long slot":     content(16, []int{size + 1}, []int{size}),
		"trailing bytes":  append(content(16, []int{size}, []int{size}), 0),
		"a hostile array": {0x92, 0xc4, 0, 0xdd, 0xff, 0xff, 0xff, 0xff},
		"nil lanes":       append(content(16)[:19], 0xc0),
		"empty":           {},
	} {
		require.Error(t, submit(plain), name)
	}

	c.Hop = 1
	message := func(plain []byte) error {
		sealed, err := onion.SealFor(w.keys[1][0].Public(), c, 1, onion.KindSlot, plain)
		require.NoError(t, err)
		_, _, err = verifier.OpenMessage(1, sealed)
		require.NotErrorIs(t, err, onion.ErrOpen)
		return err
	}
	tag := make([]byte, onion.TagSize)
	require.NoError(t, message(append(bytes.Clone(tag), 1, 9, 9, 9, 9)))
	require.NoError(t, message(append(bytes.Clone(tag), 0, 0, 0, 0, 0)))
	for name, tail := range map[string][]byte{
		"short": {1, 9, 9, 9}, "long": {1, 9, 9, 9, 9, 9}, "kind 2": {2, 0, 0, 0, 0}, "kind 255": {255, 0, 0, 0, 0},
		"a cover that says something": {0, 0, 0, 0, 1},
	} {
		require.Error(t, message(append(bytes.Clone(tag), tail...)), name)
	}
	w2 := newWorld(t, task.KEMX25519, 2, nil)
	sealed, err := onion.SealFor(w2.keys[1][0].Public(), onion.Context{TaskID: w2.id, Hop: 1}, 0, onion.KindSlot,
		make([]byte, 20))
	require.NoError(t, err)
	_, _, err = w2.opener(t, 1, 0).OpenSlot(0, sealed)
	require.ErrorContains(t, err, "inside a layer")
}

// TestSealingIsRandom seals the same report twice. The two results must share no slot and no tag.
func TestSealingIsRandom(t *testing.T) {
	w := newWorld(t, task.KEMX25519, 1, nil)
	seen := map[string]bool{}
	for range 2 {
		body, err := w.sealer(t).Seal(0, w.messages(3))
		require.NoError(t, err)
		envelope, err := w.opener(t, 0, 0).OpenEnvelope(body)
		require.NoError(t, err)
		for _, lane := range append(envelope.Lanes, [][]byte{envelope.Tag[:], body}) {
			for _, bytes := range lane {
				require.False(t, seen[string(bytes)])
				seen[string(bytes)] = true
			}
		}
	}
}

// TestDrafts: the drafts of a report must have the given tag at each hop, and differ in every ciphertext. So every hop
// recognizes the second draft, and nobody else finds equal bytes in two.
func TestDrafts(t *testing.T) {
	w := newWorld(t, task.KEMX25519, 3, func(t *task.Task) { t.Slots.Lanes, t.Slots.PerLane = 1, 1 })
	tags := make([][onion.TagSize]byte, w.VerifierHop()+1)
	for hop := range tags {
		rand.Read(tags[hop][:])
	}
	var drafts [2][][]byte // the ciphertexts, by hop
	for i := range drafts {
		body, err := w.sealer(t).Seal(0, w.messages(1), tags...)
		require.NoError(t, err)
		envelope, err := w.opener(t, 0, 0).OpenEnvelope(body)
		require.NoError(t, err)
		require.Equal(t, tags[0], envelope.Tag)
		slot := envelope.Lanes[0][0]
		drafts[i] = [][]byte{body, slot}
		for hop := 1; hop < w.VerifierHop(); hop++ {
			tag, next, err := w.opener(t, hop, 0).OpenSlot(0, slot)
			require.NoError(t, err)
			require.Equal(t, tags[hop], tag, "hop %d", hop)
			drafts[i], slot = append(drafts[i], next), next
		}
		tag, m, err := w.opener(t, w.VerifierHop(), 0).OpenMessage(0, slot)
		require.NoError(t, err)
		require.Equal(t, tags[w.VerifierHop()], tag)
		require.Equal(t, w.messages(1)[0][0], m)
	}
	for hop, first := range drafts[0] {
		require.NotEqual(t, first[:40], drafts[1][hop][:40], "hop %d: the encapsulated key repeats", hop)
	}
	_, err := w.sealer(t).Seal(0, w.messages(1), tags[1:]...)
	require.ErrorContains(t, err, "tags")
	several := newWorld(t, task.KEMX25519, 3, nil)
	_, err = several.sealer(t).Seal(0, several.messages(3), tags...)
	require.ErrorContains(t, err, "one slot")
}

// FuzzOpenEnvelope opens arbitrary submission bodies, and arbitrary content that a client seals. The result must be an
// error or a submission of the task's shape.
func FuzzOpenEnvelope(f *testing.F) {
	w := newWorld(f, task.KEMX25519, 1,
		func(t *task.Task) { t.Slots.Padding, t.Slots.MessageBytes = task.PaddingNone, 1 })
	opener := w.opener(f, 0, 0)
	body, err := w.sealer(f).Seal(0, w.messages(1))
	require.NoError(f, err)
	f.Add(body, false)
	f.Add([]byte{0x92, 0x01, 0xc0}, false)
	plain, err := onion.OpenWith(w.keys[0][0], onion.Context{TaskID: w.id}.Info(w.keys[0][0].Public().ID()),
		onion.AAD(0, onion.KindEnvelope), body[bodyHeader(body):])
	require.NoError(f, err)
	f.Add(plain, true)
	f.Add([]byte{0x92, 0xc4, 0, 0xdd, 0xff, 0xff, 0xff, 0xff}, true)
	f.Fuzz(func(t *testing.T, in []byte, inside bool) {
		if inside {
			sealed, err := onion.SealFor(w.keys[0][0].Public(), onion.Context{TaskID: w.id}, 0, onion.KindEnvelope, in)
			require.NoError(t, err)
			if in, err = onion.MarshalSubmission(sealed); err != nil {
				return
			}
		}
		envelope, err := opener.OpenEnvelope(in)
		if err != nil {
			return
		}
		require.Len(t, envelope.Lanes, 2)
		for _, lane := range envelope.Lanes {
			require.LessOrEqual(t, 1, len(lane))
			require.LessOrEqual(t, len(lane), 3)
			for _, slot := range lane {
				require.Len(t, slot, opener.SlotSize(1))
			}
		}
	})
}

// TestReportSizes: the size of a report must not change by accident. Optional parts of a task must not enlarge it,
// because a report does not contain the task.
func TestReportSizes(t *testing.T) {
	parts := map[string]func(*task.Task){
		"plain": func(*task.Task) {},
		"total": func(t *task.Task) { t.Claim.SetTotal("5", "1e-5") },
		"stream": func(t *task.Task) {
			t.Stream = &task.StreamPosition{Name: "site", Allow: new(task.StreamPosition).Changeable()}
		},
		"noise": func(t *task.Task) {
			t.Noise = &task.Noise{Kind: task.NoiseCells, Cells: 256, Tables: [][]uint64{{1, 2, 1}}}
		},
	}
	for name, change := range parts {
		for _, c := range []struct {
			kem          task.KEM
			relays, want int
		}{{task.KEMX25519, 1, 141}, {task.KEMX25519, 2, 205}, {task.KEMMLKEM768X25519, 2, 3471},
			{task.KEMMLKEM768, 3, 4495}} {
			s := &task.Task{KEM: c.kem, Relays: make([]task.Party, c.relays),
				Slots: task.Slots{Padding: task.PaddingFull, Lanes: 1, PerLane: 1, MessageBytes: 1}}
			change(s)
			layout, err := onion.NewLayout(s)
			require.NoError(t, err)
			require.Equal(t, c.want, layout.MaxBody(), "%s, %s, %d relays", name, c.kem, c.relays)
		}
	}
}
