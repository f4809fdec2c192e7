package ingress

import (
	"net/netip"
	"sync"

	"github.com/doona-dp/doona/relay/internal/tasks"
	"github.com/doona-dp/doona/wire/problem"
)

// room is a number of reports and of bytes of memory for them.
type room struct {
	reports int
	bytes   int64
}

// admission limits the reports that the relay reads, decrypts or stores at one time, before it reads their bodies:
//
//   - all together use at most MaxConcurrent reports and MaxMemory bytes;
//   - one network gets at most an eighth of the free reports and bytes, or one report. So
//     k networks that send slowly on purpose leave (7/8)^k free;
//   - if there are several tasks, none gets more than is then free, in reports and in bytes. So k flooded
//     tasks use k/(k+1) of all, and another task always finds 1/(k+1) free. (The
//     dynamic threshold of shared-memory switches [CH98], with factor 1.)
//
// [CH98]: https://doi.org/10.1109/90.664262
type admission struct {
	limit func() int // largest number of tasks at a time; if it is 1, the task may use all

	mu       sync.Mutex // guards the rest
	free     room
	tasks    map[*tasks.Hosted]room
	networks map[netip.Prefix]room
}

func newAdmission(all room, limit func() int) *admission {
	return &admission{limit: limit, free: all, tasks: map[*tasks.Hosted]room{}, networks: map[netip.Prefix]room{}}
}

// take reserves one report and its bytes for a network and a task. It returns "", or a problem if the limit of all, of
// the network or of the task is reached.
func (a *admission) take(s *tasks.Hosted, client netip.Prefix, bytes int64) problem.Name {
	a.mu.Lock()
	defer a.mu.Unlock()
	held, network := a.tasks[s], a.networks[client]
	switch {
	case a.free.reports == 0 || a.free.bytes < bytes:
		return problem.Overloaded
	case network.reports > 0 && (network.reports >= (a.free.reports+7)/8 || network.bytes+bytes > a.free.bytes/8):
		return problem.SlowDown
	case a.limit() != 1 && (held.reports >= a.free.reports || held.bytes+bytes > a.free.bytes):
		return problem.Overloaded
	}
	a.networks[client] = room{network.reports + 1, network.bytes + bytes}
	a.tasks[s] = room{held.reports + 1, held.bytes + bytes}
	a.free = room{a.free.reports - 1, a.free.bytes - bytes}
	return ""
}

func (a *admission) leave(s *tasks.Hosted, client netip.Prefix, bytes int64) {
	a.mu.Lock()
	defer a.mu.Unlock()
	held, network := a.tasks[s], a.networks[client]
	if network.reports == 1 {
		delete(a.networks, client)
	} else {
		a.networks[client] = room{network.reports - 1, network.bytes - bytes}
	}
	a.tasks[s] = room{held.reports - 1, held.bytes - bytes}
	a.free = room{a.free.reports + 1, a.free.bytes + bytes}
}

func (a *admission) left() room {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.free
}

// MostReportBytes returns how many bytes of memory a task's largest report takes until it is stored.
func MostReportBytes(s *tasks.Hosted) int64 { return ReportBytes(int64(s.Layout.MaxBody())) }

// ReportBytes returns how many bytes of memory a report with a body of body bytes takes until it is stored: the body,
// its plaintext, the rows made of it, and 16 KiB for the request.
func ReportBytes(body int64) int64 { return 4*body + 16<<10 }
