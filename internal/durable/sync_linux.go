package durable

import (
	"os"
	"syscall"
)

// fdatasync waits until data written to a file are on disk. The file must not have grown. The system may write the
// file's times later, which saves a write to the file system's journal.
func fdatasync(f *os.File) error {
	for {
		err := syscall.Fdatasync(int(f.Fd()))
		if err != syscall.EINTR {
			return os.NewSyscallError("fdatasync", err)
		}
	}
}
