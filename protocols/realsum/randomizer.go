package realsum

import (
	"github.com/doona-dp/doona/internal/decimal"
	"github.com/doona-dp/doona/internal/invalid"
	"github.com/doona-dp/doona/protocols"
	"github.com/doona-dp/doona/randomizer"
	"github.com/doona-dp/doona/wire/task"
)

// Randomize implements [protocols.Mechanism.Randomize].
func (m *Mechanism) Randomize(src *randomizer.Source, value []float64) (protocols.Messages, error) {
	x, err := m.unit(value)
	if err != nil {
		return nil, err
	}
	return m.krr.Report(src, src.Round(randomizer.Fixed(x), m.k)), nil
}

// unit maps a client's value into [0, 1]. For a count, the value must be 0 or 1.
func (m *Mechanism) unit(value []float64) (float64, error) {
	x, err := protocols.Unit(m.task.Input, value)
	if err == nil && m.task.Query == task.Count && x != 0 && x != 1 {
		return 0, invalid.Field("value", decimal.Format(x, -1), "0 or 1")
	}
	return x, err
}
