package realsum

import (
	"github.com/doona-dp/doona/protocols"
	"github.com/doona-dp/doona/randomizer"
)

// Randomize implements [protocols.Mechanism.Randomize].
func (m *Mechanism) Randomize(src *randomizer.Source, value []float64) (protocols.Messages, error) {
	x, err := protocols.Number(m.task, value)
	if err != nil {
		return nil, err
	}
	return m.krr.Report(src, src.Round(randomizer.Fixed(x), m.k)), nil
}
