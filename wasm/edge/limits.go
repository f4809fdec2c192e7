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

// Limits of one worker instance, which has 128 MiB of memory.
const (
	maxJobs   = 512      // Jobs in progress: requests from their admission until their report is sent.
	maxHeld   = 32 << 20 // Bytes of all jobs' bodies and sealed reports together.
	maxReport = 8 << 20  // Bytes of one sealed report.
	maxBody   = 1 << 20  // Bytes of one posted value.
	// maxText is the most bytes of a posted text. The strings protocol cuts the text to the task's length.
	maxText = 1024
	// networkShare limits a network to 1/networkShare of what other networks leave free, in posts whose bodies have not
	// arrived.
	networkShare = 8
	// jobEnds is the age at which a job counts as over in any case. The runtime silently ends work 30 s after the
	// answer.
	jobEnds = 90 * time.Second
)

// load counts the jobs and bytes of an instance and limits them. Its zero value is empty.
type load struct {
	mu    sync.Mutex // no goroutine waits while it holds mu
	jobs  map[*job]struct{}
	bytes int
}

// job is one request that may produce a report.
type job struct {
	began   time.Time
	bytes   int
	network string // The network of a page's post until its body has arrived; else "".
}

// usage is the number and the total bytes of some jobs.
type usage struct{ jobs, bytes int }

// begin admits a job of a network, or returns a problem at a limit.
func (l *load) begin(network string) (*job, error) {
	j := &job{began: time.Now(), network: network}
	return j, l.hold(j, 0)
}

// hold adds a job, if new, and reserves bytes until the job ends. At a limit it returns a problem.
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

// full reports whether a job would exceed a limit. Posts of one network without their bodies may take an eighth of what
// other networks leave free, or one post in any case. Reports that wait to be sent do not count: otherwise refusals
// would reveal whether the network's last post was counted.
func (l *load) full(j *job, bytes int) bool {
	if _, ok := l.jobs[j]; !ok && len(l.jobs) >= maxJobs || l.bytes+bytes > maxHeld {
		return true
	}
	if j.network == "" {
		return false
	}
	var own, others usage // usage of the jobs other than j
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

// arrived records that a job's body has arrived and no longer counts for its network.
func (l *load) arrived(j *job) {
	l.mu.Lock()
	defer l.mu.Unlock()
	j.network = ""
}

// end removes a job and releases its bytes. A second call has no effect.
func (l *load) end(j *job) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if _, ok := l.jobs[j]; ok {
		delete(l.jobs, j)
		l.bytes -= j.bytes
	}
}

// forget removes the jobs that began before a time.
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
		"this instance of the worker holds as many reports as it can: post again later")
	return p.Retry(time.Second)
}

// entries returns the most numbers that a value of the task may have.
func entries(t *task.Task) int {
	switch t.Query.Info().Shape {
	case task.PerVector:
		return int(t.Input.Bins)
	case task.PerText:
		return maxText
	}
	return 1
}

// bodyBytes limits a posted value of the task. It allows 32 bytes a number: 17 digits, sign, exponent, comma and space.
func bodyBytes(t *task.Task) int { return min(64+32*entries(t), maxBody) }

// reportBytes returns the size of a sealed report of the task. If such a report cannot be sealed, it returns a size
// beyond any limit.
func reportBytes(t *task.Task) int {
	layout, err := onion.NewLayout(t)
	if err != nil {
		return math.MaxInt
	}
	return layout.MaxBody()
}
