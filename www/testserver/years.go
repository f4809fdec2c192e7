package main

import (
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"slices"
	"strconv"
	"sync"

	"github.com/doona-dp/doona/accountant/compose"
	"github.com/doona-dp/doona/internal/testing/fixture"
	"github.com/doona-dp/doona/internal/testing/stattest"
	"github.com/doona-dp/doona/protocols/registry"
	"github.com/doona-dp/doona/wire/task"
	"github.com/doona-dp/doona/wire/taskfile"
)

// years is a stream of four tasks of a hundred daily epochs each, and the reports that arrived for it.
type years struct {
	name string
	// The encoded stream, by the number of tasks after the first. Clients must refuse the others: in each, another part
	// of the second task differs.
	chains [][]byte
	root   task.ID
	task   *task.Task   // the first
	law    *compose.Law // the distribution of privacy loss of one report, the same for all tasks
	tasks  []task.ID

	mu      sync.Mutex // guards the fields below
	renewed int        // which of the chains is served
	left    []uint64   // when the epochs of the arrived reports begin, in Unix seconds; equal bodies count once
	bodies  map[bodyHash]bool
	events  map[string]uint64 // the days of the events that arrived, from the stream's first, by their reports' tags
}

// bodyHash is the SHA-256 of a report.
type bodyHash [sha256.Size]byte

// taskDays is the number of daily epochs of one task of the stream.
const taskDays = 100

// renewals are changes to the second task of a stream with a cap that clients must refuse. Each task is valid.
var renewals = []func(*task.Task){
	func(t *task.Task) { t.Epochs.Cap.Reports++ },
	func(t *task.Task) { t.Epochs.Cap.Window++ },
	func(t *task.Task) { t.Epochs.Pace.Reports-- },
	func(t *task.Task) { t.Epochs.Pace.Window++ },
	func(t *task.Task) { t.Epochs.Pace = task.Cap{} },
	func(t *task.Task) { t.Epochs.Cap, t.Epochs.Pace = task.Cap{}, task.Cap{} },
	func(t *task.Task) { t.Epochs.Length /= 2 },
	func(t *task.Task) { t.Claim.SetTotal("9.9", "1e-5") },
}

// addYears makes a stream from the draft of a task, whose total (ε, δ) is planned for 365 days; each task has only
// taskDays. Clients visit every day with the build tag long, every 50th day otherwise.
func (r *relay) addYears(url, name string, draft *task.Task) (offer, error) {
	epochs := limitedDays(draft)
	epochs.Count = taskDays
	draft.Stream = &task.StreamPosition{Name: name}
	root, err := fixture.Sign(draft, []string{url, "https://second.example"}, epochs)
	if err != nil {
		return offer{}, err
	}
	m, err := registry.Open(root.Task)
	if err != nil {
		return offer{}, err
	}
	y := &years{name: name, task: root.Task, events: map[string]uint64{}}
	r.years = append(r.years, y)
	if y.law, err = m.Law(); err != nil {
		return offer{}, err
	}
	y.root, y.bodies = root.ID, map[bodyHash]bool{}
	var all []*fixture.SignedTask
	for t := root; len(all) < 4; t = t.Succeed(root.Owner, func(*task.Task) {}) {
		all, y.tasks = append(all, t), append(y.tasks, t.ID)
		chain, err := chainOf(all)
		if err != nil {
			return offer{}, err
		}
		y.chains = append(y.chains, chain)
		r.tasks[t.Path()] = &scenario{SignedTask: t}
	}
	for _, change := range y.refused() {
		chain, err := chainOf([]*fixture.SignedTask{root, root.Succeed(root.Owner, change)})
		if err != nil {
			return offer{}, err
		}
		y.chains = append(y.chains, chain)
	}
	first := taskfile.Open{Task: root.Task, ID: root.ID}
	stride := 50
	if stattest.Long {
		stride = 1
	}
	if len(y.refused()) > 0 {
		stride = 0
	}
	return offer{Stream: first.StreamURL(first.Task, 0), Owner: root.OwnerText(), Stride: stride}, nil
}

// refused returns the changes to the second task that clients must refuse: those of the task's limits.
func (y *years) refused() []func(*task.Task) {
	switch {
	case !y.task.Epochs.Events.IsZero():
		return eventRenewals
	case !y.task.Epochs.Cap.IsZero():
		return renewals
	}
	return nil
}

// serve answers the request and returns true if it is for this stream; otherwise it returns false.
func (y *years) serve(w http.ResponseWriter, req *http.Request) bool {
	if req.PathValue("task") != y.root.String() {
		return false
	}
	y.mu.Lock()
	defer y.mu.Unlock()
	w.Header().Set("Content-Type", "application/msgpack")
	w.Write(y.chains[y.renewed])
	return true
}

// renew sets which chain of a stream is served.
func (r *relay) renew(w http.ResponseWriter, req *http.Request) {
	var asked struct {
		Stream string
		Chain  int
	}
	err := json.NewDecoder(req.Body).Decode(&asked)
	y := r.yearsOf(asked.Stream)
	if err != nil || y == nil || asked.Chain < 0 || asked.Chain >= len(y.chains) {
		http.Error(w, fmt.Sprintf("invalid body: want the name of a stream and the number of a chain (%v)", err),
			http.StatusBadRequest)
		return
	}
	y.mu.Lock()
	defer y.mu.Unlock()
	y.renewed = asked.Chain
}

// yearsOf returns the stream with a name, or nil.
func (r *relay) yearsOf(name string) *years {
	for _, y := range r.years {
		if y.name == name {
			return y
		}
	}
	return nil
}

// note records an arrived report if it is for this stream and new.
func (y *years) note(s *scenario, epoch uint64, body []byte) {
	y.mu.Lock()
	defer y.mu.Unlock()
	hash := bodyHash(sha256.Sum256(body))
	if !slices.Contains(y.tasks, s.ID) || y.bodies[hash] {
		return
	}
	y.bodies[hash] = true
	y.left = append(y.left, s.Epochs.Begin(epoch))
}

// spent is the privacy cost of all arrived reports. One client has sent them all.
type spent struct {
	Stream  string  `json:"stream"`
	What    string  `json:"what"`
	Engine  string  `json:"engine"`
	Reports int     `json:"reports"`
	Most    int     `json:"most"`    // the largest number of reports in one window, or of copies of the law for events
	Allowed int     `json:"allowed"` // the copies that these reports may take: most, unless the task has events
	Epsilon float64 `json:"epsilon"` // ε of these reports at the budget's δ
	Delta   float64 `json:"delta"`   // δ of these reports at the budget's ε
}

// account answers with the cost of the arrived reports in the most expensive window. It uses the task's distribution of
// privacy loss and the times of the reports, or of the events among them, and not the client's ledger. It then forgets
// the reports unless asked to keep them.
func (r *relay) account(w http.ResponseWriter, req *http.Request) {
	var asked struct {
		Stream, What, Engine string
		Epsilon, Delta, Days float64
		Keep                 bool
	}
	if err := json.NewDecoder(req.Body).Decode(&asked); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	y := r.yearsOf(asked.Stream)
	if y == nil {
		http.Error(w, "invalid stream "+strconv.Quote(asked.Stream), http.StatusBadRequest)
		return
	}
	y.mu.Lock()
	defer y.mu.Unlock()
	out := spent{Stream: asked.Stream, What: asked.What, Engine: asked.Engine, Reports: len(y.left)}
	var err error
	if out.Most, out.Allowed, err = y.copies(uint64(asked.Days)); err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	if out.Most > 0 {
		seen := []compose.Observation{y.law.Observation(uint64(out.Most))}
		out.Delta = compose.Delta(seen, asked.Epsilon, asked.Delta)
		if out.Epsilon, err = compose.Epsilon(seen, asked.Delta); err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
			return
		}
	}
	if !asked.Keep {
		y.left = nil
		clear(y.events)
	}
	line, err := json.Marshal(out)
	if err == nil && out.Reports > 0 {
		err = appendFigure(line)
	}
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	w.Write(line)
}

// appendFigure appends a line to the file that the environment variable DOONA_ACCOUNTS names, if any.
func appendFigure(line []byte) error {
	path := os.Getenv("DOONA_ACCOUNTS")
	if path == "" {
		return nil
	}
	f, err := os.OpenFile(path, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	_, err = f.Write(append(bytes.Clone(line), '\n'))
	return errors.Join(err, f.Close())
}

// maxInWindow returns the largest number of reports in any window of window seconds. at are the reports' times in Unix
// seconds. It tries only windows that begin with a report: no other window holds more reports.
func maxInWindow(at []uint64, window float64) (worst int) {
	for _, first := range at {
		n := 0
		for _, other := range at {
			if other >= first && float64(other-first) < window {
				n++
			}
		}
		worst = max(worst, n)
	}
	return worst
}
