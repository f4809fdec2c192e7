package verifier

import (
	"math"
	"strconv"

	"github.com/doona-dp/doona/internal/decimal"
	"github.com/doona-dp/doona/protocols"
	"github.com/doona-dp/doona/protocols/registry"
	"github.com/doona-dp/doona/wire/task"
)

// Guarantee is what every client was promised.
type Guarantee struct {
	HonestFraction float64  `json:"honest_fraction"`
	NMin           uint64   `json:"n_min"`
	Epsilon        float64  `json:"epsilon"`
	Delta          float64  `json:"delta"`
	LocalEpsilon   *float64 `json:"local_epsilon"` // What remains if every relay colludes; null where nothing does.
	AloneEpsilon   *float64 `json:"alone_epsilon"` // ε′, what remains if no other client is honest; null as above.
	WorstCase      string   `json:"worst_case"`    // Both in words.
	CrowdEpsilon   float64  `json:"crowd_epsilon"` // ε in a batch with n_min honest clients.
	Gamma          *float64 `json:"gamma"`         // Blanket probability, where the protocol has one.
	Rule           string   `json:"rule"`
	Promise        string   `json:"promise"`
	// Assumption is "crowd", n_min honest clients in a batch, or "none": no other client need be honest.
	Assumption string `json:"assumption"`
}

func describeGuarantee(t *task.Task, m protocols.Mechanism) (*Guarantee, error) {
	promise, err := Promise(t)
	if err != nil {
		return nil, err
	}
	g := &Guarantee{HonestFraction: t.Batch.Honest.Float64(), NMin: t.Batch.Min, Epsilon: t.Claim.Epsilon.Value(),
		Delta: t.Claim.Delta.Value(), Rule: t.Rule, Promise: promise, Assumption: t.Claim.Assumption.String()}
	g.AloneEpsilon, g.LocalEpsilon = Alone(t, m)
	g.WorstCase, g.CrowdEpsilon = WorstCase(t, m), CrowdEpsilon(t, m)
	if gamma, ok := t.Param("gamma"); ok {
		value := gamma.Float64()
		g.Gamma = &value
	}
	return g, nil
}

// NoneHonest says whether the guarantee needs no other client to be honest.
func (g *Guarantee) NoneHonest() bool { return g.Assumption == task.NoneHonest.String() }

// Promise returns a task's guarantee in the words used wherever it is stated.
func Promise(t *task.Task) (string, error) {
	needs, caveat, err := Needs(t)
	text := "(epsilon, delta)-DP by substitution against the verifier and everyone after it, provided " + needs +
		". That a client took part is not protected."
	if caveat != "" {
		text += " " + caveat
	}
	return text, err
}

// Alone returns ε′ and ε₀: what is left of a client if no other client is honest, and if all relays collude with the
// verifier; nil for nothing.
func Alone(t *task.Task, m protocols.Mechanism) (alone, local *float64) {
	if left := m.Epsilon0(); !math.IsInf(left, 1) {
		alone, local = &left, &left
	}
	if t.Claim.Assumption == task.NoneHonest {
		claimed := t.Claim.Epsilon.Value()
		alone = &claimed
	}
	return alone, local
}

// CrowdEpsilon returns the ε of a client in a batch with n_min honest clients: what a task claims for it, or less
// where clients randomize though the claim needs none of them.
func CrowdEpsilon(t *task.Task, m protocols.Mechanism) float64 {
	if crowd := protocols.CapabilitiesOf(m).CrowdEpsilon; crowd != nil {
		return crowd(t.Batch.Min, t.Claim.Delta.Value())
	}
	return t.Claim.Epsilon.Value()
}

// WithCrowd says what holds beyond the claim, which needs no other client, in a batch with n_min honest ones; empty
// where the claim needs them.
func WithCrowd(t *task.Task, m protocols.Mechanism) string {
	if t.Claim.Assumption != task.NoneHonest {
		return ""
	}
	return "With n_min = " + strconv.FormatUint(t.Batch.Min, 10) + " honest clients in a batch, epsilon is " +
		decimal.Up(CrowdEpsilon(t, m)*(1-1e-9), 3) + "."
}

// WorstCase says what remains of one client if no other client is honest, and if all relays collude: in the
// words of the SDK's explain().
func WorstCase(t *task.Task, m protocols.Mechanism) string {
	left := "nothing is left"
	if local := m.Epsilon0(); !math.IsInf(local, 1) {
		left = "epsilon " + decimal.Up(local*(1-1e-9), 3) + " is left"
	}
	alone := left
	if t.Claim.Assumption == task.NoneHonest {
		alone = "the promise holds all the same"
	}
	return "If nobody else who reports is honest, " + alone + ". If all relays work with the verifier, " + left + "."
}

// Needs returns what a task's guarantee needs, and what it rests on besides, or "" (docs/proofs/slots.md).
func Needs(t *task.Task) (needs, caveat string, err error) {
	if t.Claim.Assumption == task.NoneHonest {
		return "one relay does not collude: what it adds hides each client, and no other client need be honest",
			exactAnswers(t), nil
	}
	trust, err := registry.TrustOf(t)
	relay := "a first"
	if trust != registry.TrustFirst {
		relay = "one"
	}
	if trust == registry.TrustWhole {
		caveat = wholeClients
	}
	return "at least n_min honest clients' messages reach " + relay + " relay that does not collude", caveat, err
}

// exactAnswers says what the verifier receives where relays add the noise.
func exactAnswers(t *task.Task) string {
	if _, local := t.Param("gamma"); local {
		return "The verifier receives randomized answers, unlinked."
	}
	return "The verifier receives exact answers, unlinked, among dummies."
}

// wholeClients is what the guarantee rests on where the proofs take all messages of n_min clients in one
// batch.
const wholeClients = "Clients send several messages each: those of one client must stay in one batch, and a first " +
	"relay that deviates can part them."
