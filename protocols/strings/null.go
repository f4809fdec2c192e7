package strings

// law is that of a number of messages, on a grid: p[i] is the probability of least + i·step.
type law struct {
	least, step int
	p           []float64
}

// mostSteps is how many steps of a grid a cell has at most: with more messages than that, steps are larger than 1.
const mostSteps = 1 << 10

// null returns the law of [scene.capped] for a text that nobody has: in each of the tables its cell is any that is not
// claimed. A share of them is as full as counts, those that have more messages than the background has, and one more in
// each table, as if the text's own were; alone, none is. The others are negative binomial, or Poisson, with the
// background's mean and variance. On a grid each cell's messages are rounded up, so that limits are rather too high.
func (s *scene) null(tables []int, ref float64, alone bool) law {
	spreads, step := make([]law, len(tables)), 1
	for i, table := range tables {
		spreads[i] = spread(s.mean[table], s.variance[table])
		step = max(step, (s.capAt(table, ref)-spreads[i].least+mostSteps-1)/mostSteps)
	}
	sum := law{step: step, p: []float64{1}}
	for i, table := range tables {
		full := 0.0
		if !alone {
			full = float64(s.full[table]+1) / float64(s.free[table]+1)
		}
		sum = sum.plus(spreads[i].cell(s.capAt(table, ref), step, min(full, 1)))
	}
	return sum
}

// cell returns the law of the messages in any cell of a table, up to limit, on a grid, a share of the cells being full.
func (l law) cell(limit, step int, full float64) law {
	last := (limit - l.least + step - 1) / step
	p := make([]float64, last+1)
	for i, q := range l.p {
		p[min((i+step-1)/step, last)] += q * (1 - full)
	}
	p[last] += full
	return law{l.least, step, p}
}

// unlikely is the share of the likeliest number's probability below which others are left out.
const unlikely = 1e-25

// spread returns a negative binomial law, or Poisson's if the variance is no more than the mean. It goes up and down
// from the mean, so that nothing underflows whatever the mean is.
func spread(mean, variance float64) law {
	ratio := func(k float64) float64 { return mean / (k + 1) } // Pr[k+1] / Pr[k]
	if over := variance - mean; over > 1e-6*mean {
		r, q := mean*mean/over, over/variance
		ratio = func(k float64) float64 { return q * (r + k) / (k + 1) }
	}
	middle := int(mean)
	var down []float64 // From the middle on.
	for k, p := middle, 1.0; k >= 0 && p > unlikely; k-- {
		down = append(down, p)
		p /= ratio(float64(k - 1))
	}
	out := law{least: middle - len(down) + 1, step: 1}
	for i := range down {
		out.p = append(out.p, down[len(down)-1-i])
	}
	for k, p := middle, ratio(float64(middle)); p > unlikely; k++ {
		out.p = append(out.p, p)
		p *= ratio(float64(k + 1))
	}
	total := 0.0
	for _, p := range out.p {
		total += p
	}
	for i := range out.p {
		out.p[i] /= total
	}
	return out
}

// plus returns the law of the sum of two independent numbers on grids of the same step.
func (l law) plus(o law) law {
	sum := law{l.least + o.least, l.step, make([]float64, len(l.p)+len(o.p)-1)}
	for i, p := range l.p {
		if p == 0 {
			continue
		}
		for j, q := range o.p {
			sum.p[i+j] += p * q
		}
	}
	return sum
}

// threshold returns the least number that the law reaches with a probability of at most p: one step more than any if
// there is none.
func (l law) threshold(p float64) float64 {
	tail := 0.0
	for k := len(l.p) - 1; k >= 0; k-- {
		if tail += l.p[k]; tail > p {
			return float64(l.least + (k+1)*l.step)
		}
	}
	return float64(l.least)
}

// quantile returns the least number of messages, on the grid, that the law exceeds with a probability of 1 − u at most.
func (l law) quantile(u float64) uint64 {
	for k, p := range l.p {
		if u -= p; u <= 0 {
			return uint64(l.least + k*l.step)
		}
	}
	return uint64(l.least + (len(l.p)-1)*l.step)
}
