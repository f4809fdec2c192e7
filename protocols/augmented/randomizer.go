package augmented

import (
	"github.com/doona-dp/doona/protocols"
	"github.com/doona-dp/doona/randomizer"
	"github.com/doona-dp/doona/wire/task"
)

// Randomize implements [protocols.Mechanism.Randomize].
func (m *Mechanism) Randomize(src *randomizer.Source, value []float64) (protocols.Messages, error) {
	cell, err := m.cell(src, value)
	if err != nil {
		return nil, err
	}
	if m.gamma() == 0 {
		return m.krr.Certain(cell), nil
	}
	return m.krr.Report(src, cell), nil
}

// cell returns the cell that a client with this value sends, before local randomization. It rounds the value of a sum
// stochastically.
func (m *Mechanism) cell(src *randomizer.Source, value []float64) (uint64, error) {
	if m.task.Query == task.Histogram {
		return protocols.Category(m.task.Input, value)
	}
	x, err := protocols.Number(m.task, value)
	if err != nil {
		return 0, err
	}
	return src.Round(randomizer.Fixed(x), m.krr.K-1), nil
}
