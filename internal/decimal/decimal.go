// Package decimal writes numbers for people and for tasks in one way.
package decimal

import (
	"strconv"
	"strings"
)

// Format returns x with so many significant digits, as few as determine it for -1: "1e-6", as tasks
// and documents have it, where package strconv writes "1e-06".
func Format(x float64, digits int) string {
	return strings.Replace(strconv.FormatFloat(x, 'g', digits, 64), "e-0", "e-", 1)
}
