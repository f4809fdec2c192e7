// Package invalid has the error with which every package of the module rejects a value. The error names the field,
// shows the given value and states the allowed range.
//
// The package does not use package fmt, because it is linked into doona.wasm. There, fmt alone would enlarge the
// download by a third.
package invalid

// FieldError says that a field holds a value outside its allowed range.
type FieldError struct {
	Field string // Name of the field, parameter or flag, as the user writes it.
	Got   string // The rejected value as text.
	Want  string // The allowed range, and what would make the value valid, if known.
}

// Error returns "invalid <field> <got>: want <want>".
func (e *FieldError) Error() string {
	return "invalid " + e.Field + " " + e.Got + ": want " + e.Want
}

// Field returns a [FieldError] as an error.
//
//go:noinline
func Field(field, got, want string) error {
	return &FieldError{Field: field, Got: got, Want: want}
}

// Quote returns a text in quotation marks. It escapes all but printable ASCII characters byte by byte, such as "\x0a".
// [strconv.Quote] would add the tables of Unicode to doona.wasm.
func Quote(text string) string {
	const hex = "0123456789abcdef"
	out := make([]byte, 0, len(text)+2)
	out = append(out, '"')
	for i := range len(text) {
		switch c := text[i]; {
		case c < ' ' || c > '~':
			out = append(out, '\\', 'x', hex[c>>4], hex[c&15])
		case c == '"' || c == '\\':
			out = append(out, '\\', c)
		default:
			out = append(out, c)
		}
	}
	return string(append(out, '"'))
}
