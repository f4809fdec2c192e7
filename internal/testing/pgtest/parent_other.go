//go:build unix && !linux

package pgtest

import "syscall"

// endWithParent does nothing: this system cannot end a child with its parent.
func endWithParent(*syscall.SysProcAttr) {}
