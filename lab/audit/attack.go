package audit

import (
	"math"
	"slices"

	"github.com/doona-dp/doona/randomizer"
)

// attack computes the attacker's result for one batch: a view (numbers as text) or, if the view is empty, a score. pair
// holds the victim's value in world 0 and in world 1.
type attack func(r *deployment, t *batchView, pair [2][]float64) (view string, score float64, err error)

// byAnswer scores the verifier's answer by its projection on the difference of the two values. For noise added to a sum
// the likelihood ratio of the two worlds rises with this score, or almost.
func byAnswer(r *deployment, t *batchView, pair [2][]float64) (string, float64, error) {
	totals, err := r.totals(t.lanes, uint64(len(t.sizes)), t.added)
	if err != nil {
		return "", 0, err
	}
	towards, err := r.direction(pair)
	if err != nil {
		return "", 0, err
	}
	score := 0.0
	for j, x := range towards {
		score += x * totals[j]
	}
	return "", math.Round(score*1e6) / 1e6, nil // Rounded, so that equal answers have equal scores.
}

// direction returns how much the answer differs between the two values, entry by entry.
func (r *deployment) direction(pair [2][]float64) ([]float64, error) {
	first, _, err := r.honest.Exact(pair[0])
	if err != nil {
		return nil, err
	}
	second, _, err := r.honest.Exact(pair[1])
	if err != nil {
		return nil, err
	}
	for j := range first {
		first[j] -= second[j]
	}
	return first, nil
}

// byCells counts the messages equal to a and those equal to b, the victim's two values. Randomized response reveals
// nothing more to an attacker who knows all other clients' values.
func byCells(a, b int) attack {
	return func(_ *deployment, t *batchView, _ [2][]float64) (string, float64, error) {
		var n [2]int
		for _, m := range t.lanes[0] {
			switch number(m) {
			case a:
				n[0]++
			case b:
				n[1]++
			}
		}
		return words(n[:]...), 0, nil
	}
}

// byTexts counts the messages in the cells of each of the two texts, and scores the logarithm of the ratio of the two
// counts. If relays add noise, that is the likelihood ratio: dummies fall into all cells with equal probability (a
// multinomial law). Randomized response adds the same to both counts.
func byTexts(r *deployment, t *batchView, _ [2][]float64) (string, float64, error) {
	var n [2]int
	for _, m := range t.lanes[0] {
		for i, cells := range r.cells {
			if cells[number(m)] {
				n[i]++
			}
		}
	}
	return "", math.Log((float64(n[0]) + .5) / (float64(n[1]) + .5)), nil
}

// number decodes a short message.
func number(m []byte) (n int) {
	for _, b := range m {
		n = n<<8 | int(b)
	}
	return n
}

// byPosition uses the first message of the batch. Without a shuffle it is the victim's.
func byPosition(_ *deployment, t *batchView, _ [2][]float64) (string, float64, error) {
	if len(t.lanes[0]) == 0 {
		return words(-1), 0, nil
	}
	return words(number(t.lanes[0][0])), 0, nil
}

// bySize is an attack by the first relay. It uses the number of slots in the victim's report.
func bySize(_ *deployment, t *batchView, _ [2][]float64) (string, float64, error) {
	return words(t.sizes[0]), 0, nil
}

// byTwoBatches runs two batches with the same dummies; all clients of the second batch have known values. It subtracts
// the second batch's counts of the two values from the first batch's, which removes the dummies.
func (r *deployment) byTwoBatches(pair [2][]float64, others []float64, clients int) Experiment {
	return func(src *randomizer.Source, world int) (string, float64, error) {
		cells, err := r.draw(src)
		if err != nil {
			return "", 0, err
		}
		again := *r
		again.draw = func(*randomizer.Source) ([]uint64, error) { return cells, nil }
		values := slices.Repeat([][]float64{others}, clients)
		var n [2][2]int
		for batch, victim := range [2][]float64{pair[world], others} {
			values[0] = victim
			t, err := again.run(src, values)
			if err != nil {
				return "", 0, err
			}
			for _, m := range t.lanes[0] {
				n[batch][number(m)]++
			}
		}
		return words(n[0][0]-n[1][0], n[0][1]-n[1][1]), 0, nil
	}
}

// reconstructed is the reconstruction attack of [AFNNTZ24], Algorithms 1 and 2, on a linear aggregate. It adds up every
// subset that has as many messages as one client sends. Its score is the least distance to the second value minus the
// least distance to the first.
//
// [AFNNTZ24]: https://arxiv.org/abs/2404.10201
func reconstructed(r *deployment, t *batchView, pair [2][]float64) (string, float64, error) {
	var targets [2][]float64
	for i := range pair {
		var err error
		if targets[i], _, err = r.honest.Exact(pair[i]); err != nil {
			return "", 0, err
		}
	}
	closest := [2]float64{math.Inf(1), math.Inf(1)}
	chosen, size := make([][][]byte, len(t.lanes)), int(r.task.Slots.PerLane)
	var visit func(from, left int) error
	visit = func(from, left int) error {
		if left == 0 {
			sum, err := r.totals(chosen, 1, 0)
			for i, target := range targets {
				if err == nil {
					closest[i] = min(closest[i], distance(sum, target))
				}
			}
			return err
		}
		for i := from; i <= len(t.lanes[0])-left; i++ {
			chosen[0] = append(chosen[0], t.lanes[0][i])
			if err := visit(i+1, left-1); err != nil {
				return err
			}
			chosen[0] = chosen[0][:len(chosen[0])-1]
		}
		return nil
	}
	err := visit(0, size)
	return "", math.Round((closest[1]-closest[0])*1e6) / 1e6, err
}

func distance(a, b []float64) (sum float64) {
	for j := range a {
		sum += (a[j] - b[j]) * (a[j] - b[j])
	}
	return sum
}

// experiment returns an experiment that runs a batch and attacks it. The victim holds pair[world]; every other client
// holds the known value others.
func (r *deployment) experiment(pair [2][]float64, others []float64, clients int, look attack) Experiment {
	return func(src *randomizer.Source, world int) (string, float64, error) {
		values := slices.Repeat([][]float64{others}, clients)
		values[0] = pair[world]
		t, err := r.run(src, values)
		if err != nil {
			return "", 0, err
		}
		return look(r, t, pair)
	}
}
