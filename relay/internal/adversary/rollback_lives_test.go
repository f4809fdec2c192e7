package adversary_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/doona-dp/doona/internal/testing/relaytest"
	"github.com/doona-dp/doona/internal/testing/stattest"
	"github.com/doona-dp/doona/relay"
	"github.com/doona-dp/doona/wire/handover"
	"github.com/doona-dp/doona/wire/onion"
	"github.com/doona-dp/doona/wire/problem"
	"github.com/doona-dp/doona/wire/task"
)

// In these tests, a relay runs for some moments. At each moment the test copies the relay's state and the next hop's
// memory. Then it restores any parts of them to any moment, and the rest to the last moment. All other parties attack:
// clients send old reports and second reports; the upstream relay serves other batches under old numbers, and old slots
// under later numbers. The next hop is honest: it does what [handover] demands, with the memory that it has. It must
// get no client's slot twice.

// nextHopPart is the next hop's memory, which the test may restore besides relaytest.KeptParts.
const nextHopPart = "next hop"

// livesPlan returns how many lives each hop has, and how many moments each life has.
func livesPlan() (lives, moments int) {
	if stattest.Long {
		return 12, 15
	}
	return 1, 3
}

var (
	errTwo = errors.New("two manifests of one number") // the next hop's finding
	errCut = errors.New("cut short")                   // the next hop stops the pull after the manifest
)

// nextHop is what an honest next hop remembers.
type nextHop struct {
	next        uint64
	pulled      handover.ManifestHashes
	seen        map[uint64]string // manifests, by number
	unconfirmed map[uint64][]byte // by number: manifests of batches that it has not confirmed yet
	stopped     bool              // the epoch is over for it
}

func (n *nextHop) clone() *nextHop {
	out := *n
	out.pulled, out.seen, out.unconfirmed = slices.Clone(n.pulled), maps.Clone(n.seen), maps.Clone(n.unconfirmed)
	return &out
}

// lifetime is one relay's life, with the other parties around it.
type lifetime struct {
	*relaytest.Cascade
	t        *testing.T
	rng      *rand.Rand
	hop      int
	first    *relaytest.Rogue // plays the upstream relay if hop is 1
	slots    map[uint64][]byte
	offers   uint64
	reports  []report
	clients  uint64
	next     *nextHop
	moments  []lifeMoment
	stop     func()
	released map[uint64]string // by client: the manifest of the batch that released its slot
	figures  map[string]int
}

type report struct {
	client uint64
	body   []byte
}

type lifeMoment struct {
	kept relaytest.Kept
	next *nextHop
	made uint64
}

func newLife(t *testing.T, hops, hop int, seed uint64) *lifetime {
	t.Helper()
	c := relaytest.New(t, relaytest.Options{Hops: hops, Task: func(draft *task.Task) {
		draft.Batch.Size, draft.Batch.Min = 4, 3
	}})
	l := &lifetime{Cascade: c, t: t, rng: rand.New(rand.NewPCG(seed, uint64(10*hops+hop))), hop: hop,
		slots: map[uint64][]byte{}, released: map[uint64]string{}, figures: map[string]int{},
		next: &nextHop{seen: map[uint64]string{}, unconfirmed: map[uint64][]byte{}}}
	if hop > 0 {
		l.first = c.StartFirst(t)
	}
	return l
}

// client returns a requester that signs with the next hop's key.
func (l *lifetime) client() *handover.Requester {
	if l.hop+1 == l.Open.VerifierHop() {
		return l.Verifier
	}
	return handover.NewRequester(l.SignKey(l.t, l.hop+1), nil)
}

// act does one random thing: new reports or batches, a pull, or a confirmation.
func (l *lifetime) act() {
	switch n := l.rng.IntN(10); {
	case n < 6 && l.hop == 0:
		for range 1 + l.rng.IntN(5) {
			l.post(l.clients, nil)
			l.clients++
		}
	case n < 6:
		l.offer(l.offers, l.fresh(4))
		l.offers++
		time.Sleep(60 * time.Millisecond) // the relay pulls it now or later
	case n < 8:
		_ = l.pull(true)
	default:
		_ = l.pull(false)
		l.confirm()
	}
}

// post sends a report of a client: body, or a new report if body is nil.
func (l *lifetime) post(client uint64, body []byte) {
	if body == nil {
		body = l.Seal(l.t, 0, client)
		l.reports = append(l.reports, report{client, body})
	}
	_ = l.Post(l.t.Context(), 0, body, relaytest.Network(int(client)))
}

// fresh returns the slots of n new clients.
func (l *lifetime) fresh(n uint64) (out [][]byte) {
	clients := span(l.clients, n)
	l.clients += n
	for i, slot := range l.Slots(l.t, 0, clients...)[0] {
		l.slots[clients[i]] = slot
		out = append(out, slot)
	}
	return out
}

// old returns up to n random slots that were offered before.
func (l *lifetime) old(n int) (out [][]byte) {
	all := slices.Collect(maps.Values(l.slots))
	l.rng.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
	return all[:min(n, len(all))]
}

func (l *lifetime) offer(seq uint64, slots [][]byte) {
	l.first.Serve(l.t, 0, seq, l.first.Batch(l.t, 0, seq, uint64(len(slots)), onion.Lanes{slots}))
}

// pull pulls the next number as an honest next hop does. If short, it stops after the manifest.
func (l *lifetime) pull(short bool) error {
	n := l.next
	if n.stopped {
		return errTwo
	}
	b, err := l.client().PullOnce(l.t.Context(), handover.Request{Open: l.Open, From: l.hop, Seq: n.next,
		History: n.pulled.History(), RecordManifest: func(s *onion.SignedManifest) error {
			now := string(s.Manifest)
			if before, ok := n.seen[n.next]; ok && before != now {
				return errTwo
			}
			if n.seen[n.next] = now; short {
				return errCut
			}
			return nil
		}})
	if errors.Is(err, errTwo) || errors.Is(err, handover.ErrConfirmed) {
		n.stopped = true
	}
	if err != nil {
		return err
	}
	l.take(b)
	n.pulled, n.unconfirmed[n.next] = append(n.pulled, handover.HashManifests(b.Manifest)...), b.Manifest
	n.next++
	return nil
}

// take records which clients are in a batch, and fails if one of them was in another batch.
func (l *lifetime) take(b *onion.Batch) {
	inner := *b
	if l.hop+1 < l.Open.VerifierHop() {
		opener := l.Opener(l.t, l.hop+1, 0)
		inner.Ciphertexts = onion.Lanes{{}}
		for _, slot := range b.Ciphertexts[0] {
			_, next, err := opener.OpenSlot(0, slot)
			require.NoError(l.t, err)
			inner.Ciphertexts[0] = append(inner.Ciphertexts[0], next)
		}
	}
	batch := string(b.Manifest)
	for _, client := range l.Values(l.t, 0, &inner)[0] {
		if in, ok := l.released[client]; ok {
			require.True(l.t, in == batch, "client %d was released twice", client)
		}
		l.released[client] = batch
	}
}

func (l *lifetime) confirm() {
	for seq, manifest := range l.next.unconfirmed {
		if l.client().Confirm(l.t.Context(), l.Open, l.hop, 0, seq, manifest) == nil {
			delete(l.next.unconfirmed, seq)
		}
	}
}

// live runs the relay, and stops and copies it at each moment.
func (l *lifetime) live(moments int) {
	l.stop = l.Start(l.t, l.hop)
	for range moments {
		for range 1 + l.rng.IntN(3) {
			l.act()
		}
		l.stop()
		all := slices.Sorted(maps.Keys(relaytest.KeptParts))
		l.moments = append(l.moments, lifeMoment{relaytest.KeptOf(l.t, l.Cascade, l.hop, all...), l.next.clone(),
			l.made()})
		l.stop = l.Start(l.t, l.hop)
	}
	l.stop()
}

// made returns how many batches the relay has sealed, according to its own files.
func (l *lifetime) made() uint64 {
	i, err := relay.Inspect(l.Config(l.t, l.hop))
	require.NoError(l.t, err)
	defer i.Close()
	status, err := i.Status(l.t.Context())
	require.NoError(l.t, err)
	if epochs := status.Tasks[0].Epochs; len(epochs) > 0 {
		return uint64(epochs[0].Batches)
	}
	return 0
}

// restore restores everything to the last moment, and then some parts to moment m.
func (l *lifetime) restore(m int, parts []string) {
	last := l.moments[len(l.moments)-1]
	last.kept.Restore(l.t, l.Cascade, l.hop, slices.Sorted(maps.Keys(relaytest.KeptParts))...)
	l.next = last.next.clone()
	for _, part := range parts {
		if part == nextHopPart {
			l.next = l.moments[m].next.clone()
		} else {
			l.moments[m].kept.Restore(l.t, l.Cascade, l.hop, part)
		}
	}
}

// subset returns some random parts, but not all. If first, it returns all of the relay's own parts.
func (l *lifetime) subset(first bool) (parts []string) {
	all := append(slices.Sorted(maps.Keys(relaytest.KeptParts)), nextHopPart)
	if first {
		return all[:len(all)-1]
	}
	bits := 1 + l.rng.IntN(1<<len(all)-2)
	for i, part := range all {
		if bits>>i&1 == 1 {
			parts = append(parts, part)
		}
	}
	return parts
}

// tryAll restores parts to moment m, and lets all parties try to get a client's slot released twice.
func (l *lifetime) tryAll(m int, parts []string) {
	t, where := l.t, fmt.Sprintf("moment %d, parts %s", m, strings.Join(parts, ", "))
	released, reports := maps.Clone(l.released), l.reports
	l.restore(m, parts)
	rolledBack := slices.Equal(parts, l.subset(true)) && l.moments[m].made < l.next.next
	r, err := relay.New(l.Config(t, l.hop))
	require.NoError(t, err, where)
	stop := l.ServeUnready(t, r)
	status, text := 0, ""
	for began := time.Now(); status/100 != 2 && !strings.Contains(text, "state rollback detected"); {
		status, text = get(t, l.Cascade, l.hop, "/readyz")
		require.Less(t, time.Since(began), relaytest.Patience, "%s: %s", where, text)
		time.Sleep(5 * time.Millisecond)
	}
	switch {
	case status/100 != 2:
		l.requireRefused(where)
		l.figures["refused"]++
	case l.hostile():
		l.figures["shown by the next hop"]++
		require.True(t, slices.ContainsFunc(l.Status(t, l.hop).Findings, func(f relay.Finding) bool {
			return strings.Contains(string(f.Reason), "that this relay lost")
		}), where)
	case l.next.stopped:
		l.figures["found by the next hop"]++ // it saw two manifests of a number, or its confirmed batch is gone
	case rolledBack && l.sameAgain():
		l.figures["the same batches were made again"]++
	default:
		require.False(t, rolledBack, "%s: the next hop had %d numbers, now %d, and %d were made", where,
			l.moments[len(l.moments)-1].next.next, l.next.next, l.moments[m].made)
		l.figures["nobody released twice"]++
	}
	stop()
	// l.clients keeps the new clients: the upstream relay may still serve their slots, one for each client.
	l.released, l.reports = released, reports
}

// sameAgain reports whether the relay has made all batches that the next hop had, with the same bytes: four slots have
// only 24 orders. Then there is nothing to detect.
func (l *lifetime) sameAgain() bool {
	for seq, hash := range l.moments[len(l.moments)-1].next.pulled {
		var manifest []byte
		queryInto(l.t, l.Cascade, l.hop, &manifest, "SELECT manifest FROM batches WHERE seq = $1", seq)
		if handover.HashManifests(manifest)[0] != hash {
			return false
		}
	}
	return true
}

// requireRefused asserts that the relay accepts and hands out nothing because of a state rollback.
func (l *lifetime) requireRefused(where string) {
	back := problem.New(problem.StateRolledBack, "")
	require.ErrorIs(l.t, l.pull(false), back, where)
	if l.hop == 0 {
		require.ErrorIs(l.t, l.Post(l.t.Context(), 0, l.Seal(l.t, 0, 1), relaytest.Network(1)), back, where)
	}
}

// hostile plays the attacks of all parties except the next hop. It reports whether the relay detected the rollback.
func (l *lifetime) hostile() (noticed bool) {
	for round := range 2 {
		if l.hop == 0 {
			for _, r := range l.reports {
				l.post(r.client, r.body)
				l.post(r.client, l.Seal(l.t, 0, r.client)) // a second report of the client
			}
			for range 3 {
				l.post(l.clients, nil)
				l.clients++
			}
		} else {
			for seq := range l.offers + 2 {
				if seq >= l.offers || l.rng.IntN(2) == 0 {
					l.offer(seq, append(l.old(4-round), l.fresh(uint64(round))...)) // more would be refused
				}
			}
		}
		for again := 0; again < 4; {
			err := l.pull(l.rng.IntN(8) == 0)
			switch {
			case errors.Is(err, problem.New(problem.StateRolledBack, "")):
				return true
			case errors.Is(err, handover.ErrNotSealed):
				again++
				time.Sleep(25 * time.Millisecond)
			case l.next.stopped || errors.Is(err, handover.ErrEpochComplete):
				again = 4
			case !errors.Is(err, errCut):
				require.NoError(l.t, err)
			}
			l.confirm()
		}
	}
	return false
}

// TestStateRollbackOfLives restores any of a relay's store, secret and keys, and the next hop's memory, to any moment
// of the relay's life, at every hop: 540 moments in the long form.
func TestStateRollbackOfLives(t *testing.T) {
	lives, moments := livesPlan()
	all := map[string]map[string]int{}
	for _, at := range []struct{ hops, hop int }{{1, 0}, {2, 0}, {2, 1}} {
		name := fmt.Sprintf("hop %d of %d", at.hop, at.hops)
		t.Run(name, func(t *testing.T) {
			figures := map[string]int{}
			for seed := range lives {
				l := newLife(t, at.hops, at.hop, uint64(seed))
				l.live(moments)
				for m := range moments {
					l.tryAll(m, l.subset(true))
					l.tryAll(m, l.subset(false))
				}
				for what, n := range l.figures {
					figures[what] += n
				}
				figures["moments"] += moments
			}
			all[name] = figures
		})
	}
	t.Log(all)
	if path := os.Getenv("DOONA_FIGURES"); path != "" {
		out, err := json.Marshal(all)
		require.NoError(t, err)
		require.NoError(t, os.WriteFile(path, out, 0o600))
	}
}
