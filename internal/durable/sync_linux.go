package durable

import (
	"os"
	"syscall"
)

// fdatasync waits until data written to a file is on disk. The file must not have grown. The file's times
// may be written later, which saves a write to the file system's journal.
func fdatasync(f *os.File) error {
	for {
		err := syscall.Fdatasync(int(f.Fd()))
		if err != syscall.EINTR {
			return os.NewSyscallError("fdatasync", err)
		}
	}
}
