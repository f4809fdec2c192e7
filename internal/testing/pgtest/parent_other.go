//go:build unix && !linux

package pgtest

import "syscall"

// endWithParent does nothing: only Linux can end a child process with its parent.
func endWithParent(*syscall.SysProcAttr) {}
