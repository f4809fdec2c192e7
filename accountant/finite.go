package accountant

import (
	"math"
	"strconv"

	"github.com/doona-dp/doona/internal/invalid"
)

// maxOutputs is the largest number of outputs that [FiniteDelta] accepts.
const maxOutputs = 64

// FiniteDelta returns an upper bound on δ(ε) of any randomizer with finitely many inputs and outputs, after the
// messages of all users are shuffled. rows[x][y] = Pr[R(x) = y]. It is the largest bound of [BBGN19] (Lemma 8, a sum
// over the blanket ω) over all pairs of inputs. With μ_x the distribution of R(x), and ω(y) = min_x rows[x][y],
//
//	δ ≤ (1/n)·E[(ΣG)₊],   G = (μ_x(y) − e^ε·μ_x′(y))/ω(y) with probability ω(y), else 0
//
// It computes the expectation by inverting the transform of ΣG, without discretisation. excess bounds how far delta
// lies above the right side: below a relative 1e-9 for many users, up to 1e-3 for a few.
//
// Rows must sum to 1 within 1e-12. An output that some input can give must be possible for all inputs, as for every
// ε₀-LDP randomizer. At least 2 inputs, at most 64 outputs, users 1 to 1e9, ε in [0, 40]. Errors are of type
// [invalid.FieldError].
func FiniteDelta(rows [][]float64, users uint64, eps float64) (delta, excess float64, err error) {
	omega, err := checkRows(rows)
	if err != nil {
		return 0, 0, err
	}
	if err := checkUsers(users); err != nil {
		return 0, 0, err
	}
	if !(eps >= 0 && eps <= maxEpsilon0) {
		return 0, 0, invalid.Field("epsilon", text(eps), "a number from 0 to 40")
	}
	for x := range rows {
		for y := range rows {
			if d, e := pairDelta(rows[x], rows[y], omega, float64(users), eps); d > delta {
				delta, excess = d, e
			}
		}
	}
	return math.Min(1, delta), excess, nil
}

// pairDelta is FiniteDelta for one ordered pair of inputs.
func pairDelta(p, q, omega []float64, n, eps float64) (delta, excess float64) {
	x, rest, top := &steps{n: n}, 1.0, 0.0
	for i, w := range omega {
		if w == 0 {
			continue
		}
		g := (p[i] - q[i] - math.Expm1(eps)*q[i]) / w
		rest, top = rest-w, math.Max(top, g)
		x.atoms = append(x.atoms, atom{g, w})
	}
	if top <= 1e-12 { // ε is about the pair's local ε₀; E[(ΣG)₊] ≤ n·top
		return top, top
	}
	x.atoms = append(x.atoms, atom{0, math.Max(0, rest)})
	t := x.tune()
	if t.tiny() {
		return tiny, tiny
	}
	value, above := t.invert()
	return value / n, above / n
}

// checkRows checks a randomizer's matrix and returns its blanket ω.
func checkRows(rows [][]float64) ([]float64, error) {
	if len(rows) < 2 {
		return nil, invalid.Field("rows", strconv.Itoa(len(rows))+" inputs", "at least 2")
	}
	if outputs := len(rows[0]); outputs < 2 || outputs > maxOutputs {
		return nil, invalid.Field("rows", strconv.Itoa(outputs)+" outputs", "2 to "+strconv.Itoa(maxOutputs))
	}
	omega, largest := make([]float64, len(rows[0])), make([]float64, len(rows[0]))
	for x, row := range rows {
		sum := 0.0
		for y := range omega {
			if len(row) != len(omega) {
				return nil, invalid.Field("rows", "row "+strconv.Itoa(x), "as many probabilities as in row 0")
			}
			if !(row[y] >= 0) {
				return nil, invalid.Field("rows", "row "+strconv.Itoa(x), "probabilities of at least 0, not NaN")
			}
			sum += row[y]
			largest[y] = math.Max(largest[y], row[y])
			if x == 0 || row[y] < omega[y] {
				omega[y] = row[y]
			}
		}
		if math.Abs(sum-1) > 1e-12 {
			return nil, invalid.Field("rows", "row "+strconv.Itoa(x), "probabilities that sum to 1")
		}
	}
	for y, w := range omega {
		if w == 0 && largest[y] > 0 {
			return nil, invalid.Field("rows", "output "+strconv.Itoa(y),
				"an output possible for all inputs or for none")
		}
	}
	return omega, nil
}
