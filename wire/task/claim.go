package task

import (
	"strconv"
	"strings"

	"github.com/doona-dp/doona/internal/invalid"
)

// Epsilon is ε, read once from the decimal that a task writes it in. In (0, 100].
type Epsilon struct{ decimal }

// Delta is δ, read once from the decimal that a task writes it in. In (0, 1).
type Delta struct{ decimal }

// decimal is a text and the number it stands for. "1e-6" and "0.000001" are one number, and make two
// tasks.
type decimal struct {
	text  string
	value float64 // 0 where the text is not such a decimal.
}

// Value returns the number nearest to the decimal, or 0 where there is none: no valid task has it.
func (d decimal) Value() float64 { return d.value }

// String returns the decimal as it was written.
func (d decimal) String() string { return d.text }

const (
	wantEpsilon = "a decimal in (0, 100]"
	wantDelta   = "a decimal in (0, 1), such as 1e-6"
)

// NewEpsilon reads ε. [Task.Validate] refuses what is none.
func NewEpsilon(text string) Epsilon { return Epsilon{newDecimal(text, 100)} }

// NewDelta reads δ. [Task.Validate] refuses what is none.
func NewDelta(text string) Delta { return Delta{newDecimal(text, 1-1.0/(1<<53))} }

// NewClaim reads the claim of one epoch, with honest clients and no total.
func NewClaim(epsilon, delta string) Claim {
	return Claim{Epsilon: NewEpsilon(epsilon), Delta: NewDelta(delta)}
}

// SetTotal reads the claim of all epochs.
func (c *Claim) SetTotal(epsilon, delta string) {
	c.Total = Total{NewEpsilon(epsilon), NewDelta(delta)}
}

// newDecimal parses digits, optionally "." and digits, optionally "e", an optional "-" and digits: at
// most 24 characters, which all languages read alike.
func newDecimal(text string, max float64) decimal {
	number, exponent, hasExponent := strings.Cut(text, "e")
	whole, fraction, hasFraction := strings.Cut(number, ".")
	ok := len(text) <= 24 && isDigits(whole) && (!hasFraction || isDigits(fraction)) &&
		(!hasExponent || isDigits(strings.TrimPrefix(exponent, "-")))
	v, err := strconv.ParseFloat(text, 64)
	if !ok || err != nil || !(v > 0 && v <= max) {
		return decimal{text: text}
	}
	return decimal{text, v}
}

func isDigits(s string) bool { return s != "" && strings.Trim(s, "0123456789") == "" }

// Check is an error where ε or δ, of an epoch or of all of them, is not in its range.
func (c Claim) Check() error {
	if err := checkPair("claim", c.Epsilon, c.Delta); err != nil || c.Total.IsZero() {
		return err
	}
	return checkPair("claim.total", c.Total.Epsilon, c.Total.Delta)
}

func checkPair(field string, epsilon Epsilon, delta Delta) error {
	if epsilon.value == 0 {
		return invalid.Field(field+".epsilon", strconv.Quote(epsilon.text), wantEpsilon)
	}
	if delta.value == 0 {
		return invalid.Field(field+".delta", strconv.Quote(delta.text), wantDelta)
	}
	return nil
}
