package pgtest

import "syscall"

// endWithParent has the kernel end a child, at once, when the process that started it ends.
func endWithParent(attr *syscall.SysProcAttr) { attr.Pdeathsig = syscall.SIGQUIT }
