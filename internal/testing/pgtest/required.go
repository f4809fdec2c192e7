//go:build postgres

package pgtest

const required = true
