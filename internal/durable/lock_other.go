//go:build !unix

package durable

// Lock does nothing: on this system only one process may use a file.
func Lock(string) (unlock func(), err error) { return func() {}, nil }
