package issuer

import (
	"sync"

	"github.com/doona-dp/doona/wire/problem"
)

// requestLimit limits concurrent requests, with the same rules as a relay's limit on reports in flight. One client may
// use an eighth of the free capacity, so a few clients cannot use all of it. If there are several tasks, one task may
// use at most as much as it leaves free.
type requestLimit struct {
	all     int
	oneTask bool // the issuer has one task, which may use all capacity

	mu      sync.Mutex // guards the rest
	free    int
	tasks   map[*hostedTask]int
	clients map[string]int // by account or network
}

func newRequestLimit(all, tasks int) *requestLimit {
	return &requestLimit{all: all, oneTask: tasks == 1, free: all, tasks: map[*hostedTask]int{},
		clients: map[string]int{}}
}

// take admits a client's request, and returns "". It returns [problem.SlowDown] if the client has too many requests,
// and [problem.Overloaded] if the issuer or the task has.
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

func (p *requestLimit) release(s *hostedTask, client string) {
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

func (p *requestLimit) inFlight() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.all - p.free
}
