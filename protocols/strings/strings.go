// Package strings finds texts that many clients hold, without a list of candidates. Each client sends one message of a
// few bytes, in one round.
//
// A text of up to L bytes is padded with zeros to L. There are T = D + C tables of b cells each. The first D tables,
// the levels, hash prefixes of the text. The first level hashes 16 bits, each further level three or four more, and the
// last level the whole text. The other C tables, the checks, hash the whole text again. With h_τ the hash of table τ, a
// client with text x draws one of the T tables, τ, uniformly and in secret, and sends the cell
//
//	y = b·τ + h_τ(x)                                                                              (1)
//
// For noise, either each relay adds M dummies, uniform over all T·b cells, or each client replaces h_τ(x) by a uniform
// cell of the table with probability γ. Let N_τ be the number of messages in the cell of a text in table τ. There are n
// messages by clients and D′·M dummies in all, where D′ is how often relays drew dummies. The analyzer estimates the
// number of clients that share the hashed part of the text as
//
//	ĉ_τ = (N_τ − nγ/(Tb) − D′M/(Tb)) · T/(1−γ)                                                    (2)
//
// This also counts clients whose texts fall in the same cell by chance. [aggregate.Find] proceeds from one level to the
// next and keeps the likeliest prefixes. It lists the texts whose checks have more messages than chance leaves there.
// [aggregate.Ask] counts given texts, in the tables that hash a whole text.
//
// Guarantee: (ε, δ)-DP by substitution of one client's text, whatever its length. With noise by relays, one relay must
// be honest and no other client needs to be; the dummies are a pool (accountant.PoolDelta with b). With noise by
// clients, n_min clients must be honest; they use randomized response over b cells. Neither guarantee depends on T, on
// the hash or on the number of possible texts (docs/proofs/strings.md). Participation is not protected.
//
// Accuracy: a count over all tables has the variance (n + all dummies)/b, plus a little for the count's own randomness.
//
// Intervals hold over tasks: which texts share cells is the same in all batches of one task (docs/proofs/strings.md).
//
// Limits: the count of one text uses only C + 1 of the T tables, or C if the search found the text. The search finds
// texts with some 15 standard deviations of a count over all tables, about 250 clients for M ≈ n. A coalition of that
// many clients can plant a text that nobody holds. A malicious relay can plant M/250 such texts by choosing its
// dummies. If all relays collude with the verifier, it sees the hash that each client sent; with noise by clients ε₀ =
// ln(1 + b(1−γ)/γ) then remains.
package strings

import (
	"math"
	"strconv"

	"github.com/doona-dp/doona/internal/invalid"
	"github.com/doona-dp/doona/protocols"
	"github.com/doona-dp/doona/randomizer"
	"github.com/doona-dp/doona/wire/task"
)

// Name is the protocol's name in tasks.
const Name = "strings"

// RulePool is the privacy rule of tasks whose relays add the noise: [accountant.PoolDelta]. If clients add the noise,
// the task uses a rule of randomized response.
const RulePool = "pool"

const (
	leastB    = 3       // Least cells per table. With two, another rule of randomized response would apply.
	mostText  = 1 << 16 // Largest size of a client's text in bytes, before it is cut to the task's length.
	maxLevels = 128
	maxChecks = 64
	maxCells  = 1 << 22 // Most cells in all tables together. An aggregate then has at most 32 MB.
)

// Protocol is the entry of this protocol in the table of package registry.
type Protocol struct{}

// ProtocolName returns [Name].
func (*Protocol) ProtocolName() string { return Name }

// Mechanism is this protocol with the parameters of one task.
type Mechanism struct {
	task *task.Task
	krr  protocols.KRR // Over the b cells of a table. Gamma is 0 if relays add the noise.
	plan plan
}

// plan says which bits of a text each table hashes, and to which cell.
type plan struct {
	length, levels, checks int
	b, seed                uint64
}

// Capabilities returns the optional functions of the mechanism, for [protocols.CapabilitiesOf].
func (m *Mechanism) Capabilities() protocols.Capabilities {
	return protocols.Capabilities{
		Dummies: func(a protocols.Aggregate) protocols.DummyAggregate { return a.(*aggregate) },
		Find: func(a protocols.Aggregate, confidence float64) protocols.FoundTexts {
			return a.(*aggregate).Find(confidence)
		},
		Ask: func(a protocols.Aggregate, texts []string, confidence float64) ([]protocols.TextCount,
			protocols.TextCount, error) {
			return a.(*aggregate).Ask(texts, confidence)
		},
		Hold:  m.hold,
		Reach: m.Reach,
		Lists: func(relays int) (clients, variance float64) {
			clients = m.FoundDownTo(relays)
			return clients, m.CountVariance(clients, relays)
		},
		Fast:   m.fast,
		Attack: m.attack,
	}
}

// Open returns the mechanism of a task with query strings and parameters b, levels and checks. It has either noise of
// kind pool over all cells (by relays) or a parameter gamma (noise by clients).
func (*Protocol) Open(t *task.Task) (protocols.Mechanism, error) {
	if err := checkQuery(t); err != nil {
		return nil, err
	}
	p, err := planOf(t)
	if err != nil {
		return nil, err
	}
	m := &Mechanism{task: t, plan: p, krr: protocols.KRR{K: p.b, Gamma: randomizer.NewRational(0, 1)}}
	if t.Noise == nil {
		if m.krr, err = protocols.NewKRR(t, p.b); err != nil {
			return nil, err
		}
	}
	if err := m.check(); err != nil {
		return nil, err
	}
	m.plan.seed = absorb(offset, t.Canonical())
	return m, protocols.CheckSlots(t, p.slots())
}

func checkQuery(t *task.Task) error {
	if t.Query != task.Strings {
		return invalid.Field("query", invalid.Quote(string(t.Query)), "strings for protocol "+Name)
	}
	return nil
}

// planOf reads the parameters of the tables from a task.
func planOf(t *task.Task) (p plan, err error) {
	p.length = int(t.Input.Bins)
	if p.b, err = protocols.WholeParam(t, "b", leastB, maxCells); err != nil {
		return p, err
	}
	levels, err := protocols.WholeParam(t, "levels", 1, mostLevels(t.Input.Bins))
	if err != nil {
		return p, err
	}
	checks, err := protocols.WholeParam(t, "checks", 1, maxChecks)
	if err != nil {
		return p, err
	}
	p.levels, p.checks = int(levels), int(checks)
	if cells := p.cells(); cells > maxCells {
		return p, invalid.Field("params.b", strconv.FormatUint(p.b, 10), "at most 2^22 cells in all tables, not "+
			strconv.FormatUint(cells, 10))
	}
	return p, nil
}

// check returns an error unless the noise, the rule and the number of parameters fit each other.
func (m *Mechanism) check() error {
	t, params := m.task, 4
	if n := t.Noise; n != nil {
		params = 3
		switch cells := m.plan.cells(); {
		case n.Kind != task.NoisePool || n.Cells != cells:
			return invalid.Field("noise", n.Kind, "a pool over "+strconv.FormatUint(cells, 10)+" cells")
		case t.Claim.Assumption != task.NoneHonest:
			return invalid.Field("claim.assumption", t.Claim.Assumption.String(), "none, because relays add the noise")
		case t.Rule != RulePool:
			return invalid.Field("rule", invalid.Quote(t.Rule), RulePool+", because relays add the noise")
		}
	}
	if len(t.Params) != params {
		return invalid.Field("params", strconv.Itoa(len(t.Params))+" parameters",
			"b, checks and levels, and gamma if clients add the noise")
	}
	return nil
}

// tables returns T, the number of tables: levels and checks.
func (p plan) tables() int { return p.levels + p.checks }

// cells returns the number of cells of all tables.
func (p plan) cells() uint64 { return p.b * uint64(p.tables()) }

// firstBits is the number of bits that the first of several levels hashes: as many as a search can enumerate.
const firstBits = 16

// prefix returns how many bits of a text a table hashes. The first level hashes 16. Each further level hashes about
// equally many more. The last level and the checks hash all.
func (p plan) prefix(table int) int {
	bits := 8 * p.length
	if table >= p.levels-1 {
		return bits
	}
	return firstBits + (table*(bits-firstBits)+p.levels-2)/(p.levels-1)
}

// mostLevels returns the largest number of levels for texts of length bytes. Each level hashes at least one bit more
// than the previous level.
func mostLevels(length uint64) uint64 {
	if length <= firstBits/8 {
		return 1
	}
	return min(maxLevels, 8*length-firstBits+1)
}

// The hash of a table. It starts with 64-bit FNV-1a over the task's canonical form and the hashed part of the text;
// each level continues from the previous one. Then each table applies the finalizer of [SLF14]. Privacy does not depend
// on the hash, and anyone who knows the task can compute it.
//
// [SLF14]: https://doi.org/10.1145/2660193.2660195
const (
	offset = 14695981039346656037
	prime  = 1099511628211
	golden = 0x9e3779b97f4a7c15
)

// absorb returns the FNV-1a state after more bytes.
func absorb(state uint64, more []byte) uint64 {
	for _, c := range more {
		state = absorb1(state, c)
	}
	return state
}

func absorb1(state uint64, c byte) uint64 { return (state ^ uint64(c)) * prime }

// cell returns the cell of a prefix in a table, h_τ, from the hash state after the prefix.
func (p plan) cell(table int, state uint64) uint64 {
	return mix(state+uint64(table+1)*golden) % p.b
}

// mix is the finalizer of the hash.
func mix(z uint64) uint64 {
	z = (z ^ z>>30) * 0xbf58476d1ce4e5b9
	z = (z ^ z>>27) * 0x94d049bb133111eb
	return z ^ z>>31
}

// of returns the number of the message for a padded text in a table: formula (1) of the package comment.
func (p plan) of(table int, text []byte) uint64 { return p.number(table, p.state(table, text)) }

// state returns the state of the hash after the part of a text that a table hashes. The bits of a partial byte are
// absorbed as one number.
func (p plan) state(table int, text []byte) uint64 {
	bits := p.prefix(table)
	state := absorb(p.seed, text[:bits/8])
	if rest := bits % 8; rest > 0 {
		state = absorb1(state, text[bits/8]>>(8-rest))
	}
	return state
}

// number returns the number of the message for a table, from the hash state after the hashed part.
func (p plan) number(table int, state uint64) uint64 { return p.b*uint64(table) + p.cell(table, state) }

// slots returns the task's slots: one message per client, with as few bytes as hold the number of a cell.
func (p plan) slots() task.Slots {
	bytes := uint64(1)
	for most := p.cells() - 1; most >= 256; most >>= 8 {
		bytes++
	}
	return task.Slots{Padding: task.PaddingFull, Lanes: 1, PerLane: 1, MessageBytes: bytes}
}

// gamma returns γ, the probability of a uniform cell; 0 if relays add the noise.
func (m *Mechanism) gamma() float64 { return m.krr.Gamma.Float64() }

// shares returns two probabilities. own is that of a client sending its text's message of a given table. other is that
// of its sending any given other message of the table.
func (m *Mechanism) shares() (own, other float64) {
	tables, gamma := float64(m.plan.tables()), m.gamma()
	other = gamma / (tables * float64(m.plan.b))
	return (1-gamma)/tables + other, other
}

// unit returns T/(1−γ), the number of clients that one message counts for.
func (m *Mechanism) unit() float64 { return float64(m.plan.tables()) / (1 - m.gamma()) }

// whole reports whether v is a whole number from 0 to most.
func whole(v float64, most float64) bool { return v == math.Trunc(v) && v >= 0 && v <= most }
