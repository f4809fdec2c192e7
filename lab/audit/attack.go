package audit

import (
	"math"
	"slices"

	"github.com/doona-dp/doona/randomizer"
)

// attack turns what a batch shows into a view.
type attack func(r *deployment, t *batchView, pair [2][]float64) (view string, score float64, err error)

// byAnswer scores the verifier's answer in the direction in which the two values differ. The likelihood ratio of
// noise added to a sum rises with it, or almost.
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

// direction returns the difference of the values in the answer, entry by entry.
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

// byCells counts the messages that are one value or the other. Randomized response reveals nothing more to an
// attacker who knows all other clients' values.
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

// byTexts counts the messages in all cells of either text. For a pool, their ratio is the likelihood ratio: without
// one message, the others are equally likely (a multinomial law of equal cells). Randomized response adds the same to
// both.
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

// byPosition reads the message at the victim's position, the first.
func byPosition(_ *deployment, t *batchView, _ [2][]float64) (string, float64, error) {
	if len(t.lanes[0]) == 0 {
		return words(-1), 0, nil
	}
	return words(number(t.lanes[0][0])), 0, nil
}

// bySize is an attack by the first relay: it uses the number of slots that the victim sent.
func bySize(_ *deployment, t *batchView, _ [2][]float64) (string, float64, error) {
	return words(t.sizes[0]), 0, nil
}

// byTwoBatches subtracts a second batch, of known clients only, from the first batch's counts of the two values.
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

// reconstructed is [AFNNTZ24], Algorithms 1 and 2, against a linear aggregate. It sums every subset of as many
// messages as a client sends, as the aggregate would. It scores how much closer the closest subset comes to one value
// than to the other.
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

// experiment is an attack on a deployment. The victim has one value or the other; all other clients have a known
// value.
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
