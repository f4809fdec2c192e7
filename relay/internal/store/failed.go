package store

import (
	"database/sql/driver"
	"errors"
	"syscall"
)

// Failed says whether an error comes from the store's disk or server and not from the request. It is true for a full or
// broken disk, of the store or of the files beside it, and for a database server that does not answer.
func Failed(err error) bool {
	for _, cause := range []error{driver.ErrBadConn, syscall.ENOSPC, syscall.EDQUOT, syscall.EROFS, syscall.EIO} {
		if errors.Is(err, cause) {
			return true
		}
	}
	return isSQLiteError(err) || isPostgresError(err)
}
