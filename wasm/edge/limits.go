package edge

import (
	"math"
	"net/http"
	"sync"
	"time"

	"github.com/doona-dp/doona/wire/onion"
	"github.com/doona-dp/doona/wire/problem"
	"github.com/doona-dp/doona/wire/task"
)

// Limits of one instance, to which a runtime gives 128 MiB.
const (
	maxJobs   = 512      // Requests in progress, from admission until their report is sent.
	maxHeld   = 32 << 20 // Bytes of their bodies and sealed reports together.
	maxReport = 8 << 20  // Bytes of one sealed report.
	maxBody   = 1 << 20  // Bytes of one posted value.
	// maxText is how many bytes of a text may be posted; the protocol cuts it to the task's length.
	maxText = 1024
	// networkShare is the fraction 1/networkShare of free capacity that the awaited bodies of one network may take.
	networkShare = 8
	// jobEnds is when a job counts as over in any case: the runtime silently ends work 30 s after the answer.
	jobEnds = 90 * time.Second
)

// load limits the jobs of an instance. Its zero value is empty.
type load struct {
	mu    sync.Mutex // never held while waiting
	jobs  map[*job]struct{}
	bytes int
}

// job is a request that may report.
type job struct {
	began   time.Time
	bytes   int
	network string // Of a page's post until its body has arrived; else "".
}

// usage is the sum over some jobs.
type usage struct{ jobs, bytes int }

// begin admits a job of a network, or returns a problem.
func (l *load) begin(network string) (*job, error) {
	j := &job{began: time.Now(), network: network}
	return j, l.hold(j, 0)
}

// hold reserves a slot and bytes for a job until it ends, or returns a problem.
func (l *load) hold(j *job, bytes int) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.full(j, bytes) {
		l.forget(time.Now().Add(-jobEnds))
	}
	if l.full(j, bytes) {
		return overloaded()
	}
	if l.jobs == nil {
		l.jobs = map[*job]struct{}{}
	}
	if _, ok := l.jobs[j]; !ok {
		l.jobs[j] = struct{}{}
		l.bytes += j.bytes
	}
	j.bytes += bytes
	l.bytes += bytes
	return nil
}

// full reports whether a job may have no more bytes, or may not start. Posts of one network whose bodies are awaited
// may take an eighth of what other networks leave free, or one post. Waiting reports do not count here: otherwise the
// point of refusal would reveal whether the network's last post was counted.
func (l *load) full(j *job, bytes int) bool {
	if _, ok := l.jobs[j]; !ok && len(l.jobs) >= maxJobs || l.bytes+bytes > maxHeld {
		return true
	}
	if j.network == "" {
		return false
	}
	var own, others usage // without this job
	for k := range l.jobs {
		switch {
		case k == j, k.network == "":
		case k.network == j.network:
			own = usage{own.jobs + 1, own.bytes + k.bytes}
		default:
			others = usage{others.jobs + 1, others.bytes + k.bytes}
		}
	}
	return own.jobs > 0 && (own.jobs >= (maxJobs-others.jobs)/networkShare ||
		own.bytes+j.bytes+bytes > (maxHeld-others.bytes)/networkShare)
}

// arrived records that a job's body is no longer awaited.
func (l *load) arrived(j *job) {
	l.mu.Lock()
	defer l.mu.Unlock()
	j.network = ""
}

// end releases a job; a second call has no effect.
func (l *load) end(j *job) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if _, ok := l.jobs[j]; ok {
		delete(l.jobs, j)
		l.bytes -= j.bytes
	}
}

// forget ends the jobs that began before a time.
func (l *load) forget(before time.Time) {
	for j := range l.jobs {
		if j.began.Before(before) {
			delete(l.jobs, j)
			l.bytes -= j.bytes
		}
	}
}

func overloaded() error {
	p := newProblem(problem.Overloaded, http.StatusServiceUnavailable, "too much to do",
		"this instance of the worker has as many reports at hand as it may")
	return p.Retry(time.Second)
}

// entries returns how many numbers a value of the task may have.
func entries(t *task.Task) int {
	switch t.Query.Info().Shape {
	case task.PerVector:
		return int(t.Input.Bins)
	case task.PerText:
		return maxText
	}
	return 1
}

// bodyBytes bounds a posted value of the task: 17 digits, a sign, an exponent, a comma and a space for each number.
func bodyBytes(t *task.Task) int { return min(64+32*entries(t), maxBody) }

// reportBytes returns the size of a sealed report of the task; if it cannot be sealed, a size beyond any limit.
func reportBytes(t *task.Task) int {
	layout, err := onion.NewLayout(t)
	if err != nil {
		return math.MaxInt
	}
	return layout.MaxBody()
}
