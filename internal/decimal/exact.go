package decimal

import (
	"math"
	"math/bits"
)

// This file converts between decimals and float64 exactly, by long division (Steele and White 1990). Package strconv
// does the same, but with 40 kB of code for every format: 8 kB of a page's download. The tests compare both.

// A natural is a natural number: its digits in base 2³², the lowest first, the highest not 0.
type natural []uint32

// from returns n as a natural.
func from(n uint64) natural { return natural{uint32(n), uint32(n >> 32)}.trimmed() }

func (a natural) trimmed() natural {
	for len(a) > 0 && a[len(a)-1] == 0 {
		a = a[:len(a)-1]
	}
	return a
}

// times multiplies a by m and adds more.
func (a natural) times(m, more uint32) natural {
	carry := uint64(more)
	for i, digit := range a {
		carry += uint64(digit) * uint64(m)
		a[i] = uint32(carry)
		carry >>= 32
	}
	return append(a, uint32(carry)).trimmed()
}

// timesPower multiplies a by base to the n.
func (a natural) timesPower(base uint32, n int) natural {
	for range n {
		a = a.times(base, 0)
	}
	return a
}

// shifted multiplies a by 2 to the n.
func (a natural) shifted(n int) natural {
	if len(a) == 0 {
		return a
	}
	return append(make(natural, n/32), a...).times(1<<(n%32), 0)
}

// bits returns the number of binary digits.
func (a natural) bits() int {
	if len(a) == 0 {
		return 0
	}
	return 32*len(a) - bits.LeadingZeros32(a[len(a)-1])
}

// compare returns -1, 0 or 1 as a is less than, equal to or greater than b.
func (a natural) compare(b natural) int {
	if len(a) != len(b) {
		return sign(len(a) < len(b))
	}
	for i := len(a) - 1; i >= 0; i-- {
		if a[i] != b[i] {
			return sign(a[i] < b[i])
		}
	}
	return 0
}

func sign(isLess bool) int {
	if isLess {
		return -1
	}
	return 1
}

// divided returns the quotient and the remainder of a by b, of which the quotient must be small: it subtracts.
func (a natural) divided(b natural) (quotient int, rest natural) {
	for ; a.compare(b) >= 0; quotient++ {
		var borrow uint64
		for i := range a {
			take := borrow
			if i < len(b) {
				take += uint64(b[i])
			}
			borrow = 0
			if uint64(a[i]) < take {
				borrow = 1
			}
			a[i] -= uint32(take)
		}
		a = a.trimmed()
	}
	return quotient, a
}

// roundsUp returns whether a quotient rounds up to the next integer: to the nearest, from the middle to an even one.
func roundsUp(rest, divisor natural, isOdd bool) bool {
	half := rest.times(2, 0).compare(divisor)
	return half > 0 || half == 0 && isOdd
}

// digitsOf returns 0.d₁d₂…·10^point, the nearest to x > 0 that has at most n ≥ 1 digits, without zeros at its end.
func digitsOf(x float64, n int) (digits []byte, point int) {
	fraction, exponent := math.Frexp(x)
	point = int(math.Floor(float64(exponent-1) * (math.Ln2 / math.Ln10))) // x is above 10^point, perhaps 10 times.
	a, b := from(uint64(fraction*(1<<53))), from(1)
	if exponent -= 53; exponent > 0 {
		a = a.shifted(exponent)
	} else {
		b = b.shifted(-exponent)
	}
	if point > 0 {
		b = b.timesPower(10, point)
	} else {
		a = a.timesPower(10, -point)
	}
	if top := append(natural{}, b...).times(10, 0); a.compare(top) >= 0 {
		b, point = top, point+1
	}
	point++
	var digit int
	for range n {
		digit, a = a.divided(b)
		digits = append(digits, byte('0'+digit))
		a = a.times(10, 0)
	}
	if roundsUp(a, b.times(10, 0), digit%2 == 1) {
		last := n - 1
		for ; last >= 0 && digits[last] == '9'; last-- {
			digits[last] = '0'
		}
		if last < 0 {
			return []byte{'1'}, point + 1
		}
		digits[last]++
	}
	for len(digits) > 1 && digits[len(digits)-1] == '0' {
		digits = digits[:len(digits)-1]
	}
	return digits, point
}

// nearest returns the float64 nearest to 0.d₁d₂…·10^point: from the middle the even one, and +Inf above them all.
func nearest(digits []byte, point int) float64 {
	a, b := natural{}, from(1)
	for _, digit := range digits {
		a = a.times(10, uint32(digit-'0'))
	}
	point -= len(digits)
	switch {
	case len(a) == 0 || point+len(digits) < -330: // The smallest float64 is above 10^-324.
		return 0
	case point > 310:
		return math.Inf(1)
	case point > 0:
		a = a.timesPower(10, point)
	default:
		b = b.timesPower(10, -point)
	}
	// The number is q·2^exponent with q of 53 bits, fewer below 2^-1022.
	exponent := max(a.bits()-b.bits()-53, -1074)
	if exponent > 0 {
		b = b.shifted(exponent)
	} else {
		a = a.shifted(-exponent)
	}
	top := b.shifted(53)
	if a.compare(top) >= 0 {
		b, top, exponent = b.times(2, 0), top.times(2, 0), exponent+1
	}
	var q uint64
	var bit int
	for range 53 {
		a = a.times(2, 0)
		bit, a = a.divided(top)
		q = q<<1 | uint64(bit)
	}
	if roundsUp(a, top, q&1 == 1) {
		q++
	}
	return math.Ldexp(float64(q), exponent)
}
