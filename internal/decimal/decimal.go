// Package decimal formats numbers in one way for messages and tasks, and parses them. It is linked into doona.wasm, and
// so does without the conversions of package strconv, which are for every format.
package decimal

import (
	"math"
	"strconv"
	"strings"
)

// mostDigits identify every float64.
const mostDigits = 17

// Format returns x with at most a number of significant digits, from 1 to 17; -1 means as few digits as identify x.
// It rounds to the nearest, and writes as format 'g' of package strconv does, except for "1e-6", as in tasks and
// documents, instead of "1e-06".
func Format(x float64, digits int) string {
	switch {
	case math.IsNaN(x):
		return "NaN"
	case math.IsInf(x, 1):
		return "+Inf"
	case math.Signbit(x):
		return "-" + strings.TrimPrefix(Format(-x, digits), "+")
	case x == 0:
		return "0"
	}
	if digits < 0 {
		text, point := shortest(x)
		return layOut(text, point, 6)
	}
	text, point := digitsOf(x, digits)
	return layOut(text, point, digits)
}

// shortest returns as few digits as identify x if x is rounded to them.
func shortest(x float64) (text []byte, point int) {
	for n := 1; ; n++ {
		if text, point = digitsOf(x, n); n == mostDigits || nearest(text, point) == x {
			return text, point
		}
	}
}

// layOut writes 0.d₁d₂…·10^point: with an exponent if that is below -4, or at least most.
func layOut(digits []byte, point, most int) string {
	exponent := point - 1
	isScientific := exponent < -4 || exponent >= most
	if isScientific {
		point = 1
	}
	var out []byte
	for i := min(0, point-1); i < max(len(digits), point); i++ {
		if i == point {
			out = append(out, '.')
		}
		if i < 0 || i >= len(digits) {
			out = append(out, '0')
		} else {
			out = append(out, digits[i])
		}
	}
	if isScientific && exponent < 0 {
		return string(out) + "e" + strconv.Itoa(exponent)
	}
	if isScientific {
		return string(out) + "e+" + strconv.Itoa(exponent/10) + strconv.Itoa(exponent%10)
	}
	return string(out)
}

// Parse returns the float64 nearest to a decimal: digits, optionally followed by "." and digits, optionally followed by
// "e", an optional "-" and digits. It returns false for any other text, and for numbers that no float64 is near. Bound
// the text first: the time grows with the square of its length.
func Parse(text string) (x float64, ok bool) {
	number, exponent, hasExponent := strings.Cut(text, "e")
	whole, fraction, hasFraction := strings.Cut(number, ".")
	power, isNegative := strings.CutPrefix(exponent, "-")
	if !isDigits(whole) || hasFraction && !isDigits(fraction) || hasExponent && !isDigits(power) {
		return 0, false
	}
	point := 0
	for i := range len(power) {
		point = min(10*point+int(power[i]-'0'), 1<<20) // Far beyond any float64.
	}
	if isNegative {
		point = -point
	}
	x = nearest([]byte(whole+fraction), point+len(whole))
	return x, !math.IsInf(x, 1)
}

func isDigits(s string) bool { return s != "" && strings.Trim(s, "0123456789") == "" }

// Uint parses an integer of at most the given size in base 10 or 16: digits, in lower case, without a leading zero.
func Uint(text string, base, most uint64) (n uint64, ok bool) {
	if text == "" || text[0] == '0' && text != "0" {
		return 0, false
	}
	for i := range len(text) {
		digit := uint64(strings.IndexByte("0123456789abcdef"[:base], text[i])) // 2⁶⁴-1 if there is none
		if digit >= base || n > (most-digit)/base {
			return 0, false
		}
		n = n*base + digit
	}
	return n, true
}

// Near returns x rounded to the nearest number with the given count of significant digits.
func Near(x float64, digits int) float64 {
	if !(math.Abs(x) > 0) || math.IsInf(x, 0) {
		return x
	}
	return math.Copysign(nearest(digitsOf(math.Abs(x), digits)), x)
}

// Up returns x > 0 rounded up to a number of significant digits, without trailing zeros. So a number slightly above a
// claim does not look equal to the claim.
func Up(x float64, digits int) string {
	if math.IsInf(x, 1) || math.IsNaN(x) {
		return Format(x, digits)
	}
	text, point := digitsOf(x, digits)
	if rounded := nearest(text, point); rounded < x {
		x = rounded + nearest([]byte{'1'}, point-digits+1)
	}
	return Format(x, digits)
}
