package world_test

import (
	"crypto/sha256"
	"fmt"
	"math"
	"math/rand/v2"
	"net/http"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/doona-dp/doona/accountant/relaynoise"
	"github.com/doona-dp/doona/internal/testing/relaytest"
	"github.com/doona-dp/doona/internal/testing/stattest"
	"github.com/doona-dp/doona/planner"
	"github.com/doona-dp/doona/verifier"
	"github.com/doona-dp/doona/wire/onion"
	"github.com/doona-dp/doona/wire/task"
)

// A world with rare events has visitors (visitor_test.go) in place of clients: each reports once per epoch, through the
// network's faults and its own. At the end, no visitor may have sent more events than the task allows, each batch must
// have as many dummies as its law says, and the verifier's estimate must be the truth up to that law.

// rareEpochs is the number of epochs, and rareWindow the length of the window with one event: 2 in all epochs.
const (
	rareEpochs = 6
	rareWindow = 3
)

func rareQuery() planner.Query {
	return planner.Query{Name: "world", Query: task.Histogram, Bins: 4, Labels: true, Batch: worldBatch, Honest: .67,
		TotalEpsilon: 3, TotalDelta: 1e-3, Epochs: rareEpochs, Relays: &planner.RelayNoise{},
		Events: task.Events{Most: 1, Window: rareWindow, Default: usualLetter}}
}

// drawRareFaults draws faults in which no party lies, over all epochs.
func drawRareFaults(rng *rand.Rand) []fault {
	drawn := drawFaults(rng, false, []string{faultNetwork, faultCrash, faultFull, faultClock})
	for i := range drawn {
		drawn[i].at = drawn[i].at * (rareEpochs + 1) / (worldEpochs + 1)
	}
	return drawn
}

// letter returns the letter of a report.
func (a *account) letter(epoch uint64, body []byte) uint64 {
	envelope, err := a.opener(0, epoch).OpenEnvelope(body)
	if err != nil {
		panic(err)
	}
	_, slot, err := a.opener(1, epoch).OpenSlot(0, envelope.Lanes[0][0])
	if err != nil {
		panic(err)
	}
	_, m, err := a.opener(2, epoch).OpenMessage(0, slot)
	if err != nil {
		panic(err)
	}
	return letterOf(m)
}

// visitorTransport sends a visitor's requests through the network of a world.
type visitorTransport struct {
	*visitor
	clientTransport
	sent map[string]*sent // by body
}

// Do implements [shufflerclient.HTTP].
func (v *visitorTransport) Do(req *http.Request) (*http.Response, error) {
	epoch, body := v.leaves(req)
	s := v.sent[string(body)]
	if s == nil {
		s = v.network.world.account.know(v.from, epoch, body)
		v.sent[string(body)] = s
	}
	v.sends = s
	resp, err := v.clientTransport.Do(req)
	if err == nil && resp.StatusCode == http.StatusCreated {
		v.network.world.account.acknowledged(s)
	}
	return resp, err
}

// drawVisitors draws the visitors of a world.
func (w *world) drawVisitors(rng *rand.Rand, running *sync.WaitGroup) (out []event) {
	of := &visitorTask{w.Open, lawOf(w.t, w.Open), w.account.letter}
	for i := range 2*worldBatch + rng.IntN(2*worldBatch) {
		v := &visitor{visitorTask: of, device: device{t: w.t, rng: rand.New(rand.NewPCG(w.seed, uint64(i)+1))},
			visits: between(rng, 0, 40*time.Second), retries: 4 * time.Second, events: 1,
			forgets: w.bug.name == bugForgets, left: map[uint64]string{}}
		v.http = &visitorTransport{visitor: v, clientTransport: clientTransport{network: w.network,
			from: relaytest.Network(i)}, sent: map[string]*sent{}}
		w.visitors = append(w.visitors, v)
		out = append(out, event{0, func() {
			running.Go(func() {
				folder := filepath.Join(w.Dir, fmt.Sprintf("visitor%d", i))
				require.NoError(w.t, os.Mkdir(folder, 0o700))
				v.live(folder)
			})
		}})
	}
	return out
}

// checkVisitors checks that no visitor sent more events than the task allows, by what left its device.
func (w *world) checkVisitors() {
	for i, v := range w.visitors {
		if why := v.exceeds(); why != "" {
			w.account.note("events beyond the allowance", "of visitor %d: %s", i, why)
		}
		if n, most := len(v.sentEvents()), int(w.Open.MostCopies(rareEpochs)); n > most {
			w.account.note("events beyond the allowance", "of visitor %d: %d, at most %d", i, n, most)
		}
	}
}

// eachKept visits the reports in the verifier's batches. It returns how many batches these are, and how many slots they
// have.
func (a *account) eachKept(visit func(*sent)) (batches, slots uint64) {
	t := a.world.t
	for _, path := range a.keptFiles() {
		raw, err := os.ReadFile(path)
		require.NoError(t, err)
		b, err := onion.ParseBatch(raw)
		require.NoError(t, err)
		m, err := b.Header()
		require.NoError(t, err)
		if m.Destroyed() {
			continue
		}
		batches++
		slots += uint64(len(b.Ciphertexts[0]))
		for _, slot := range b.Ciphertexts[0] {
			if s := a.slots[1][slotName(sha256.Sum256(slot))]; s != nil {
				visit(s)
			}
		}
	}
	return batches, slots
}

// checkEstimate compares the verifier's estimate with the letters in its batches.
func (w *world) checkEstimate() {
	letters := make([]uint64, w.Open.Noise.Cells)
	batches, slots := w.account.eachKept(func(s *sent) { letters[s.letter]++ })
	run, ok := w.parties["verifier"].run.(*pulling)
	if !ok {
		return // its start failed, which is noted elsewhere
	}
	r, err := run.verifiers[0].Report()
	require.NoError(w.t, err)
	clients := uint64(0)
	for _, n := range letters {
		clients += n
	}
	dummies := uint64(len(relayNames)) * *w.Open.Noise.Total * batches
	if slots != clients+dummies || r.Verified != slots || r.Users != clients || r.Missing != 0 {
		w.account.note("wrong counts", "%d slots of %d clients and %d dummies; the verifier has %d, %d, and %d missing",
			slots, clients, dummies, r.Verified, r.Users, r.Missing)
	}
	w.log("%d batches, %d clients, letters %v, estimate %.1f", batches, clients, letters, r.Estimate)
	w.checkAnswer(letters, batches, r)
}

// checkAnswer checks that the errors of all estimated letters are sums of dummies, by the exact law of that sum, and
// counts intervals without the truth.
func (w *world) checkAnswer(letters []uint64, batches uint64, r *verifier.Report) {
	if batches == 0 {
		return
	}
	laws, err := relaynoise.NewLaws(w.Open.Noise)
	require.NoError(w.t, err)
	for cell, n := range letters {
		law := laws.Cells[cell]
		draws := int(batches) * len(relayNames)
		mass, mean := []float64{1}, law.Mean()*float64(draws)
		for range draws {
			mass = convolved(mass, law.Mass)
		}
		truth := float64(n)
		found := r.Estimate[cell] - truth + mean - float64(law.First*draws)
		below, above := 0.0, 0.0 // Of as few dummies, and of as many.
		for i, p := range mass {
			if float64(i) <= found+1e-3 {
				below += p
			}
			if float64(i) >= found-1e-3 {
				above += p
			}
		}
		if math.Abs(found-math.Round(found)) > 1e-3 || min(below, above) < rareAlarm {
			w.account.note("an estimate beside the truth", "of letter %d: %v for %v of %d draws", cell, r.Estimate[cell],
				truth, draws)
		}
		if uint64(cell) != *w.Open.Noise.Rest {
			w.intervals++
			if i := r.Interval[cell]; truth < i[0] || truth > i[1] {
				w.missed++
			}
		}
	}
}

// rareAlarm is the probability with which one side of one letter's check fails by chance. The long form has fewer than
// 1,000 letters.
const rareAlarm = stattest.FalseAlarm / 2000

func convolved(a, b []float64) []float64 {
	out := make([]float64, len(a)+len(b)-1)
	for i, x := range a {
		for j, y := range b {
			out[i+j] += x * y
		}
	}
	return out
}

// TestRareEventsInAWorld plays worlds of visitors with rare events, whose relays crash, whose disks are full and whose
// clocks leap. All invariants must hold, and of all 95 % intervals no more may be without the truth than chance allows.
func TestRareEventsInAWorld(t *testing.T) {
	seeds, intervals, missed, events, became, reports := uint64(1), 0, 0, 0, 0, 0
	if stattest.Long {
		seeds = 100
	}
	for seed := range seeds {
		t.Run(fmt.Sprintf("seed=%d", seed), func(t *testing.T) {
			w := playWorld(t, seed, &bug{rare: true})
			require.Empty(t, w.account.broken, "%s", w.report())
			if testing.Verbose() && !stattest.Long {
				t.Log(w.report())
			}
			intervals, missed = intervals+w.intervals, missed+w.missed
			for _, v := range w.visitors {
				events, became, reports = events+len(v.sentEvents()), became+v.instead, reports+len(v.left)
			}
		})
	}
	t.Logf("%d reports left, %d events, %d became the default; %d of %d intervals without the truth", reports, events,
		became, missed, intervals)
	require.Greater(t, min(events, became), 0)
	require.Greater(t, intervals, 0)
	require.GreaterOrEqual(t, 1-binomialBelow(intervals, missed, 1-verifier.Confidence), stattest.FalseAlarm)
}

// binomialBelow returns the probability of fewer than k of n successes.
func binomialBelow(n, k int, p float64) (sum float64) {
	for i := range k {
		a, _ := math.Lgamma(float64(n + 1))
		b, _ := math.Lgamma(float64(i + 1))
		c, _ := math.Lgamma(float64(n - i + 1))
		sum += math.Exp(a - b - c + float64(i)*math.Log(p) + float64(n-i)*math.Log1p(-p))
	}
	return sum
}
