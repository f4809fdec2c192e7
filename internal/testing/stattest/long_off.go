//go:build !long

package stattest

// Long is whether tests run in their long form.
const Long = false
