package relay

import (
	"errors"
	"maps"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/doona-dp/doona/internal/service"
	"github.com/doona-dp/doona/relay/internal/tasks"
	"github.com/doona-dp/doona/wire/problem"
	"github.com/doona-dp/doona/wire/task"
)

// answers counts the latest answers to reports, by task, to find out what most of them are. A block of answers ends
// after blockTime, if it has at least blockSize of them. Only the problem that more than half of a block have is ever
// shown, so no answer to a single client can be seen.
type answers struct {
	now func() time.Time

	mu     sync.Mutex // guards blocks
	blocks map[task.ID]*block
}

const (
	blockSize = 64
	blockTime = 20 * time.Second

	// blockAge is how long a block tells something about the present. A task may have few reports a day.
	blockAge = 24 * time.Hour

	// astrayAge is the same for reports that went astray. Once their pages are mended, no report comes that could end
	// the block.
	astrayAge = 45 * time.Second
)

// allTasks stands for the reports of all tasks, even of tasks that the relay does not serve.
var allTasks task.ID

// block has the answers of a task that are being counted, and what most answers of the previous block were.
type block struct {
	begun   time.Time
	total   int
	refused map[problem.Name]int

	most   problem.Name // "" if no problem had the majority
	ended  time.Time
	latest time.Time // of the latest answer
}

// count counts an answer. name is "" if the report was accepted.
func (a *answers) count(id task.ID, name problem.Name) {
	a.mu.Lock()
	defer a.mu.Unlock()
	now := a.now()
	b := a.blocks[id]
	if b == nil {
		b = &block{begun: now, refused: map[problem.Name]int{}}
		a.blocks[id] = b
	}
	b.end(now)
	b.total++
	b.latest = now
	if name != "" {
		b.refused[name]++
	}
}

// mostly returns the problem of most of a task's latest answers, or "".
func (a *answers) mostly(id task.ID) problem.Name {
	a.mu.Lock()
	defer a.mu.Unlock()
	b, now := a.blocks[id], a.now()
	if b == nil {
		return ""
	}
	b.end(now)
	if now.Sub(b.ended) > blockAge || isAstray(b.most) && now.Sub(b.latest) > astrayAge {
		return ""
	}
	return b.most
}

// forget removes the answers of tasks that the relay does not serve.
func (a *answers) forget(served map[task.ID]*tasks.Hosted) {
	a.mu.Lock()
	defer a.mu.Unlock()
	maps.DeleteFunc(a.blocks, func(id task.ID, _ *block) bool { return id != allTasks && served[id] == nil })
}

// isAstray reports whether a problem means that reports should have gone to another relay.
func isAstray(name problem.Name) bool {
	return name == problem.UnknownTask || name == problem.NotIngress
}

// end ends the block, if it has enough answers and time has passed, or if the clock went back.
func (b *block) end(now time.Time) {
	if passed := now.Sub(b.begun); b.total < blockSize || passed >= 0 && passed < blockTime {
		return
	}
	b.most = ""
	for name, n := range b.refused {
		if 2*n > b.total {
			b.most = name
		}
	}
	b.begun, b.ended, b.total = now, now, 0
	clear(b.refused)
}

// counted counts the answers of a handler of reports. If onlyRefusals is set, it counts no success.
func (r *Relay) counted(handle service.Handler, onlyRefusals bool) service.Handler {
	handle = r.withProblems(handle)
	return func(w http.ResponseWriter, req *http.Request) error {
		err := handle(w, req)
		var p *problem.Problem
		var name problem.Name
		switch errors.As(err, &p); {
		case p != nil:
			name = p.Name
		case err != nil:
			name = problem.Internal
		case onlyRefusals:
			return nil
		}
		if s := r.reportedTo(req); s != nil {
			if s.IsSuspended() { // its answers say nothing about the time after the suspension
				return err
			}
			r.answers.count(s.ID, name)
		}
		r.answers.count(allTasks, name)
		return err
	}
}

// reportedTo returns the task that decides about a report, or nil: the task in the path, or the first table of the set.
func (r *Relay) reportedTo(req *http.Request) *tasks.Hosted {
	all := r.Hosted()
	if id, err := service.PathKey[task.ID](req, "set"); err == nil {
		if set := all.SetByID(id); set != nil {
			return set.First()
		}
	}
	s, _ := service.PathTask(req, all.ByID)
	return s
}

// advice says, for each problem that most reports of a task may get, what the operator should look at.
var advice = map[problem.Name]string{
	problem.UnknownTask:  "pages report to a task that this relay does not serve: has it been removed from relay.yaml?",
	problem.NotIngress:   "pages report to this relay, which is not the task's first: check the proxy's address",
	problem.SetOnly:      "pages report to a table of a set by itself: ask the owner what the pages report to",
	problem.EpochNotOpen: "compare this machine's clock with another one",
	problem.EpochClosed: "the epoch is over, full or its task has ended: compare clocks, and ask the owner what the pages " +
		"report to",
	problem.MediaType:   "a proxy or a program changes the header Content-Type",
	problem.TooLarge:    "a proxy or a program changes bodies, or pages have another task",
	problem.Malformed:   "a proxy or a program changes bodies, or pages have another version of Doona",
	problem.DoesNotOpen: "pages have another task or keys, or a proxy changes bodies",
	problem.ForeignOrigin: "the task does not list the pages' origin, or a proxy changes the header Origin: ask the " +
		"task's owner",
	problem.TokenMissing: "pages get no tokens from the issuer, or a proxy drops the header Authorization",
	problem.TokenInvalid: "the issuer's tokens are of another task or epoch: ask its operator",
	problem.Limit: "is a proxy in front whose address counts as every client's? List all proxies in trusted_proxies. " +
		"Otherwise one network sends repeatedly",
	problem.Replayed:        "a proxy or a page sends reports again from another network",
	problem.SlowDown:        "is a proxy in front whose address counts as every client's? List all proxies in trusted_proxies",
	problem.Overloaded:      "the relay is full, its store fails, or the owner is over a limit: see the log and relay owners",
	problem.ClockInDoubt:    "the relay does not know the time: see its log, and relay trust-clock --help",
	problem.StateRolledBack: "state rollback: restore the newer files or run relay end-epochs",
	problem.Internal:        "the relay failed: see its log",
}

// refusalProblems are the problems that a [Refusal] may have, in order.
var refusalProblems = slices.Sorted(maps.Keys(advice))
