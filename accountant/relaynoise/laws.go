package relaynoise

import "github.com/doona-dp/doona/wire/task"

// Law is a distribution on whole numbers: Mass[i] is the probability of First+i.
type Law struct {
	First int
	Mass  []float64
}

// newLaw returns the law of weights, which need not sum to 1.
func newLaw(first int, weights []float64) Law {
	sum, law := 0.0, Law{first, make([]float64, len(weights))}
	for _, w := range weights {
		sum += w
	}
	for i, w := range weights {
		law.Mass[i] = w / sum
	}
	return law
}

// Mean returns the mean.
func (l Law) Mean() (mean float64) {
	for i, p := range l.Mass {
		mean += p * float64(l.First+i)
	}
	return mean
}

// Variance returns the variance.
func (l Law) Variance() (variance float64) {
	mean := l.Mean()
	for i, p := range l.Mass {
		d := float64(l.First+i) - mean
		variance += p * d * d
	}
	return variance
}

// Laws are the distributions of the dummies that one relay adds to one batch. Use them for estimates only: they carry
// rounding errors, and unlike [Curve] they are no upper bounds.
type Laws struct {
	Cells []Law // Number of dummies of each cell.
	Sum   Law   // Of Σ_j weight_j·Z_j; only for a tilted law.
}

// Dummies returns the mean number of dummies of all cells together.
func (l *Laws) Dummies() (mean float64) {
	for _, law := range l.Cells {
		mean += law.Mean()
	}
	return mean
}

// NewLaws returns the laws of a noise that [New] accepts.
func NewLaws(n *task.Noise) (*Laws, error) {
	_, s, err := newCurve(n, 1)
	if err != nil {
		return nil, err
	}
	l := &Laws{}
	switch {
	case n.Tilt != nil:
		if s == nil { // The curve of a Gaussian tilt takes no spectrum.
			if s, err = newSpectrum(newTilt(n)); err != nil {
				return nil, err
			}
		}
		return s.lawsOf(), nil
	case n.Rest != nil:
		l.withRest(n)
	case n.Total != nil:
		l.fixedTotal(n)
	default:
		laws, _ := tables(n)
		n.Each(func(_ uint64, run task.Run) {
			for range run.Count {
				l.Cells = append(l.Cells, Law{Mass: laws[run.Table]})
			}
		})
	}
	return l, nil
}

func (l *Laws) fixedTotal(n *task.Noise) {
	laws, _ := tables(n)
	f, total, others := laws[0], int(*n.Total), []float64{1}
	for range n.Cells - 1 {
		others = convolve(others, f, total)
	}
	weights := make([]float64, len(f))
	for z, p := range f {
		weights[z] = p * at(others, total-z)
	}
	law := newLaw(0, weights)
	for range n.Cells {
		l.Cells = append(l.Cells, law)
	}
}

// lawsOf returns the laws of a tilted noise.
func (s *spectrum) lawsOf() *Laws {
	l := &Laws{}
	for j, w := range s.weights {
		weights := make([]float64, len(s.law(j)))
		for i, m := range s.kept {
			s.addWave(weights, complex(s.hat[i], 0)*s.before[i][j]*s.after[i][j+1], m*w)
		}
		for z, p := range s.law(j) {
			weights[z] *= p
		}
		l.Cells = append(l.Cells, newLaw(0, weights))
	}
	l.Sum = newLaw(s.centre-len(s.factors)+1, s.sums())
	return l
}

// sums returns the distribution of the weighted sum before the tilt, times a constant, at distances from the centre for
// which there is a factor.
func (s *spectrum) sums() []float64 {
	reach := len(s.factors) - 1
	law := make([]float64, 2*reach+1)
	for i, m := range s.kept {
		part := s.before[i][0] * s.after[i][0]
		if m > 0 && m < s.size/2 {
			part *= 2
		}
		s.addWave(law, part*s.turn(m*reach), -m)
	}
	for x := range law {
		law[x] = max(0, law[x]) * s.factors[max(x-reach, reach-x)]
	}
	return law
}

// addWave adds the real part of part·e^{2πi·at·z/N} to element z of out.
func (s *spectrum) addWave(out []float64, part complex128, at int) {
	var cos, sin [blockSize]float64
	for r := range cos {
		turn := s.turn(at * r)
		cos[r], sin[r] = real(turn), imag(turn)
	}
	for z := 0; z < len(out); z += blockSize {
		turned := part * s.turn(at*z)
		re, im := real(turned), imag(turned)
		for r := range out[z:min(z+blockSize, len(out))] {
			out[z+r] += re*cos[r] - im*sin[r]
		}
	}
}
