package accountant

import "math"

// Transform replaces x, whose length N must be a power of two, by its discrete Fourier transform
//
//	X_j = Σ_k x_k·e^{2πi·jk/N}
//
// Applied twice it returns N·x with the order of all elements except the first reversed. The error is below
// 4·log₂(N)·2^-53 times the root of the sum of squares of x.
func Transform(x []complex128) {
	n := len(x)
	for i, j := 1, 0; i < n; i++ { // bit reversal
		bit := n >> 1
		for ; j&bit != 0; bit >>= 1 {
			j ^= bit
		}
		if j ^= bit; i < j {
			x[i], x[j] = x[j], x[i]
		}
	}
	root := make([]complex128, n/2)
	for i := range root {
		sin, cos := math.Sincos(2 * math.Pi * float64(i) / float64(n))
		root[i] = complex(cos, sin)
	}
	for size := 2; size <= n; size *= 2 {
		for start := 0; start < n; start += size {
			for i := range size / 2 {
				u, v := x[start+i], x[start+i+size/2]*root[i*(n/size)]
				x[start+i], x[start+i+size/2] = u+v, u-v
			}
		}
	}
}
