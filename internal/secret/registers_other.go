//go:build !linux

package secret

// ClearRegisters does something on Linux only: other systems do not list a process's threads.
func ClearRegisters() {}
