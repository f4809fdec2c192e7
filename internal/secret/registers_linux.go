package secret

import (
	"os"
	"strconv"
	"syscall"
)

// ClearRegisters overwrites the registers that the last signal of every thread left in memory. Call it after erasing a
// key. The kernel saves all registers on the thread's signal stack. If the signal interrupted a copy, they hold the
// copied bytes, until the next signal of that thread. ClearRegisters sends SIGURG to every thread: Go's runtime
// interrupts its threads with it, and ignores one that it did not send. It does not wait for the threads.
func ClearRegisters() {
	threads, err := os.ReadDir("/proc/self/task")
	if err != nil {
		return // Without /proc nobody knows the threads.
	}
	for _, thread := range threads {
		if id, err := strconv.Atoi(thread.Name()); err == nil {
			_ = syscall.Tgkill(syscall.Getpid(), id, syscall.SIGURG) // The thread may have ended.
		}
	}
}
