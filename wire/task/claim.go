package task

import (
	"github.com/doona-dp/doona/internal/decimal"
	"github.com/doona-dp/doona/internal/invalid"
)

// Epsilon is ε in (0, 100]: the decimal text from a task, and its number.
type Epsilon struct{ number }

// Delta is δ in (0, 1): the decimal text from a task, and its number.
type Delta struct{ number }

// number is a decimal text and its number. "1e-6" and "0.000001" are the same number, but give tasks with different
// ids.
type number struct {
	text  string
	value float64 // 0 if the text is not a valid decimal.
}

// Value returns the float64 nearest to the decimal. It returns 0 for an invalid text; no valid task has 0.
func (n number) Value() float64 { return n.value }

// String returns the decimal's text.
func (n number) String() string { return n.text }

const (
	wantEpsilon = "a decimal in (0, 100]"
	wantDelta   = "a decimal in (0, 1), such as 1e-6"
)

// NewEpsilon parses ε. [Task.Validate] reports an invalid text.
func NewEpsilon(text string) Epsilon { return Epsilon{newNumber(text, 100)} }

// NewDelta parses δ. [Task.Validate] reports an invalid text.
func NewDelta(text string) Delta { return Delta{newNumber(text, 1-1.0/(1<<53))} }

// NewClaim returns a claim for one epoch. It assumes n_min honest clients and has no total over all epochs.
func NewClaim(epsilon, delta string) Claim {
	return Claim{Epsilon: NewEpsilon(epsilon), Delta: NewDelta(delta)}
}

// SetTotal sets the claim over all epochs together.
func (c *Claim) SetTotal(epsilon, delta string) {
	c.Total = total{NewEpsilon(epsilon), NewDelta(delta)}
}

// newNumber parses digits, optionally followed by "." and digits, optionally followed by "e", an optional "-" and
// digits. The text has at most 24 characters. All programming languages parse such texts alike. The number must be
// above 0 and at most max.
func newNumber(text string, max float64) number {
	if len(text) > 24 {
		return number{text: text}
	}
	v, ok := decimal.Parse(text)
	if !ok || !(v > 0 && v <= max) {
		return number{text: text}
	}
	return number{text, v}
}

// Check returns an error if ε or δ is out of range, in the claim for one epoch or in the total.
func (c Claim) Check() error {
	if err := checkPair("claim", c.Epsilon, c.Delta); err != nil || c.Total.IsZero() {
		return err
	}
	return checkPair("claim.total", c.Total.Epsilon, c.Total.Delta)
}

func checkPair(field string, epsilon Epsilon, delta Delta) error {
	if epsilon.value == 0 {
		return invalid.Field(field+".epsilon", invalid.Quote(epsilon.text), wantEpsilon)
	}
	if delta.value == 0 {
		return invalid.Field(field+".delta", invalid.Quote(delta.text), wantDelta)
	}
	return nil
}
