package protocols

import (
	"math"
	"strconv"

	"github.com/doona-dp/doona/internal/decimal"
	"github.com/doona-dp/doona/internal/invalid"
	"github.com/doona-dp/doona/randomizer"
	"github.com/doona-dp/doona/wire/task"
)

// Vector maps a vector of in.Bins coordinates into [0, 1]^d, each by the task's range as unit does. Randomizers clear
// the result after use, so that the client's memory does not keep the value.
func Vector(in task.Input, value []float64) ([]float64, error) {
	if err := checkDim(in, value); err != nil {
		return nil, err
	}
	out := make([]float64, len(value))
	for l := range value {
		x, err := unit(in, value[l:l+1])
		if err != nil {
			return nil, err
		}
		out[l] = x
	}
	return out, nil
}

// ballTolerance is how far a vector's norm may exceed 1. It allows for rounding when the caller normalizes the vector.
const ballTolerance = 1e-9

// Ball returns the value as a vector of in.Bins coordinates and Euclidean norm at most 1. If the task clips, Ball
// scales a longer vector to norm 1. If not, a longer vector is an [invalid.FieldError], as NaN and ±Inf always are.
func Ball(in task.Input, value []float64) ([]float64, error) {
	if err := checkDim(in, value); err != nil {
		return nil, err
	}
	largest := 0.0
	for l := range value {
		if _, err := scalar(value[l : l+1]); err != nil {
			return nil, err
		}
		largest = max(largest, math.Abs(value[l]))
	}
	if largest == 0 {
		return append([]float64(nil), value...), nil
	}
	sum := 0.0
	for _, x := range value {
		sum += (x / largest) * (x / largest)
	}
	norm := largest * math.Sqrt(sum) // +Inf beyond the largest float64
	if norm > 1+ballTolerance && !in.Clip {
		return nil, invalid.Field("value", "a vector of norm "+decimal.Format(norm, 6), "norm at most 1")
	}
	out := make([]float64, len(value))
	for l, x := range value {
		out[l] = x
		if norm > 1 {
			out[l] = (x / largest) / math.Sqrt(sum)
		}
	}
	return out, nil
}

func checkDim(in task.Input, value []float64) error {
	if uint64(len(value)) != in.Bins {
		return invalid.Field("value", strconv.Itoa(len(value))+" numbers", strconv.FormatUint(in.Bins, 10)+" numbers")
	}
	return nil
}

// RoundedVariance returns the variance of y/k, where y is drawn as follows. Round xk stochastically to a whole number
// in {0, …, k}, for an x ∈ [0, 1]. Then apply randomized response with blanket probability γ over these k+1 symbols:
//
//	v(x) = (1-γ)·f(1-f)/k² + γ(k+2)/(12k) + γ(1-γ)(x-½)²,   f the fractional part of xk   (1)
//
// The first term is the variance of rounding, the second that of the blanket (uniform on {0, 1/k, …, 1}). The third
// comes from choosing between the two.
func RoundedVariance(gamma float64, k uint64, x float64) float64 {
	levels := float64(k)
	_, f := math.Modf(x * levels)
	return (1-gamma)*f*(1-f)/(levels*levels) + gamma*(levels+2)/(12*levels) + gamma*(1-gamma)*(x-0.5)*(x-0.5)
}

// WorstRounded returns an x in [0, 1] that maximises a·v(x) + b·(x-½)². v(x) is the variance that [RoundedVariance]
// returns, and a, b ≥ 0. With f the fractional part of xk, the sum is A·f(1-f) + D·(x-½)² plus a constant, where A =
// a(1-γ)/k² and D = aγ(1-γ) + b. For a given f, the cell [0, 1/k] has the largest |x-½| in the lower half; the upper
// half mirrors the lower. So the maximum lies in that cell, at x = f/k. If the parabola is concave (A > D/k²), f =
// (A-D/k) / (2(A-D/k²)), clamped to [0, 1]; otherwise f = 0.
func WorstRounded(gamma float64, k uint64, a, b float64) float64 {
	levels := float64(k)
	rounding := a * (1 - gamma) / (levels * levels)
	distance := a*gamma*(1-gamma) + b
	curve := rounding - distance/(levels*levels)
	if curve <= 0 {
		return 0
	}
	return min(max((rounding-distance/levels)/(2*curve), 0), 1) / levels
}

// WholeParam returns the task's parameter with the given key. It must be a whole number in lo..hi.
func WholeParam(t *task.Task, key string, lo, hi uint64) (uint64, error) {
	p, ok := t.Param(key)
	if !ok || p.Den != 1 || p.Num < 0 || uint64(p.Num) < lo || uint64(p.Num) > hi {
		got := "missing"
		if ok {
			got = p.String()
		}
		return 0, invalid.Field("params."+key, got, "a whole number from "+strconv.FormatUint(lo, 10)+" to "+
			strconv.FormatUint(hi, 10))
	}
	return uint64(p.Num), nil
}

// Whole returns a task parameter whose value is the whole number v.
func Whole(key string, v uint64) task.Param {
	return task.Param{Key: key, Value: randomizer.NewRational(int64(v), 1)}
}

// Indices encodes whole numbers as messages. Indices(count) covers the numbers 0..count-1, as big-endian integers of
// [Indices.Bytes] bytes each.
type Indices uint64

// Encode appends the encoding of the number v to out.
func (count Indices) Encode(out []byte, v uint64) []byte {
	for i := count.Bytes() - 1; i >= 0; i-- {
		out = append(out, byte(v>>(8*i)))
	}
	return out
}

// Decode returns the number in a message that [Indices.Encode] wrote. A wrong size or a number of count or more is an
// error.
func (count Indices) Decode(message []byte) (uint64, error) {
	if len(message) != count.Bytes() {
		return 0, invalid.Field("message", strconv.Itoa(len(message))+" bytes", strconv.Itoa(count.Bytes())+" bytes")
	}
	v := uint64(0)
	for _, b := range message {
		v = v<<8 | uint64(b)
	}
	if v >= uint64(count) {
		return 0, invalid.Field("message", strconv.FormatUint(v, 10),
			"a number below "+strconv.FormatUint(uint64(count), 10))
	}
	return v, nil
}

// Bytes returns the size of an encoded number in bytes, at least 1.
func (count Indices) Bytes() int {
	n := 1
	for count > 1<<8 {
		n, count = n+1, (count+255)>>8
	}
	return n
}
