package randomizer

import (
	"math"
	"math/bits"
	"strconv"
	"strings"

	"github.com/doona-dp/doona/internal/decimal"
	"github.com/doona-dp/doona/internal/invalid"
)

// Rational is an exact fraction Num/Den in lowest terms with Den ≥ 1. Its text form is "a/b", or "a" if b = 1. Num
// and Den are below 2^63 in magnitude.
type Rational struct {
	Num int64
	Den uint64
}

// NewRational returns num/den in lowest terms. It panics if den is 0 or above 2^63-1.
func NewRational(num int64, den uint64) Rational {
	if den == 0 || den > math.MaxInt64 || num == math.MinInt64 {
		panic("randomizer: rational out of range")
	}
	g := gcd(magnitude(num), den)
	return Rational{num / int64(g), den / g}
}

// ParseRational parses the text form of a [Rational]. It refuses any other text with an [invalid.FieldError] about
// field: also a fraction that is not in lowest terms, a leading zero or a plus sign.
func ParseRational(field, s string) (Rational, error) {
	numText, denText, isFraction := strings.Cut(s, "/")
	size, isNegative := strings.CutPrefix(numText, "-")
	num, ok := decimal.Uint(size, 10, math.MaxInt64)
	den := uint64(1)
	if ok && isFraction {
		den, ok = decimal.Uint(denText, 10, math.MaxInt64)
	}
	r := Rational{int64(num), den}
	if isNegative {
		r.Num = -r.Num
	}
	if !ok || den == 0 || NewRational(r.Num, den).String() != s {
		return Rational{}, invalid.Field(field, invalid.Quote(s),
			`an integer "a" or a fraction "a/b" in lowest terms, both below 2^63`)
	}
	return r, nil
}

// RationalFromFloat turns a decimal flag such as 0.9 into 9/10: it returns the first convergent of x's continued
// fraction that equals x as a float64. If there is none, it returns the last convergent with a denominator of at most
// 10^9, which is within 10^-9 of x. ok is false if x is not finite or beyond ±10^9.
func RationalFromFloat(x float64) (r Rational, ok bool) {
	if !(math.Abs(x) <= 1e9) {
		return Rational{}, false
	}
	p0, q0, p1, q1 := int64(0), int64(1), int64(1), int64(0)
	for rest := x; ; {
		whole := math.Floor(rest)
		if math.Abs(whole) > 1e9 {
			break
		}
		p2, q2 := int64(whole)*p1+p0, int64(whole)*q1+q0
		if q2 > 1e9 {
			break
		}
		p0, q0, p1, q1 = p1, q1, p2, q2
		if float64(p1)/float64(q1) == x {
			break
		}
		rest = 1 / (rest - whole)
	}
	return NewRational(p1, uint64(q1)), true
}

// String returns the text form.
func (r Rational) String() string {
	if r.Den == 1 {
		return strconv.FormatInt(r.Num, 10)
	}
	return strconv.FormatInt(r.Num, 10) + "/" + strconv.FormatUint(r.Den, 10)
}

// Float64 returns Num/Den in floating point, for accounting and printing only. It is exact if Num fits 53 bits and
// Den is a power of two; else its relative error is at most 2^-51.
func (r Rational) Float64() float64 { return float64(r.Num) / float64(r.Den) }

// MulFloor returns ⌊r·n⌋ for 0 ≤ r ≤ 1.
func (r Rational) MulFloor(n uint64) uint64 {
	hi, lo := bits.Mul64(uint64(r.Num), n)
	q, _ := bits.Div64(hi, lo, r.Den)
	return q
}

func gcd(a, b uint64) uint64 {
	for b != 0 {
		a, b = b, a%b
	}
	return a
}

func magnitude(v int64) uint64 {
	if v < 0 {
		return uint64(-v)
	}
	return uint64(v)
}
