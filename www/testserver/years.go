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
	"sync"

	"github.com/doona-dp/doona/accountant/compose"
	"github.com/doona-dp/doona/internal/testing/fixture"
	"github.com/doona-dp/doona/internal/testing/stattest"
	"github.com/doona-dp/doona/protocols/registry"
	"github.com/doona-dp/doona/wire/task"
	"github.com/doona-dp/doona/wire/taskfile"
)

// years is a stream of four tasks of a hundred days each, and what has been reported to it.
type years struct {
	chains [][]byte // the stream with so many successors
	root   task.ID
	law    *compose.Law // of one report of any of its tasks
	tasks  []task.ID

	mu      sync.Mutex // guards the rest
	renewed int        // successors that there are
	left    []uint64   // epochs of the reports that left clients, each body once
	bodies  map[bodyHash]bool
}

// bodyHash is the SHA-256 of a report.
type bodyHash [sha256.Size]byte

// hundred is the days of one task.
const taskDays = 100

// addYears makes the stream. In long runs clients visit on every day, else on every 50th.
func (r *relay) addYears(url string) (offer, error) {
	draft := year(10, nil) // planned for 365 days, in tasks of taskDays
	draft.Stream = &task.Stream{Name: "years"}
	root, err := fixture.Sign(draft, []string{url, "https://second.example"}, days(taskDays))
	if err != nil {
		return offer{}, err
	}
	m, err := registry.Open(root.Task)
	if err != nil {
		return offer{}, err
	}
	y := &r.years
	if y.law, err = m.Law(); err != nil {
		return offer{}, err
	}
	y.root, y.bodies = root.ID, map[bodyHash]bool{}
	var all []*fixture.Task
	for t := root; len(all) < 4; t = t.Succeed(root.Owner, func(*task.Task) {}) {
		all, y.tasks = append(all, t), append(y.tasks, t.ID)
		chain, err := chainOf(all)
		if err != nil {
			return offer{}, err
		}
		y.chains = append(y.chains, chain)
		r.tasks[t.Path()] = &scenario{Task: t}
	}
	first := taskfile.Open{Task: root.Task, ID: root.ID}
	stride := 50
	if stattest.Long {
		stride = 1
	}
	return offer{Stream: first.StreamURL(first.Task, 0), Owner: root.OwnerText(), Stride: stride}, nil
}

// serve answers a request for this stream, if it is one.
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

// renew sets how many successors the stream has: a JSON number.
func (r *relay) renew(w http.ResponseWriter, req *http.Request) {
	y := &r.years
	y.mu.Lock()
	defer y.mu.Unlock()
	if err := json.NewDecoder(req.Body).Decode(&y.renewed); err != nil || y.renewed < 0 || y.renewed >= len(y.chains) {
		http.Error(w, fmt.Sprint("no such number of successors: ", err), http.StatusBadRequest)
	}
}

// note takes note of a report that arrived, if it is this stream's.
func (y *years) note(s *scenario, epoch uint64, body []byte) {
	y.mu.Lock()
	defer y.mu.Unlock()
	hash := bodyHash(sha256.Sum256(body))
	if !slices.Contains(y.tasks, s.ID) || y.bodies[hash] {
		return
	}
	y.bodies[hash] = true
	y.left = append(y.left, s.Epochs.Start+epoch*s.Epochs.Length)
}

// spent is what the reports that left cost their one client together.
type spent struct {
	What    string  `json:"what"`
	Engine  string  `json:"engine"`
	Reports int     `json:"reports"`
	Most    int     `json:"most"`    // in a window
	Epsilon float64 `json:"epsilon"` // of those, at the budget's δ
	Delta   float64 `json:"delta"`   // of those, at the budget's ε
}

// account answers what all reports since the last call cost in the worst of all windows, by the task's law and the
// times of the reports alone; nothing of a client's ledger is in it. Unless it is to keep them it forgets them.
func (r *relay) account(w http.ResponseWriter, req *http.Request) {
	var asked struct {
		What, Engine         string
		Epsilon, Delta, Days float64
		Keep                 bool
	}
	if err := json.NewDecoder(req.Body).Decode(&asked); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	y := &r.years
	y.mu.Lock()
	defer y.mu.Unlock()
	out := spent{What: asked.What, Engine: asked.Engine, Reports: len(y.left),
		Most: maxInWindow(y.left, asked.Days*86_400)}
	if out.Most > 0 {
		seen := []compose.Observation{y.law.Observation(uint64(out.Most))}
		out.Delta = compose.Delta(seen, asked.Epsilon, asked.Delta)
		var err error
		if out.Epsilon, err = compose.Epsilon(seen, asked.Delta); err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
			return
		}
	}
	if !asked.Keep {
		y.left = nil
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

// figure adds a line to the file of figures, if one is named.
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

// most returns the most reports in any window of so many seconds: one that begins with a report has all that
// others have.
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
