package service

import (
	"context"
	"net"
	"os"
	"strconv"
	"time"
)

// notify sends a state to the service manager that started the program, as a datagram of sd_notify(3). Without a
// service manager it does nothing. It ignores errors, because the manager's own log shows more.
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

// watchdog tells the service manager that the program runs, twice per watchdog interval, until ctx ends. It does not
// check the disk or the database: a restart of the program would mend neither.
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
