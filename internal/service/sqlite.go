package service

import (
	"errors"
	"fmt"
	"os"

	"github.com/doona-dp/doona/internal/durable"
)

// ClaimSQLite reserves an SQLite file for this process until release, or until the process ends. It creates a missing
// file with mode 0600. A second process gets an error, because it would not know the state that the first one has in
// memory. ClaimSQLite then syncs the file and its write-ahead log: a killed process may have committed data that is not
// on disk, and no answer or other file may rely on such data.
func ClaimSQLite(path string) (release func() error, err error) {
	release, err = durable.ClaimFile(path)
	if errors.Is(err, durable.ErrClaimed) {
		return nil, fmt.Errorf("couldn't open the store %s: %w: one process at a time can serve from an SQLite file",
			path, err)
	}
	if err != nil {
		return nil, fmt.Errorf("couldn't open the store: %w", err)
	}
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600) // SQLite would create it with the mode of the umask
	if err != nil {
		return nil, errors.Join(fmt.Errorf("couldn't open the store: %w", err), release())
	}
	f.Close()
	if err := durable.Sync(path, "-wal"); err != nil {
		return nil, errors.Join(fmt.Errorf("couldn't sync the store: %w", err), release())
	}
	return release, nil
}

// The error codes of SQLite for a failing disk and for a full one. A full disk may cause either.
const (
	sqliteIO   = 10
	sqliteFull = 13
)

// FullDisk reports whether an error means a full disk. The error may come from SQLite.
func FullDisk(err error) bool {
	var coded interface{ Code() int }
	if errors.As(err, &coded) && (coded.Code()&0xff == sqliteFull || coded.Code()&0xff == sqliteIO) {
		return true
	}
	return durable.Full(err)
}
