package pgtest

import "syscall"

// endWithParent makes the kernel kill a child as soon as the process that started it ends.
func endWithParent(attr *syscall.SysProcAttr) { attr.Pdeathsig = syscall.SIGQUIT }
