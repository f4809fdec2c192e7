package table

import (
	"fmt"
	"strconv"
	"strings"
)

// number reads a field as a decimal number, with or without an exponent. It allows no thousands separators. The minus
// sign may be U+2212, which word processors write.
func (f *Format) number(field string) (float64, error) {
	text := strings.TrimSpace(field)
	if rest, ok := strings.CutPrefix(text, "−"); ok {
		text = "-" + rest
	}
	if f.Decimal == ',' && !strings.Contains(text, ".") {
		text = strings.Replace(text, ",", ".", 1)
	} else if f.Decimal == ',' {
		text = ""
	}
	if isDecimal(text) {
		if v, err := strconv.ParseFloat(text, 64); err == nil {
			return v, nil
		}
	}
	return 0, fmt.Errorf("invalid value %q: want %s", field, f.advice(strings.TrimSpace(field)))
}

// isDecimal reports whether a text has the form [+-]digits[.digits][e[+-]digits], with a digit before the exponent.
// [strconv.ParseFloat] alone would also accept hexadecimal numbers, "nan" and "inf".
func isDecimal(text string) bool {
	text = strings.TrimLeft(text[:min(len(text), 1)], "+-") + text[min(len(text), 1):]
	mantissa, exponent, scaled := strings.Cut(strings.ToLower(text), "e")
	before, after, _ := strings.Cut(mantissa, ".")
	if scaled {
		exponent = strings.TrimLeft(exponent[:min(len(exponent), 1)], "+-") + exponent[min(len(exponent), 1):]
	}
	return allDigits(before+after) && (!scaled || allDigits(exponent))
}

func allDigits(text string) bool { return text != "" && strings.Trim(text, "0123456789") == "" }

// advice says what to do about a field that is not a number.
func (f *Format) advice(field string) string {
	switch {
	case field == "":
		return "a finite number: fill it in, or remove the row"
	case f.Decimal == ',' && strings.ContainsAny(field, ".,"):
		return "a finite number such as -1,5, without thousands separators; for decimal points leave out --decimal"
	case strings.Contains(field, ","):
		return "a finite number such as -1.5, without thousands separators; for decimal commas give --decimal ,"
	case strings.Contains(field, ";") || strings.ContainsAny(field, "\t|"):
		return "a finite number; if this is several fields, give --delimiter"
	}
	return "a finite number such as -1.5: correct it, or remove the row"
}

// kind is what a field of a table's first row looks like.
type kind int

const (
	isNumber kind = iota
	isName
	isBlank
	isOdd // A value that is not a number, such as NaN, 0x10, 1,234 or 5 %.
)

// missing lists the words that programs write for a value that is missing or not finite.
const missing = " na n/a nan null none nil inf infinity #n/a "

func (f *Format) kindOf(field string) kind {
	text := strings.ToLower(strings.TrimSpace(field))
	if _, err := f.number(text); err == nil {
		return isNumber
	}
	bare := strings.TrimLeft(text, "+-−")
	switch {
	case text == "":
		return isBlank
	case !strings.Contains(bare, " ") && strings.Contains(missing, " "+bare+" "):
		return isOdd
	case strings.HasPrefix(bare, "0x"), strings.Trim(bare, "0123456789.,'’_ \u00a0\u202f%€$£+-−e:") == "" &&
		strings.ContainsAny(bare, "0123456789"):
		return isOdd
	}
	return isName
}
