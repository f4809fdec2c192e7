package service

import (
	"errors"
	"fmt"
	"os"

	"github.com/doona-dp/doona/internal/durable"
)

// ClaimSQLite reserves an SQLite file for this process until release or the process's end. It creates the file, of mode
// 0600, if there is none. It refuses a second process, which would not know the state that the first one has in memory.
// It then syncs the file and its log: a killed process may have committed data that is not on disk, and no answer or
// other file may rely on such data.
func ClaimSQLite(path string) (release func() error, err error) {
	release, err = durable.ClaimFile(path)
	if errors.Is(err, durable.ErrClaimed) {
		return nil, fmt.Errorf("couldn't open the store %s: %w: one process at a time can serve from an SQLite file",
			path, err)
	}
	if err != nil {
		return nil, fmt.Errorf("couldn't open the store: %w", err)
	}
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600) // SQLite would use the umask
	if err != nil {
		return nil, errors.Join(fmt.Errorf("couldn't open the store: %w", err), release())
	}
	f.Close()
	if err := durable.Sync(path, "-wal"); err != nil {
		return nil, errors.Join(fmt.Errorf("couldn't sync the store: %w", err), release())
	}
	return release, nil
}

// SQLite's error codes for a disk that is full, and for one that fails. A full disk may return either.
const (
	sqliteIO   = 10
	sqliteFull = 13
)

// FullDisk reports whether an error, which may be SQLite's, means a full disk.
func FullDisk(err error) bool {
	var coded interface{ Code() int }
	if errors.As(err, &coded) && (coded.Code()&0xff == sqliteFull || coded.Code()&0xff == sqliteIO) {
		return true
	}
	return durable.Full(err)
}
