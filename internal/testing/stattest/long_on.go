//go:build long

package stattest

// Long reports whether tests run in their long form, with -tags long.
const Long = true

// Times multiplies how often a statistical test repeats: 1 or, in the long form, 4.
const Times = 4
