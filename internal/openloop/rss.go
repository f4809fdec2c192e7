package openloop

import (
	"fmt"
	"os"
	"regexp"
	"strconv"
)

var highWater = regexp.MustCompile(`(?m)^VmHWM:\s+(\d+) kB$`)

// PeakRSS returns the most memory that a process has held so far, in kB, where the system keeps
// /proc/PID/status.
func PeakRSS(pid int) (int, error) {
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return 0, fmt.Errorf("couldn't read the peak memory of process %d: %w", pid, err)
	}
	m := highWater.FindSubmatch(status)
	if m == nil {
		return 0, fmt.Errorf("couldn't read the peak memory of process %d: the system doesn't say", pid)
	}
	return strconv.Atoi(string(m[1]))
}
