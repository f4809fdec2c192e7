// Package client is shared by doona.wasm and doona-full.wasm. It parses a task's canonical encoding, checks the task's
// claimed (ε, δ), and converts a client's value to slots.
//
// exports.go exports it to the host (docs/wasm.md). The rest is plain Go, which tests run natively. To keep doona.wasm
// small, the package must not link fmt, reflection or crypto.
package client

import (
	"math"

	"github.com/doona-dp/doona/accountant/compose"
	"github.com/doona-dp/doona/internal/invalid"
	"github.com/doona-dp/doona/protocols"
	"github.com/doona-dp/doona/protocols/registry"
	"github.com/doona-dp/doona/randomizer"
	"github.com/doona-dp/doona/wire/task"
)

// Client randomizes values for one task whose claimed (ε, δ) was checked. It is not safe for concurrent use.
type Client struct {
	task      *task.Task
	mechanism protocols.Mechanism
	source    *randomizer.Source
	law       func() (*compose.Law, error) // Computes the privacy loss distribution at its first call.
}

// Open parses a task's canonical encoding. It checks that the task's parameters guarantee at least the claimed (ε, δ).
// The error names the field.
func Open(canonical []byte) (*Client, error) {
	t, err := task.Parse(canonical)
	if err != nil {
		return nil, err
	}
	m, err := registry.Open(t)
	if err != nil {
		return nil, err
	}
	if err := m.CheckClaim(); err != nil {
		return nil, err
	}
	return &Client{t, m, randomizer.NewSource(), once(m.Law)}, nil
}

// once returns a function that calls derive only at its first call.
func once(derive func() (*compose.Law, error)) func() (*compose.Law, error) {
	var law *compose.Law
	return func() (_ *compose.Law, err error) {
		if law == nil {
			law, err = derive()
		}
		return law, err
	}
}

// Epsilon0 returns ε₀: the privacy of one client's messages against an adversary who knows their sender. It is +Inf if
// the protocol has none.
func (c *Client) Epsilon0() float64 { return c.mechanism.Epsilon0() }

// TotalEpsilon returns the ε of all reports of one browser for the task together. It is the ε of the task's claimed
// total, if there is one. Otherwise it is an upper bound by composition, at the sum of the epochs' δ.
func (c *Client) TotalEpsilon() float64 {
	if total := c.task.Claim.Total; !total.IsZero() {
		return total.Epsilon.Value()
	}
	reports := c.task.MostCopies(c.task.Epochs.Count)
	added := protocols.AddedClaims(c.task.Claim, reports)
	eps, err := protocols.EpochsEpsilon(c.task, c.law, reports, added.Delta)
	if err != nil { // no loss distribution is known: add the epochs' ε
		return added.Epsilon
	}
	return eps
}

// EpsilonWithin returns the ε of a number of epochs together at a δ ([protocols.EpochsEpsilon]). It returns +Inf if
// there is no bound.
func (c *Client) EpsilonWithin(epochs uint64, delta float64) float64 {
	eps, err := protocols.EpochsEpsilon(c.task, c.law, epochs, delta)
	if err != nil {
		return math.Inf(1)
	}
	return eps
}

// Slots randomizes one value, which it zeroes, and fills every lane with messages and covers. Per task and epoch, the
// caller must use one result at most.
func (c *Client) Slots(value []float64) ([][]task.Message, error) {
	defer clear(value)
	messages, err := c.mechanism.Randomize(c.source, value)
	if err != nil {
		return nil, err
	}
	return protocols.Pad(c.task, c.source, messages)
}

// Forget zeroes slots that the caller has written or sealed.
func Forget(slots [][]task.Message) {
	for _, lane := range slots {
		for _, message := range lane {
			clear(message.Body)
		}
	}
}

// The first byte of a plaintext slot says whether it holds a cover or a message, as in package onion.
const (
	kindCover   = 0
	kindMessage = 1
)

// Plaintexts encodes slots for the host. Each lane is its number of slots (4 bytes, little endian), then the slots.
// Each slot is kind ‖ message; all have one size. The message of a cover is zeros.
func (c *Client) Plaintexts(slots [][]task.Message) []byte {
	out := make([]byte, 0, int(c.task.Slots.Lanes)*(4+int(c.task.Slots.PerLane)*c.slotSize()))
	for _, lane := range slots {
		out = appendUint32(out, len(lane))
		for _, message := range lane {
			if message.Cover {
				out = append(out, kindCover)
				out = append(out, make([]byte, c.task.Slots.MessageBytes)...)
				continue
			}
			out = append(out, kindMessage)
			out = append(out, message.Body...)
		}
	}
	return out
}

func (c *Client) slotSize() int { return 1 + int(c.task.Slots.MessageBytes) }

// EncodeError encodes an error for the host as strings, each after its length in 4 bytes, little endian. A field error
// has three strings: field, got and want. Any other has one, its message.
func EncodeError(err error) []byte {
	field, ok := err.(*invalid.FieldError) // errors.As would link reflection
	if !ok {
		return appendString(nil, err.Error())
	}
	return appendString(appendString(appendString(nil, field.Field), field.Got), field.Want)
}

func appendString(out []byte, s string) []byte {
	return append(appendUint32(out, len(s)), s...)
}

func appendUint32(out []byte, n int) []byte {
	return append(out, byte(n), byte(n>>8), byte(n>>16), byte(n>>24))
}
