package planner

import (
	"cmp"
	"errors"
	"math"
	"runtime"
	"slices"
	"strconv"
	"sync"

	"github.com/doona-dp/doona/internal/decimal"
	"github.com/doona-dp/doona/internal/invalid"
	"github.com/doona-dp/doona/protocols"
	"github.com/doona-dp/doona/protocols/registry"
	"github.com/doona-dp/doona/wire/handover"
	"github.com/doona-dp/doona/wire/task"
)

// Goal is a query with a privacy target and limits of its cost. Batch is the number of users. A plan chooses Protocol,
// Rule, Params, Padding, Lanes and Relays, so these fields must be empty.
type Goal struct {
	Query
	Noise       Noise
	Sparse      bool    // Each vector has at most one coordinate that is not 0.
	Hops        int     // Number of relays, at least 1.
	LeastLocal  float64 // Maximum ε₀, which remains if all relays collude, in (0, 64]; 0: no requirement.
	MaxSlots    uint64  // Maximum number of a client's slots, with covers; 0: no limit.
	MaxMessages float64 // Maximum of a client's mean number of messages, without covers; 0: no limit.
	MaxDummies  float64 // Maximum of the mean number of dummies per relay and batch; 0: no limit.
	Batches     uint64  // If relays add noise: the Batches of [RelayNoise].
}

// Noise says who adds the noise.
type Noise string

// The values of [Noise].
const (
	NoiseAny     Noise = "any"
	NoiseClients Noise = "clients"
	NoiseRelays  Noise = "relays"
)

// Way is one way to reach a goal: a task with its cost and accuracy, or the reason why no task is possible.
type Way struct {
	Protocol  string
	Noise     Noise        // NoiseClients or NoiseRelays.
	Padding   task.Padding // Empty if there is no task.
	Task      *task.Task   // nil if Why is set.
	Mechanism protocols.Mechanism
	Why       error // Why the way is impossible, and what would make it possible; else nil.

	// Root mean square error over the entries of the answer, for the worst-case input, in the query's units. For the
	// texts that a search finds, it is the error of the count of a text that FoundDownTo clients have.
	RMSE     float64
	Width    float64 // Width of an entry's 95 % interval for that input, by the normal law, in the query's units.
	Central  float64 // RMSE divided by the RMSE of a curator who sees all values.
	Messages float64 // Expected number of a client's messages, without covers.
	Bytes    float64 // Size of a client's report; with padding none the expected size.
	Dummies  float64 // Mean number of dummies per relay and batch.
	Shift    float64 // How far one malicious client can move an entry, in the query's units.

	Lists bool // Whether the answer is a list of texts that needs no candidates.
	// A text that this many clients have is listed in about 98 of 100 batches, if almost all other clients have
	// different texts. 0 if the answer is no list, or no number is enough.
	FoundDownTo float64
	// Estimated needs of a full batch: of each relay in order, then of the verifier.
	Needs []handover.Need

	candidate candidate // The candidate of this way, and the value of its cost parameter.
	param     uint64
}

// Plan returns all ways to reach a goal. The recommended way is first: the best with noise by relays, if its error is
// at most [RecommendedError] times the least. The other possible ways follow by rising error, then the impossible ones
// by protocol. Plan returns an error only if the goal is invalid. After each way it calls done with the number of ways;
// done may be nil.
func Plan(g Goal, done func(of int)) ([]Way, error) {
	if err := g.check(); err != nil {
		return nil, err
	}
	candidates := g.candidates()
	if len(candidates) == 0 {
		return nil, invalid.Field("noise", strconv.Quote(string(g.Noise)),
			"clients or any for query "+string(g.Query.Query))
	}
	ways := make([]Way, len(candidates))
	next, reported := make(chan int), sync.Mutex{}
	var wg sync.WaitGroup
	for range runtime.GOMAXPROCS(0) {
		wg.Go(func() {
			for i := range next {
				ways[i] = candidates[i].run()
				if done != nil {
					reported.Lock()
					done(len(candidates))
					reported.Unlock()
				}
			}
		})
	}
	for i := range candidates {
		next <- i
	}
	close(next)
	wg.Wait()
	slices.SortStableFunc(ways, compareWays)
	recommend(ways)
	return ways, nil
}

// compareWays orders possible ways by error, then by bytes. Impossible ways come last.
func compareWays(a, b Way) int {
	switch {
	case a.Why != nil && b.Why != nil:
		return 0
	case a.Why != nil:
		return 1
	case b.Why != nil:
		return -1
	}
	return cmp.Or(cmp.Compare(a.RMSE, b.RMSE), cmp.Compare(a.Bytes, b.Bytes))
}

// check returns an error if the goal is invalid for every protocol.
func (g Goal) check() error {
	if err := CheckOptions(g.Query.Query, g.given); err != nil {
		return err
	}
	if _, err := g.claim(); err != nil {
		return err
	}
	switch {
	case g.Batch < 1 || g.Batch > math.MaxUint32:
		return invalid.Field("users", strconv.FormatUint(g.Batch, 10), "1 to 4294967295")
	case g.Noise != NoiseAny && g.Noise != NoiseClients && g.Noise != NoiseRelays:
		return invalid.Field("noise", strconv.Quote(string(g.Noise)), "clients, relays or any")
	case g.Hops < 1 || g.Hops > task.MaxRelays:
		return invalid.Field("hops", strconv.Itoa(g.Hops), "1 to "+strconv.Itoa(task.MaxRelays))
	case !(g.LeastLocal >= 0 && g.LeastLocal <= 64):
		return invalid.Field("local-epsilon", format(g.LeastLocal), "a number in (0, 64], or 0 for none")
	case !(g.MaxMessages >= 0):
		return invalid.Field("max-messages", format(g.MaxMessages), "a positive number, or 0 for no limit")
	case !(g.MaxDummies >= 0 && g.MaxDummies <= 1<<32):
		return invalid.Field("max-dummies", format(g.MaxDummies), "0 to 4294967296")
	}
	var t task.Task
	if err := g.input(&t); err != nil {
		return err
	}
	if g.Noise != NoiseClients { // The ways with noise by relays need no other honest client.
		g.Relays = &RelayNoise{}
	}
	return g.batch(&t)
}

// candidate is a protocol with a choice of who adds noise, and of padding.
type candidate struct {
	goal     Goal
	protocol protocols.Protocol
	noise    Noise        // NoiseClients or NoiseRelays.
	padding  task.Padding // Empty: the protocol has no choice.
	gaussian bool         // Relays draw from Gaussian tables; else from the tables with the least error.
}

func (g Goal) candidates() (out []candidate) {
	for _, p := range registry.All() {
		row := p.Row()
		if !slices.Contains(row.Queries, g.Query.Query) {
			continue
		}
		for _, noise := range noisesOf(p) {
			if g.Noise != NoiseAny && g.Noise != noise {
				continue
			}
			for _, padding := range row.Paddings() {
				out = append(out, candidate{goal: g, protocol: p, noise: noise, padding: padding})
			}
		}
	}
	return out
}

// noisesOf returns who may add the noise in a protocol.
func noisesOf(p protocols.Protocol) []Noise {
	switch row := p.Row(); {
	case row.CalibrateRelayNoise == nil:
		return []Noise{NoiseClients}
	case row.ClientsToo:
		return []Noise{NoiseClients, NoiseRelays}
	}
	return []Noise{NoiseRelays}
}

// good is how many times the protocol's least error a cheaper way may have, if the goal has no limits.
const good = 1.2

// flat ends the search over a cost parameter: larger values are not tried if the error is above flat times the previous
// one.
const flat = .95

// run returns the best task of a candidate: the one with the least error within the goal's limits or, without limits,
// the cheapest with an error of at most [good] times the least.
func (c candidate) run() Way {
	row := c.protocol.Row()
	if info := c.goal.Query.Query.Info(); row.Sparse && info.Shape == task.PerVector && info.Ranged &&
		!c.goal.Sparse {
		return c.impossible(invalid.Field("sparse", "false",
			"true, if every vector has at most one coordinate that is not 0: it takes no others"))
	}
	param := row.CostParam
	if param == nil {
		return c.draft(0)
	}
	if param.Best && !c.goal.limited() {
		if w := c.draft(0); w.Why == nil {
			return w
		}
	}
	var possible []Way
	var exceeds error
	for _, v := range param.Values(c.goal.entries()) {
		w := c.draft(v)
		if w.Why == nil {
			possible = append(possible, w)
			if n := len(possible); param.Best && n > 1 && w.RMSE > flat*possible[n-2].RMSE || w.large() {
				break
			}
		} else if errors.As(w.Why, new(*limitError)) {
			exceeds = w.Why
			break // Larger values also exceed a limit.
		}
	}
	if n := len(possible); param.Best && c.goal.limited() || n == 0 || !possible[n-1].large() {
		w := c.draft(0)
		if w.Why == nil {
			possible = append(possible, w)
		}
		exceeds = cmp.Or(exceeds, w.Why)
	}
	if len(possible) == 0 {
		return c.impossible(exceeds)
	}
	least := slices.MinFunc(possible, compareWays)
	if param.Best || c.goal.limited() {
		return least
	}
	for _, w := range possible {
		if w.RMSE <= good*least.RMSE && w.Bytes < least.Bytes {
			least = w
		}
	}
	return least
}

// largeBatch ends the search over a cost parameter: if a batch is larger, in bytes, larger values are not tried.
const largeBatch = 900 << 20

func (w *Way) large() bool {
	return w.Bytes*float64(w.Task.Batch.Size) > largeBatch
}

func (c candidate) impossible(why error) Way {
	return Way{Protocol: c.protocol.ProtocolName(), Noise: c.noise, Padding: c.padding, Why: why}
}

func (g Goal) limited() bool { return g.MaxSlots > 0 || g.MaxMessages > 0 || g.MaxDummies > 0 }

func (g Goal) entries() uint64 { return max(g.Bins, g.Dim, 1) }

// draft tries the candidate's protocol with a value of its cost parameter; 0 lets the protocol choose.
func (c candidate) draft(param uint64) Way {
	w := Way{Protocol: c.protocol.ProtocolName(), Noise: c.noise, Padding: c.padding, candidate: c,
		param: param}
	q := c.goal.Query
	q.Protocol, q.Padding = w.Protocol, c.padding
	if param > 0 {
		q.Params = Params{c.protocol.Row().CostParam.Key: param}
	}
	if w.Noise == NoiseRelays {
		q.Relays = &RelayNoise{Batches: c.goal.Batches, NoiseOptions: protocols.NoiseOptions{
			MaxDummies: c.goal.MaxDummies, LocalEpsilon: c.goal.LeastLocal, Relays: c.goal.Hops,
			Gaussian: c.gaussian}}
	}
	t, err := Draft(q)
	if err == nil {
		w.Padding, w.Task = t.Slots.Padding, t
		err = w.fill(c.goal)
	}
	if err != nil {
		return c.impossible(err)
	}
	return w
}

// limitError is the error of a task that is possible, but costs more than the goal allows or than relays can carry.
type limitError struct{ error }

func (e *limitError) Unwrap() error { return e.error }

func (g Goal) exceeded(w *Way) error {
	slots := w.Task.Slots.PerLane * w.Task.Slots.Lanes
	switch {
	case g.MaxSlots > 0 && slots > g.MaxSlots:
		return &limitError{invalid.Field("max-slots", strconv.FormatUint(g.MaxSlots, 10),
			strconv.FormatUint(slots, 10)+" or more, or more users")}
	case g.MaxMessages > 0 && w.Messages > g.MaxMessages:
		return &limitError{invalid.Field("max-messages", format(g.MaxMessages),
			decimal.Up(w.Messages, 3)+" or more, or more users")}
	case g.MaxDummies > 0 && w.Dummies > g.MaxDummies*(1+1e-9):
		return &limitError{invalid.Field("max-dummies", format(g.MaxDummies), decimal.Up(w.Dummies, 3)+" or more")}
	case g.LeastLocal > 0 && w.Mechanism.Epsilon0() > g.LeastLocal:
		left := "nothing remains if all relays collude, whatever it is"
		if e := w.Mechanism.Epsilon0(); !math.IsInf(e, 1) {
			left = decimal.Up(e, 3) + " or more, which remains if all relays collude"
		}
		return invalid.Field("local-epsilon", format(g.LeastLocal), left)
	}
	return nil
}

// fill computes the cost and accuracy of a way that has a task. An error says why the way is impossible.
func (w *Way) fill(g Goal) error {
	m, err := registry.Open(w.Task)
	if err != nil {
		return err
	}
	w.Mechanism = m
	if err := m.CheckClaim(); err != nil {
		return err
	}
	if err := w.Task.Input.CheckEntries(); err != nil {
		return err
	}
	if err := CheckServable(w.Task, g.Hops); err != nil {
		return &limitError{err}
	}
	if w.Messages, w.Bytes, err = Cost(w.Task, m, g.Hops); err != nil {
		return err
	}
	if w.Dummies, err = Dummies(w.Task); err != nil {
		return err
	}
	if w.Needs, err = Needs(w.Task, g.Hops, w.Messages, w.Dummies); err != nil {
		return err
	}
	if err := g.exceeded(w); err != nil {
		return err
	}
	variance, err := worstCase(w.Task, m, g.Hops)
	if err != nil {
		return err
	}
	if lists := protocols.CapabilitiesOf(m).Lists; lists != nil {
		w.Lists, variance = true, make([]float64, 1)
		w.FoundDownTo, variance[0] = lists(g.Hops)
	}
	w.RMSE = math.Sqrt(mean(variance))
	w.Width = 2 * normal95 * math.Sqrt(slices.Max(variance))
	w.Central = w.RMSE / centralError(w.Task, g.Query, g.Sparse)
	w.Shift, err = shift(w.Task, m)
	return err
}

// WorstRMSE returns the root mean square error of an entry of a task's answer from one batch, with the values for which
// it is largest.
func WorstRMSE(t *task.Task, m protocols.Mechanism) (float64, error) {
	variance, err := worstCase(t, m, DefaultRelays)
	return math.Sqrt(mean(variance)), err
}
