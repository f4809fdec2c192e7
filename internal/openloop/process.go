package openloop

import (
	"errors"
	"fmt"
	"os"
	"regexp"
	"strconv"
	"strings"
)

var highWater = regexp.MustCompile(`(?m)^VmHWM:\s+(\d+) kB$`)

// PeakRSS returns the peak memory of a process, in kB, on systems with /proc/PID/status.
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

// CPUSeconds returns the user and system time of a process, in seconds (proc_pid_stat(5), fields 14 and 15, which Linux
// counts in hundredths of a second).
func CPUSeconds(pid int) (float64, error) {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0, fmt.Errorf("couldn't read the CPU time: %w", err)
	}
	_, after, _ := strings.Cut(string(stat), ") ") // the process's name, in parentheses, may contain any characters
	fields := strings.Fields(after)
	if len(fields) < 13 {
		return 0, errors.New("couldn't read the CPU time: too few fields")
	}
	var ticks float64
	for _, field := range fields[11:13] {
		v, err := strconv.ParseFloat(field, 64)
		if err != nil {
			return 0, fmt.Errorf("couldn't read the CPU time: %w", err)
		}
		ticks += v
	}
	return ticks / 100, nil
}
