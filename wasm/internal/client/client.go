// Package client is what both WASM modules share: it opens a task from its canonical form, checks its claim, and
// turns one client's value into slots.
//
// exports.go gives it to the host as WASM functions; docs/wasm.md is the ABI. The rest of the package is plain Go and
// runs natively in tests. It is linked into doona.wasm: no fmt, no reflection, no crypto.
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

// Client randomizes values for one task whose claim has been checked. It is not safe for
// concurrent use.
type Client struct {
	task      *task.Task
	mechanism protocols.Mechanism
	source    *randomizer.Source
	law       func() (*compose.Law, error) // Derived once.
}

// Open parses the canonical form of a task and checks what the task promises: its parameters
// must derive a guarantee at least as strong as its claim. The error names the field.
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

// once returns a function that derives a law at its first call.
func once(derive func() (*compose.Law, error)) func() (*compose.Law, error) {
	var law *compose.Law
	return func() (_ *compose.Law, err error) {
		if law == nil {
			law, err = derive()
		}
		return law, err
	}
}

// Epsilon0 returns the ε₀ of one client's messages against an adversary who knows their sender; +Inf if the protocol
// has none.
func (c *Client) Epsilon0() float64 { return c.mechanism.Epsilon0() }

// TotalEpsilon returns the ε of all epochs of the task together, at the δ of its total or, without one, at the sum of
// the epochs' δ. It is the claimed ε, or else an upper bound from composition.
func (c *Client) TotalEpsilon() float64 {
	if total := c.task.Claim.Total; !total.IsZero() {
		return total.Epsilon.Value()
	}
	added := protocols.AddedClaims(c.task.Claim, c.task.Epochs.Count)
	eps, err := protocols.EpochsEpsilon(c.task, c.law, c.task.Epochs.Count, added.Delta)
	if err != nil { // No law: the claims add up.
		return added.Epsilon
	}
	return eps
}

// EpsilonWithin returns the ε of a number of epochs together at a δ ([protocols.EpochsEpsilon]); +Inf if there is none.
func (c *Client) EpsilonWithin(epochs uint64, delta float64) float64 {
	eps, err := protocols.EpochsEpsilon(c.task, c.law, epochs, delta)
	if err != nil {
		return math.Inf(1)
	}
	return eps
}

// Slots randomizes one value, which it zeroes, and pads the messages to slots by lane. The caller must keep the
// result of at most one call per task and epoch.
func (c *Client) Slots(value []float64) ([][]task.Message, error) {
	defer clear(value)
	messages, err := c.mechanism.Randomize(c.source, value)
	if err != nil {
		return nil, err
	}
	return protocols.Pad(c.task, c.source, messages)
}

// Forget zeroes slots that have been written or sealed.
func Forget(slots [][]task.Message) {
	for _, lane := range slots {
		for _, message := range lane {
			clear(message.Body)
		}
	}
}

// The first byte of a plaintext slot, as in package onion.
const (
	kindCover   = 0
	kindMessage = 1
)

// Plaintexts encodes slots for the host: for each lane their number in 4 bytes, little endian, and then every slot as
// kind ‖ message, all of one size. A cover's message is zeros.
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

// EncodeError encodes an error for the host: strings, each after its length in 4 bytes, little endian. A field error
// has three, field, got and want; any other has its message.
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
