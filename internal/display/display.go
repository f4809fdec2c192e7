// Package display is what all pages have in common: a style sheet, an icon, numbers as people read
// them, and charts of estimates with their intervals. Pages load nothing from elsewhere. It is also
// what every server of a party does against browsers that other sites send to it: the headers of each
// answer, and the names by which a private address may be asked.
package display

import (
	"embed"
	"math"
	"strconv"
	"strings"
)

// Files holds display.css and icon.svg.
//
//go:embed display.css icon.svg
var Files embed.FS

// Number writes x with three significant digits or all of its whole ones, thousands apart, and a
// real minus sign, as number() of www/demo/format.ts does.
func Number(x float64) string {
	if x == 0 || math.IsNaN(x) || math.IsInf(x, 0) {
		return strconv.FormatFloat(x, 'f', -1, 64)
	}
	if math.Abs(x) >= 99.95 {
		return fixed(x, 0)
	}
	decimals := max(0, 2-int(math.Floor(math.Log10(math.Abs(x)))))
	out := fixed(x, decimals)
	if strings.Contains(out, ".") {
		out = strings.TrimRight(strings.TrimRight(out, "0"), ".")
	}
	return out
}

// Figure writes x with as many decimals as an error of this size leaves it: the error's first two digits.
// Without an error it is [Number].
func Figure(x, err float64) string {
	if !(err > 0) || math.IsInf(err, 0) || math.IsNaN(x) || math.IsInf(x, 0) {
		return Number(x)
	}
	return fixed(x, min(max(0, 1-int(math.Floor(math.Log10(err)))), 12))
}

// fixed writes x with a number of decimals, half away from zero as browsers round, thousands apart.
func fixed(x float64, decimals int) string {
	power := math.Pow(10, float64(decimals))
	text := strconv.FormatFloat(math.Round(math.Abs(x)*power)/power, 'f', decimals, 64)
	whole, rest, _ := strings.Cut(text, ".")
	for at := len(whole) - 3; at > 0; at -= 3 {
		whole = whole[:at] + "," + whole[at:]
	}
	if rest != "" {
		whole += "." + rest
	}
	if x < 0 && strings.Trim(whole, "0.,") != "" {
		whole = "−" + whole
	}
	return whole
}
