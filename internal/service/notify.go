package service

import (
	"context"
	"net"
	"os"
	"strconv"
	"time"
)

// notify tells the service manager that started the program how it stands, by the datagram of sd_notify(3). It
// does nothing where there is none. An error would say no more than the manager's own log.
func notify(state string) {
	path := os.Getenv("NOTIFY_SOCKET")
	if path == "" {
		return
	}
	conn, err := net.DialUnix("unixgram", nil, &net.UnixAddr{Name: path, Net: "unixgram"}) // @ is an abstract name
	if err != nil {
		return
	}
	defer conn.Close()
	_, _ = conn.Write([]byte(state))
}

// watchdog tells the service manager twice in its time that the program runs, until ctx ends. It says no more than
// that: a disk that is full and a database that is away are no reason to be started again.
func watchdog(ctx context.Context) {
	micros, err := strconv.ParseInt(os.Getenv("WATCHDOG_USEC"), 10, 64)
	if pid := os.Getenv("WATCHDOG_PID"); err != nil || micros <= 0 || pid != "" && pid != strconv.Itoa(os.Getpid()) {
		return
	}
	every := time.NewTicker(time.Duration(micros) * time.Microsecond / 2)
	defer every.Stop()
	for {
		notify("WATCHDOG=1")
		select {
		case <-ctx.Done():
			return
		case <-every.C:
		}
	}
}
