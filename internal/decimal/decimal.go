// Package decimal writes numbers for people and for tasks in one way.
package decimal

import (
	"math"
	"strconv"
	"strings"
)

// Format returns x with so many significant digits, as few as determine it for -1: "1e-6", as tasks
// and documents have it, where package strconv writes "1e-06".
func Format(x float64, digits int) string {
	return strings.Replace(strconv.FormatFloat(x, 'g', digits, 64), "e-0", "e-", 1)
}

// Near returns the number nearest to x rounded to so many significant digits.
func Near(x float64, digits int) float64 {
	rounded, err := strconv.ParseFloat(strconv.FormatFloat(x, 'e', digits-1, 64), 64)
	if err != nil {
		return x
	}
	return rounded
}

// Up returns x > 0 rounded up to so many significant digits, without zeros at the end: a figure that is a
// little above a claim never reads like the claim.
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
