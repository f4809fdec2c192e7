package durable

import (
	"os"
	"syscall"
)

// syncData waits until data written to a file is on disk. The file must not have grown. Its times may be written later,
// which saves a write to the file system's journal.
func syncData(f *os.File) error {
	for {
		err := syscall.Fdatasync(int(f.Fd()))
		if err != syscall.EINTR {
			return os.NewSyscallError("fdatasync", err)
		}
	}
}
