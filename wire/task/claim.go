package task

import (
	"strconv"
	"strings"

	"github.com/doona-dp/doona/internal/invalid"
)

// Epsilon is ε as the decimal text in a task, parsed once. In (0, 100].
type Epsilon struct{ decimal }

// Delta is δ as the decimal text in a task, parsed once. In (0, 1).
type Delta struct{ decimal }

// decimal is a text and its number. "1e-6" and "0.000001" are one number, but make two tasks.
type decimal struct {
	text  string
	value float64 // 0 if the text is not a valid decimal.
}

// Value returns the number nearest to the decimal, or 0 if it is invalid; no valid task has 0.
func (d decimal) Value() float64 { return d.value }

// String returns the decimal's text.
func (d decimal) String() string { return d.text }

const (
	wantEpsilon = "a decimal in (0, 100]"
	wantDelta   = "a decimal in (0, 1), such as 1e-6"
)

// NewEpsilon parses ε. [Task.Validate] reports an invalid text.
func NewEpsilon(text string) Epsilon { return Epsilon{newDecimal(text, 100)} }

// NewDelta parses δ. [Task.Validate] reports an invalid text.
func NewDelta(text string) Delta { return Delta{newDecimal(text, 1-1.0/(1<<53))} }

// NewClaim returns the claim of one epoch, which assumes n_min honest clients and has no total.
func NewClaim(epsilon, delta string) Claim {
	return Claim{Epsilon: NewEpsilon(epsilon), Delta: NewDelta(delta)}
}

// SetTotal sets the claim over all epochs.
func (c *Claim) SetTotal(epsilon, delta string) {
	c.Total = Total{NewEpsilon(epsilon), NewDelta(delta)}
}

// newDecimal parses digits, optionally "." and digits, optionally "e", an optional "-" and digits: at most 24
// characters, which all languages parse alike.
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

// Check returns an error if ε or δ, of an epoch or of all epochs, is out of range.
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
