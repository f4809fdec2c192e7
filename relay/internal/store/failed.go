package store

import (
	"database/sql/driver"
	"errors"
	"syscall"
)

// Failed reports whether err comes from the store and not from the request. That is so if the disk of the store, or of
// the files beside it, is full or broken, or if the database server does not answer.
func Failed(err error) bool {
	for _, cause := range []error{driver.ErrBadConn, syscall.ENOSPC, syscall.EDQUOT, syscall.EROFS, syscall.EIO} {
		if errors.Is(err, cause) {
			return true
		}
	}
	return isSQLiteError(err) || isPostgresError(err)
}
