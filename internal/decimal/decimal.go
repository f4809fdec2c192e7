// Package decimal formats numbers in one way for messages and tasks.
package decimal

import (
	"math"
	"strconv"
	"strings"
)

// Format returns x with a number of significant digits; -1 means as few digits as identify x. It writes "1e-6", as
// tasks and documents do, where package strconv writes "1e-06".
func Format(x float64, digits int) string {
	return strings.Replace(strconv.FormatFloat(x, 'g', digits, 64), "e-0", "e-", 1)
}

// Near returns x rounded to the nearest number with the given count of significant digits.
func Near(x float64, digits int) float64 {
	rounded, err := strconv.ParseFloat(strconv.FormatFloat(x, 'e', digits-1, 64), 64)
	if err != nil {
		return x
	}
	return rounded
}

// Up returns x > 0 rounded up to a number of significant digits, without trailing zeros. So a number slightly above a
// claim does not look equal to the claim.
func Up(x float64, digits int) string {
	text := strconv.FormatFloat(x, 'e', digits-1, 64)
	if rounded, err := strconv.ParseFloat(text, 64); err == nil && rounded < x {
		_, exponent, _ := strings.Cut(text, "e")
		if last, err := strconv.ParseFloat("1e"+exponent, 64); err == nil {
			x = rounded + last/math.Pow10(digits-1)
		}
	}
	return Format(x, digits)
}
