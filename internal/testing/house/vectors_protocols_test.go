package house_test

import (
	"errors"
	"math"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/doona-dp/doona/internal/invalid"
	"github.com/doona-dp/doona/protocols"
	"github.com/doona-dp/doona/protocols/registry"
	"github.com/doona-dp/doona/randomizer"
	"github.com/doona-dp/doona/wire/task"
)

// protocolVector is one task in a protocol's vectors. All its reports are drawn one after the other from the same
// random bytes. All its batches are added to one aggregate in order.
type protocolVector struct {
	Name, Unproven string
	Task, Bytes    hexBytes
	Reports        []struct {
		Value                 []float64
		Messages, Slots       [][]hexBytes
		MessagesEnd, SlotsEnd int
	}
	Batches []struct {
		Users uint64
		Lanes [][]hexBytes
		Total []float64

		Draws, Dummies uint64 // what the relays' noise added
	}
}

// TestVectorsProtocols: equal random bytes give equal messages and slots, and equal messages give equal estimates.
// Every protocol has vectors that must be refused.
func TestVectorsProtocols(t *testing.T) {
	for _, protocol := range registry.All() {
		name := protocol.ProtocolName()
		var vectors []protocolVector
		readVectors(t, name, &vectors)
		for _, v := range vectors {
			t.Run(name+"/"+v.Name, func(t *testing.T) {
				parsed, _ := parseTask(t, v.Task)
				require.Equal(t, name, parsed.Protocol)
				m, err := registry.Open(parsed)
				require.NoError(t, err)
				v.requireClaim(t, m)
				v.requireReports(t, m)
				v.requireEstimates(t, m)
			})
		}
		bad, err := filepath.Glob(filepath.Join(vectorDir, "bad_"+name+"_*.json"))
		require.NoError(t, err)
		require.GreaterOrEqual(t, len(bad), 3, name)
	}
}

// requireClaim requires a proven claim, or a refusal for the field that the vector names.
func (v *protocolVector) requireClaim(t *testing.T, m protocols.Mechanism) {
	err := m.CheckClaim()
	if v.Unproven == "" {
		require.NoError(t, err)
		return
	}
	requireReason(t, "field:"+v.Unproven, err)
}

// source returns a source that yields the vector's random bytes, and then bytes that mark their end.
func (v *protocolVector) source() *randomizer.Source {
	rest := append(append([]byte{}, v.Bytes...), "marks the end"...)
	return randomizer.NewSourceFrom(func(p []byte) {
		clear(p)
		rest = rest[copy(p, rest):]
	})
}

func (v *protocolVector) requireReports(t *testing.T, m protocols.Mechanism) {
	parsed, _ := parseTask(t, v.Task)
	src := v.source()
	for i, report := range v.Reports {
		messages, err := m.Randomize(src, append([]float64{}, report.Value...))
		require.NoError(t, err)
		requireLanes(t, report.Messages, messages)
		v.requireUsed(t, m, i, false)
		slots, err := protocols.Pad(parsed, src, messages)
		require.NoError(t, err)
		requireLanes(t, report.Slots, bodies(slots))
		v.requireUsed(t, m, i, true)
	}
}

// requireUsed requires that report i used the random bytes up to the offset in the vector. It draws all earlier reports
// again, because a source reads bytes ahead.
func (v *protocolVector) requireUsed(t *testing.T, m protocols.Mechanism, i int, slots bool) {
	parsed, _ := parseTask(t, v.Task)
	src := v.source()
	for j, report := range v.Reports[:i+1] {
		messages, err := m.Randomize(src, append([]float64{}, report.Value...))
		require.NoError(t, err)
		if j < i || slots {
			_, err := protocols.Pad(parsed, src, messages)
			require.NoError(t, err)
		}
	}
	end := v.Reports[i].MessagesEnd
	if slots {
		end = v.Reports[i].SlotsEnd
	}
	var next [8]byte
	src.Read(next[:])
	marked := append(append([]byte{}, v.Bytes...), "marks the end"...)
	require.Equal(t, marked[end:end+8], next[:], "report %d used more or fewer random bytes than the vector says", i)
}

// bodies returns the messages in slots, by lane. A cover is empty.
func bodies(slots [][]task.Message) protocols.Messages {
	out := make(protocols.Messages, len(slots))
	for lane := range slots {
		for _, slot := range slots[lane] {
			out[lane] = append(out[lane], slot.Body)
		}
	}
	return out
}

// requireLanes compares messages or slots by lane. A cover is empty.
func requireLanes(t *testing.T, want [][]hexBytes, got protocols.Messages) {
	t.Helper()
	require.Len(t, got, len(want))
	for lane := range want {
		require.Len(t, got[lane], len(want[lane]))
		for i := range want[lane] {
			require.Equal(t, string(want[lane][i]), string(got[lane][i]))
		}
	}
}

// requireEstimates compares the estimates after every batch, up to rounding. Compilers round differently if they fuse a
// multiplication with an addition.
func (v *protocolVector) requireEstimates(t *testing.T, m protocols.Mechanism) {
	aggregate, can := m.Aggregate(), protocols.CapabilitiesOf(m)
	for _, b := range v.Batches {
		for lane, messages := range b.Lanes {
			for _, message := range messages {
				require.NoError(t, aggregate.Add(lane, message))
			}
		}
		if can.CheckComplete != nil {
			require.NoError(t, can.CheckComplete(aggregate, b.Users))
		}
		aggregate.AddUsers(b.Users)
		if can.Dummies != nil {
			can.Dummies(aggregate).AddDummies(b.Draws, b.Dummies)
		}
		total := aggregate.Total()
		require.Len(t, total, len(b.Total))
		most := 1.0
		for _, x := range b.Total {
			most = max(most, math.Abs(x))
		}
		for i, x := range b.Total {
			require.InDelta(t, x, total[i], 1e-12*most)
		}
	}
}

// runProtocol runs a vector that a protocol must refuse and returns the error. ok is false if the vector is of another
// kind.
func (f *fault) runProtocol(t *testing.T) (err error, ok bool) {
	if !slices.Contains([]string{"mechanism", "value", "message", "messages"}, f.Kind) {
		return nil, false
	}
	parsed, _ := parseTask(t, f.Task)
	m, err := registry.Open(parsed)
	if f.Kind == "mechanism" {
		return err, true
	}
	require.NoError(t, err)
	if f.Kind == "value" {
		_, err = m.Randomize(randomizer.NewSource(), f.Value)
		return err, true
	}
	aggregate := m.Aggregate()
	if f.Kind == "message" {
		return aggregate.Add(f.Lane, f.Message), true
	}
	for lane, messages := range f.Lanes {
		for _, message := range messages {
			require.NoError(t, aggregate.Add(lane, message))
		}
	}
	return protocols.CapabilitiesOf(m).CheckComplete(aggregate, f.Users), true
}

// requireMessageReason requires that an aggregate refused a message because of its content or its lane.
func requireMessageReason(t *testing.T, err error) {
	t.Helper()
	var field *invalid.FieldError
	require.True(t, errors.As(err, &field), "%v", err)
	require.True(t, strings.HasPrefix(field.Field, "message") || field.Field == "lane", "%v", err)
}
