package pgtest

import "syscall"

// endWithParent makes the kernel end a child process as soon as the process that started it ends.
func endWithParent(attr *syscall.SysProcAttr) { attr.Pdeathsig = syscall.SIGQUIT }
