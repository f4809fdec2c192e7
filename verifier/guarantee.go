package verifier

import (
	"math"
	"strconv"

	"github.com/doona-dp/doona/internal/decimal"
	"github.com/doona-dp/doona/protocols"
	"github.com/doona-dp/doona/protocols/registry"
	"github.com/doona-dp/doona/wire/task"
)

// Guarantee is a task's privacy guarantee to every client.
type Guarantee struct {
	HonestFraction  float64  `json:"honest_fraction"`
	NMin            uint64   `json:"n_min"`
	Epsilon         float64  `json:"epsilon"`
	Delta           float64  `json:"delta"`
	LocalEpsilon    *float64 `json:"local_epsilon"`     // ε₀, if all relays collude; null if infinite.
	EpsilonNoHonest *float64 `json:"epsilon_no_honest"` // ε′, if no other client is honest; null if infinite.
	WorstCase       string   `json:"worst_case"`        // Describes EpsilonNoHonest and LocalEpsilon in words.
	EpsilonHonest   float64  `json:"epsilon_honest"`    // ε in a batch with n_min honest clients.
	Gamma           *float64 `json:"gamma"`             // The blanket probability γ; null if the protocol has none.
	Rule            string   `json:"rule"`
	Promise         string   `json:"promise"`
	// Assumption is "min-honest" (n_min honest clients in a batch) or "none" (no other client needs to be honest).
	Assumption string `json:"assumption"`
}

func describeGuarantee(t *task.Task, m protocols.Mechanism) (*Guarantee, error) {
	promise, err := Promise(t)
	if err != nil {
		return nil, err
	}
	g := &Guarantee{HonestFraction: t.Batch.Honest.Float64(), NMin: t.Batch.Min, Epsilon: t.Claim.Epsilon.Value(),
		Delta: t.Claim.Delta.Value(), Rule: t.Rule, Promise: promise, Assumption: t.Claim.Assumption.String()}
	g.EpsilonNoHonest, g.LocalEpsilon = WorstCaseEpsilons(t, m)
	g.WorstCase, g.EpsilonHonest = WorstCase(t, m), EpsilonHonest(t, m)
	if gamma, ok := t.Param("gamma"); ok {
		value := gamma.Float64()
		g.Gamma = &value
	}
	return g, nil
}

// NoneHonest reports whether the guarantee holds without any other honest client.
func (g *Guarantee) NoneHonest() bool { return g.Assumption == task.NoneHonest.String() }

// Promise returns a task's guarantee in words. All programs use these words.
func Promise(t *task.Task) (string, error) {
	needs, caveat, err := Needs(t)
	text := "(epsilon, delta)-DP by substitution against the verifier and everyone after it, provided " + needs +
		". It is not hidden that a client took part."
	if caveat != "" {
		text += " " + caveat
	}
	if e := t.Epochs.Events; !e.IsZero() {
		text += " " + e.Uncounted()
	}
	return text, err
}

// WorstCaseEpsilons returns two values of a client's ε: ε′ if no other client is honest, and ε₀ if all relays collude
// with the verifier. nil means infinite.
func WorstCaseEpsilons(t *task.Task, m protocols.Mechanism) (noHonest, local *float64) {
	if left := m.Epsilon0(); !math.IsInf(left, 1) {
		noHonest, local = &left, &left
	}
	if t.Claim.Assumption == task.NoneHonest {
		claimed := t.Claim.Epsilon.Value()
		noHonest = &claimed
	}
	return noHonest, local
}

// EpsilonHonest returns a client's ε in a batch with n_min honest clients. This is the task's claim. It is less if the
// claim needs no honest clients, but clients randomize their values.
func EpsilonHonest(t *task.Task, m protocols.Mechanism) float64 {
	if honest := protocols.CapabilitiesOf(m).EpsilonHonest; honest != nil {
		return honest(t.Batch.Min, t.Claim.Delta.Value())
	}
	return t.Claim.Epsilon.Value()
}

// WithHonest describes in words the smaller ε in a batch with n_min honest clients, for a task whose claim needs no
// honest client. For other tasks it returns "".
func WithHonest(t *task.Task, m protocols.Mechanism) string {
	if t.Claim.Assumption != task.NoneHonest {
		return ""
	}
	return "With n_min = " + strconv.FormatUint(t.Batch.Min, 10) + " honest clients in a batch, epsilon is " +
		decimal.Up(EpsilonHonest(t, m)*(1-1e-9), 3) + "."
}

// WorstCase describes in words a client's privacy if no other client is honest, and if all relays collude. It uses the
// same words as explain() of the SDK.
func WorstCase(t *task.Task, m protocols.Mechanism) string {
	left := "no protection remains"
	if local := m.Epsilon0(); !math.IsInf(local, 1) {
		left = "epsilon " + decimal.Up(local*(1-1e-9), 3) + " remains"
	}
	noHonest := left
	if t.Claim.Assumption == task.NoneHonest {
		noHonest = "the guarantee still holds"
	}
	return "If nobody else who reports is honest, " + noHonest + ". If all relays work with the verifier, " + left + "."
}

// Needs returns in words what a task's guarantee assumes, and a caveat or "". docs/proofs/slots.md explains both.
func Needs(t *task.Task) (needs, caveat string, err error) {
	if t.Claim.Assumption == task.NoneHonest {
		return "one relay does not collude: its dummies hide each client, and no other client needs to be honest",
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

// exactAnswers describes what the verifier learns if relays add the noise.
func exactAnswers(t *task.Task) string {
	if _, local := t.Param("gamma"); local {
		return "The verifier receives randomized answers, unlinked."
	}
	return "The verifier receives exact answers, unlinked, among dummies."
}

// wholeClients is the caveat for protocols whose proofs need all messages of n_min clients to be in one batch.
const wholeClients = "Each client sends several messages, which must stay in one batch. A malicious first relay can " +
	"separate them."
