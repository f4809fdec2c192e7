package issuer

import (
	"sync"

	"github.com/doona-dp/doona/wire/problem"
)

// atWork bounds the requests at work as a relay bounds reports in flight: one client has at most an eighth of what is
// free, so that few never take all, and one of several tasks never more than is left free.
type requestLimit struct {
	all     int
	oneTask bool // only one task, which may have all

	mu      sync.Mutex // guards the rest
	free    int
	tasks   map[*hostedTask]int
	clients map[string]int // accounts or networks
}

func newRequestLimit(all, tasks int) *requestLimit {
	return &requestLimit{all: all, oneTask: tasks == 1, free: all, tasks: map[*hostedTask]int{}, clients: map[string]int{}}
}

// take takes a place for a client of a task. It returns "" or the name of the problem: whose fault it is that there is
// none.
func (p *requestLimit) take(s *hostedTask, client string) problem.Name {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case p.free == 0:
		return problem.Overloaded
	case p.clients[client] >= (p.free+7)/8:
		return problem.SlowDown
	case !p.oneTask && p.tasks[s] >= p.free:
		return problem.Overloaded
	}
	p.free--
	p.tasks[s]++
	p.clients[client]++
	return ""
}

// leave gives back what take took.
func (p *requestLimit) leave(s *hostedTask, client string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.free++
	if p.tasks[s]--; p.tasks[s] == 0 {
		delete(p.tasks, s)
	}
	if p.clients[client]--; p.clients[client] == 0 {
		delete(p.clients, client)
	}
}

// inFlight returns how many places are taken.
func (p *requestLimit) inFlight() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.all - p.free
}
