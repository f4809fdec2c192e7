package durable

import (
	"os"
	"syscall"
)

// syncData waits until what was written to a file is on disk, in a file that has not grown: its times may
// come later, which saves the file system's journal.
func syncData(f *os.File) error {
	for {
		err := syscall.Fdatasync(int(f.Fd()))
		if err != syscall.EINTR {
			return os.NewSyscallError("fdatasync", err)
		}
	}
}
