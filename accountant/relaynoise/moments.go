package relaynoise

import "github.com/doona-dp/doona/wire/task"

// Moments are those of the dummies that one relay adds to one batch.
type Moments struct {
	Mean     []float64 // By cell: the mean number of dummies.
	Variance []float64 // By cell: of that number.
	Sum      float64   // Variance of Σ_j weight_j·Z_j, of a tilted law.
	MeanSum  float64   // Its mean.
}

// NewMoments returns the moments of a law that [New] takes, with the error of rounding.
func NewMoments(n *task.Noise) (*Moments, error) {
	if _, err := New(n); err != nil {
		return nil, err
	}
	m := &Moments{}
	switch {
	case n.Tilt != nil:
		return m, m.tilted(n)
	case n.Total != nil:
		m.fixedTotal(n)
	default:
		laws, _ := tables(n)
		n.Each(func(_ uint64, run task.Run) {
			for range run.Count {
				m.add(laws[run.Table])
			}
		})
	}
	return m, nil
}

// add appends a cell with a law, which need not sum to 1.
func (m *Moments) add(law []float64) {
	mass, mean, square := 0.0, 0.0, 0.0
	for z, p := range law {
		mass, mean = mass+p, mean+p*float64(z)
	}
	mean /= mass
	for z, p := range law {
		square += p * (float64(z) - mean) * (float64(z) - mean)
	}
	m.Mean, m.Variance = append(m.Mean, mean), append(m.Variance, square/mass)
}

func (m *Moments) fixedTotal(n *task.Noise) {
	laws, _ := tables(n)
	f, total, others := laws[0], int(*n.Total), []float64{1}
	for range n.Cells - 1 {
		others = convolve(others, f, total)
	}
	law := make([]float64, len(f))
	for z, p := range f {
		law[z] = p * at(others, total-z)
	}
	for range n.Cells {
		m.add(law)
	}
}

func (m *Moments) tilted(n *task.Noise) error {
	s, err := newSpectrum(newTilt(n))
	if err != nil {
		return err
	}
	for j := range s.weights {
		law := make([]float64, len(s.law(j)))
		for z, p := range s.law(j) {
			law[z] = p * s.expect(j, z)
		}
		m.add(law)
	}
	sums := &Moments{}
	sums.add(s.sums())
	m.MeanSum = sums.Mean[0] - float64(len(s.factors)-1) + float64(s.centre)
	m.Sum = sums.Variance[0]
	return nil
}

// sums returns the law of the weighted sum, less the centre and shifted by the factors' reach, under the
// tilt and times a constant.
func (s *spectrum) sums() []float64 {
	reach := len(s.factors) - 1
	law := make([]float64, 2*reach+1)
	for i, m := range s.kept {
		part := s.before[i][0] * s.after[i][0]
		if m > 0 && m < s.size/2 {
			part *= 2
		}
		for x := range law {
			law[x] += real(part * s.turn(-m*(x-reach)))
		}
	}
	for x := range law {
		law[x] *= s.factors[max(x-reach, reach-x)]
	}
	return law
}
