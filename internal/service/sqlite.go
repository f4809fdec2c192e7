package service

import (
	"errors"
	"fmt"
	"os"

	"github.com/doona-dp/doona/internal/durable"
)

// ClaimSQLite makes an SQLite file this process's own, until release or its end, and creates it, of mode
// 0600, where there is none. A second process is refused: it would not know what the first one holds in
// memory. What the file and its log hold is on disk then: a process that was killed may have committed what is
// not, and nobody may be told of that, nor anything be written down that relies on it.
func ClaimSQLite(path string) (release func() error, err error) {
	release, err = durable.ClaimFile(path)
	if errors.Is(err, durable.ErrClaimed) {
		return nil, fmt.Errorf("couldn't open the store %s: %w: one process at a time can serve from an SQLite file",
			path, err)
	}
	if err != nil {
		return nil, fmt.Errorf("couldn't open the store: %w", err)
	}
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600) // SQLite would ask the umask
	if err != nil {
		return nil, errors.Join(fmt.Errorf("couldn't open the store: %w", err), release())
	}
	f.Close()
	if err := durable.Settle(path, "-wal"); err != nil {
		return nil, errors.Join(fmt.Errorf("couldn't sync the store: %w", err), release())
	}
	return release, nil
}

// SQLite's codes of a disk without room; of one that fails, as for want of room it may, too.
const (
	sqliteIO   = 10
	sqliteFull = 13
)

// FullDisk says whether an error, which may be SQLite's, is that of a disk without room.
func FullDisk(err error) bool {
	var coded interface{ Code() int }
	if errors.As(err, &coded) && (coded.Code()&0xff == sqliteFull || coded.Code()&0xff == sqliteIO) {
		return true
	}
	return durable.Full(err)
}
