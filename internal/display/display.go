// Package display has what all pages share: a style sheet, an icon, formatted numbers, and charts of estimates with
// their intervals. Pages load nothing from other sites. It also protects each server from requests that other sites
// make through a visitor's browser: it sets the headers of every answer, and checks the host name of requests to a
// private address.
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

// Number formats x with three significant digits, or with all digits before the decimal point if these are more. It
// separates thousands by commas and writes a real minus sign, like number() in www/demo/format.ts.
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

// Figure formats x down to the second digit of its error. Without an error it does what [Number] does.
func Figure(x, err float64) string {
	if !(err > 0) || math.IsInf(err, 0) || math.IsNaN(x) || math.IsInf(x, 0) {
		return Number(x)
	}
	return fixed(x, min(max(0, 1-int(math.Floor(math.Log10(err)))), 12))
}

// fixed formats x with a number of decimals, and separates thousands by commas. It rounds half away from zero, as
// browsers do.
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
