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
