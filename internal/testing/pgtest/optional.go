//go:build !postgres

package pgtest

const required = false
