package accountant_test

import "math"

// histogramLaw returns the distribution of the histogram of shuffled k-ary randomized response with blanket
// probability gamma on the given inputs, by enumerating every outcome. Keys encode the counts in base 16.
func histogramLaw(k int, gamma float64, inputs []int) map[int]float64 {
	law := map[int]float64{0: 1}
	for _, x := range inputs {
		next := map[int]float64{}
		for key, pr := range law {
			for y := range k {
				q := gamma / float64(k)
				if y == x {
					q += 1 - gamma
				}
				next[key+1<<(4*y)] += pr * q
			}
		}
		law = next
	}
	return law
}

// hockeyStick returns the divergence Σ (P − e^ε·Q)₊ of two laws.
func hockeyStick(p, q map[int]float64, eps float64) float64 {
	sum := 0.0
	for key, pr := range p {
		sum += math.Max(0, pr-math.Exp(eps)*q[key])
	}
	return sum
}

// worstCase returns the largest hockey-stick divergence of the shuffled mechanism over all
// neighbouring inputs of n users.
func worstCase(k int, gamma float64, n int, eps float64) float64 {
	worst := 0.0
	eachInput(k, n-1, func(others []int) {
		for x := range k {
			for y := range k {
				if x != y {
					p := histogramLaw(k, gamma, append(others, x))
					q := histogramLaw(k, gamma, append(others, y))
					worst = math.Max(worst, hockeyStick(p, q, eps))
				}
			}
		}
	})
	return worst
}

// eachInput calls f with every vector of n values below k.
func eachInput(k, n int, f func([]int)) {
	inputs := make([]int, n, n+1)
	for {
		f(inputs)
		i := 0
		for ; i < n; i++ {
			if inputs[i]++; inputs[i] < k {
				break
			}
			inputs[i] = 0
		}
		if i == n {
			return
		}
	}
}

// revealedBrute returns δ(ε) of rule revealed. It enumerates all blanket bits and blanket histograms of n users.
func revealedBrute(k int, gamma float64, n int, eps float64) float64 {
	sum := 0.0
	blanketLaw(k, gamma, n-1, func(counts []int, pr float64) {
		ratio := float64(counts[1]) / float64(counts[0]+1)
		sum += (1 - gamma) * pr * math.Max(0, 1-math.Exp(eps)*ratio)
	})
	return sum
}

// blanketLaw calls f with every way in which n users can fill k cells from the blanket, and its probability. The same
// counts may come more than once.
func blanketLaw(k int, gamma float64, n int, f func(counts []int, pr float64)) {
	eachInput(k+1, n, func(cells []int) {
		counts, pr := make([]int, k+1), 1.0
		for _, c := range cells {
			counts[c]++
			if c == k {
				pr *= 1 - gamma
			} else {
				pr *= gamma / float64(k)
			}
		}
		f(counts, pr)
	})
}
