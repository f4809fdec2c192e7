package vectormean

import "math"

// frame is a tight frame of R^d: N ≥ 2d vectors u_1, …, u_N, the rows of an N×d matrix U with orthonormal columns, UᵀU
// = 1. The columns of U are d randomly drawn columns of the Hadamard matrix of order N, with random signs, divided by
// √N. So Uz and Uᵀa take N·log₂ N additions, and every entry of U is ±1/√N.
//
// The columns must be random. With the first d columns, as when zeros are appended to z, a vector could have a
// coefficient as large as its norm.
type frame struct {
	size    int       // N, a power of two.
	columns []int     // For each coordinate, the index of its column in the Hadamard matrix.
	signs   []float64 // For each coordinate, the sign of its column times 1/√N.
}

// newFrame returns the frame for a dimension d and a seed. SplitMix64, started at the seed, draws a column for one
// coordinate after the other. The top bits of each random number give the column, and it draws again if the column is
// taken. The lowest bit gives the sign; 1 means negative.
func newFrame(d int, seed uint64) *frame {
	f := &frame{size: frameSize(d), columns: make([]int, d), signs: make([]float64, d)}
	unit := 1 / math.Sqrt(float64(f.size))
	taken := make([]bool, f.size)
	for l := range d {
		for {
			seed += 0x9e3779b97f4a7c15
			v := mix(seed)
			column := int(v >> 32 & uint64(f.size-1))
			if taken[column] {
				continue
			}
			taken[column] = true
			f.columns[l], f.signs[l] = column, unit
			if v&1 == 1 {
				f.signs[l] = -unit
			}
			break
		}
	}
	return f
}

// mix is the output function of SplitMix64 (G. Steele, D. Lea, C. Flood, "Fast splittable
// pseudorandom number generators", OOPSLA 2014).
func mix(v uint64) uint64 {
	v = (v ^ v>>30) * 0xbf58476d1ce4e5b9
	v = (v ^ v>>27) * 0x94d049bb133111eb
	return v ^ v>>31
}

// frameSize returns N, the least power of two that is at least 2d.
func frameSize(d int) int {
	n := 2
	for n < 2*d {
		n *= 2
	}
	return n
}

// analyze returns Uz, the coefficients of least norm that represent z.
func (f *frame) analyze(z []float64) []float64 {
	out := make([]float64, f.size)
	for l, x := range z {
		out[f.columns[l]] = x * f.signs[l]
	}
	hadamard(out)
	return out
}

// synthesize returns Uᵀa, the vector that coefficients a represent. It overwrites a.
func (f *frame) synthesize(a []float64) []float64 {
	hadamard(a)
	out := make([]float64, len(f.columns))
	for l, column := range f.columns {
		out[l] = a[column] * f.signs[l]
	}
	return out
}

// hadamard multiplies v by the Hadamard matrix of its length, a power of two.
func hadamard(v []float64) {
	for half := 1; half < len(v); half *= 2 {
		for from := 0; from < len(v); from += 2 * half {
			for i := from; i < from+half; i++ {
				v[i], v[i+half] = v[i]+v[i+half], v[i]-v[i+half]
			}
		}
	}
}
