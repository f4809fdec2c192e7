package store

import (
	"database/sql/driver"
	"errors"
	"syscall"
)

// Failed says whether an error is of what the store is kept on, and not of what it was asked: a disk that is full or
// broken, the store's or that of the files beside it, or a database server that is away.
func Failed(err error) bool {
	for _, cause := range []error{driver.ErrBadConn, syscall.ENOSPC, syscall.EDQUOT, syscall.EROFS, syscall.EIO} {
		if errors.Is(err, cause) {
			return true
		}
	}
	return isSQLiteError(err) || isPostgresError(err)
}
