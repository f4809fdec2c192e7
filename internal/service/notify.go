package service

import (
	"context"
	"net"
	"os"
	"strconv"
	"time"
)

// notify sends a state to the service manager that started the program, by the datagram of sd_notify(3). It does
// nothing without a service manager. It ignores errors: the manager's own log shows more.
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

// watchdog tells the service manager, twice per watchdog interval, that the program runs, until ctx ends. It reports
// nothing else: a full disk or an unreachable database is no reason to restart the program.
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
