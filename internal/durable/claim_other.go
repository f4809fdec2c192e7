//go:build !unix

package durable

// Claim does nothing: on this system the operator must ensure that only one process uses a folder.
func Claim(string) (release func() error, err error) { return func() error { return nil }, nil }

// ClaimFile does nothing: on this system the operator must ensure that only one process uses a file.
func ClaimFile(string) (release func() error, err error) { return func() error { return nil }, nil }
