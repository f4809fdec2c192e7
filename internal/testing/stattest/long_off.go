//go:build !long

package stattest

// Long reports whether tests run in their long form, with -tags long.
const Long = false
