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

// The bounds of one instance. A runtime gives it 128 MiB.
const (
	maxJobs   = 512      // Requests that report, from their admission until their report has left.
	maxHeld   = 32 << 20 // Bytes of their bodies and sealed reports together.
	maxReport = 8 << 20  // Bytes of one sealed report.
	maxBody   = 1 << 20  // Bytes of one posted value.
	// maxText is how many bytes of a text may be posted; the protocol cuts it to the task's length.
	maxText = 1024
	// jobEnds is when a job is over in any case: the runtime ends what outlives its answer by 30 s, and tells nobody.
	jobEnds = 90 * time.Second
)

// load bounds the jobs of an instance. Its zero value is empty.
type load struct {
	mu    sync.Mutex // never held while waiting
	jobs  map[*job]struct{}
	bytes int
}

// job is a request that may report.
type job struct {
	began time.Time
	bytes int
}

// begin admits a job, or is a problem.
func (l *load) begin() (*job, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.jobs) >= maxJobs {
		l.forget(time.Now().Add(-jobEnds))
	}
	if len(l.jobs) >= maxJobs {
		return nil, overloaded()
	}
	j := &job{began: time.Now()}
	if l.jobs == nil {
		l.jobs = map[*job]struct{}{}
	}
	l.jobs[j] = struct{}{}
	return j, nil
}

// hold reserves bytes for a job until it ends, or is a problem.
func (l *load) hold(j *job, bytes int) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.bytes+bytes > maxHeld {
		l.forget(time.Now().Add(-jobEnds))
	}
	if l.bytes+bytes > maxHeld {
		return overloaded()
	}
	j.bytes += bytes
	l.bytes += bytes
	return nil
}

// end lets a job go; again has no effect.
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

// reportBytes bounds a sealed report of the task. Of a task that nothing can be sealed for it is without bound.
func reportBytes(t *task.Task) int {
	layout, err := onion.NewLayout(t)
	if err != nil {
		return math.MaxInt
	}
	return layout.MaxBody()
}
