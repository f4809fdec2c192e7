package main

import (
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"sync"

	"github.com/doona-dp/doona/accountant/compose"
	"github.com/doona-dp/doona/planner"
	"github.com/doona-dp/doona/protocols/registry"
	"github.com/doona-dp/doona/shufflerclient"
	"github.com/doona-dp/doona/wire/task"
)

// letter is an arrived report of a task with events, as the verifier counts it.
type letter struct {
	Path   string `json:"path"`
	Epoch  uint64 `json:"epoch"`
	Day    uint64 `json:"day"` // the number of the epoch, counted from the first task of the stream
	Letter int    `json:"letter"`
	Bytes  int    `json:"bytes"`
	Body   string `json:"body"` // hexadecimal
	Tag    string `json:"tag"`  // the envelope's: an honest relay passes one report of each tag
}

// rare drafts a task of daily epochs with events that claims (10, 10⁻⁵) in total. It is a count if labels is 0, and
// otherwise a histogram. Relays add the noise.
func rare(days, labels uint64, events task.Events) *task.Task {
	query := task.Count
	if labels > 0 {
		query = task.Histogram
	}
	t, err := planner.Draft(planner.Query{Name: "rare", Query: query, Bins: labels, Labels: labels > 0, Batch: 10_000,
		Honest: .9, TotalEpsilon: 10, TotalDelta: 1e-5, Epochs: days, Events: events, Relays: &planner.RelayNoise{}})
	if err != nil {
		panic("testserver: " + err.Error())
	}
	return t
}

// rareLabels drafts the task of a stream: of a visitor's labels 0 to 7 in a year, at most two in 30 days are not 3. It
// searches for the noise only once.
var rareLabels = sync.OnceValue(func() *task.Task {
	return rare(365, 8, task.Events{Most: 2, Window: 30, Default: 3})
})

// shorter returns a draft of fewer epochs with other events of the same default. It keeps the claim, which was made for
// the longer draft: give it no more events in all.
func shorter(t *task.Task, days uint64, events task.Events) *task.Task {
	short := *t
	short.Epochs = task.Epochs{Count: days, Events: events}
	return &short
}

// capped limits the reports of one browser in a draft, too.
func capped(t *task.Task, most task.Cap) *task.Task {
	t.Epochs.Cap = most
	return t
}

// eventRenewals are changes to the second task of a stream with events that clients must refuse. Each task is valid.
var eventRenewals = []func(*task.Task){
	func(t *task.Task) { t.Epochs.Events.Most++ },
	func(t *task.Task) { t.Epochs.Events.Most-- },
	func(t *task.Task) { t.Epochs.Events.Window++ },
	func(t *task.Task) { t.Epochs.Events.Window-- },
	func(t *task.Task) {
		noise := *t.Noise
		t.Epochs.Events.Default++
		noise.Rest = &t.Epochs.Events.Default
		t.Noise = &noise
	},
	func(t *task.Task) {
		noise := *t.Noise
		noise.Rest, t.Noise, t.Epochs.Events = nil, &noise, task.Events{}
	},
	func(t *task.Task) { t.Epochs.Cap = task.Cap{Reports: 20, Window: 365} },
	func(t *task.Task) { t.Epochs.Length /= 2 },
	func(t *task.Task) { t.Claim.SetTotal("9.9", "1e-5") },
	func(t *task.Task) { t.Clients.Origins = []string{"https://other.example"} },
}

// cellOf returns the cell that the verifier counts for a report.
func cellOf(t *task.Task, lanes [][]task.Message) (int, error) {
	m, err := registry.Open(t)
	if err != nil {
		return 0, err
	}
	counts := m.Aggregate()
	for lane, messages := range lanes {
		for _, message := range messages {
			if err := counts.Add(lane, message.Body); err != nil {
				return 0, err
			}
		}
	}
	total := counts.Total()
	if len(total) == 1 { // The answer of a count is cell 1 alone.
		total = []float64{float64(len(lanes[0])) - total[0], total[0]}
	}
	cell := slices.Index(total, 1)
	if sum := len(slices.Concat(lanes...)); sum != 1 || cell < 0 {
		return 0, fmt.Errorf("%d messages that count as %v: want one", sum, total)
	}
	return cell, nil
}

// addLetter records the report of a task with events that just arrived.
func (r *relay) addLetter(s *scenario, epoch uint64, body []byte, lanes [][]task.Message, tag []byte) error {
	if s.Epochs.Events.IsZero() {
		return nil
	}
	cell, err := cellOf(s.Task, lanes)
	if err != nil {
		return err
	}
	l := letter{Path: s.Path(), Epoch: epoch, Day: epoch, Letter: cell, Bytes: len(body),
		Body: hex.EncodeToString(body), Tag: hex.EncodeToString(tag)}
	for _, y := range r.years {
		if at := slices.Index(y.tasks, s.ID); at >= 0 {
			l.Day += uint64(at) * taskDays
			if uint64(cell) != s.Epochs.Events.Default {
				y.noteEvent(l)
			}
		}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.letters = append(r.letters, l)
	return nil
}

// noteEvent records the day of an event that arrived for this stream. Reports with the same tag count once.
func (y *years) noteEvent(l letter) {
	y.mu.Lock()
	defer y.mu.Unlock()
	y.events[l.Tag] = l.Day
}

// takeLetters answers with the reports of tasks with events since the last call, and forgets them.
func (r *relay) takeLetters(w http.ResponseWriter, _ *http.Request) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if err := json.NewEncoder(w).Encode(append([]letter{}, r.letters...)); err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	r.letters = nil
}

// copies returns how many copies of the law of one epoch cover the reports in the window of that many days in which
// this is most: as many as events arrived, at most as many as the rule of the verifier's ledger allows for the days
// with a report. Without events, each report takes one.
func (y *years) copies(days uint64) (copies, allowed int, err error) {
	if y.task.Epochs.Events.IsZero() {
		most := maxInWindow(y.left, float64(days)*86_400)
		return most, most, nil
	}
	var at []uint64
	for _, day := range y.events {
		at = append(at, y.task.Epochs.Begin(day))
	}
	copies = maxInWindow(at, float64(days)*86_400)
	if y.task.Noise.Rest == nil {
		copies *= 2 // A law covers one epoch in which the worlds differ, and not an event of each.
	}
	left := slices.Sorted(slices.Values(y.left))
	for i, first := range left {
		end := i
		for end < len(left) && left[end]-first < days*86_400 {
			end++
		}
		allowed = max(allowed, int(y.task.MostCopiesAt(slices.Compact(slices.Clone(left[i:end])))))
	}
	if copies > allowed {
		err = errors.New("more events arrived than the allowance has room for")
	}
	return copies, allowed, err
}

// dayVisit is a visit to a page on a day of a task with events.
type dayVisit struct {
	Day   uint64 `json:"day"`
	Event bool   `json:"event"` // Whether the page reports an event.
}

// decide answers what the Go client's ledger lets each of several visitors send: for each visit in their order "event",
// "default", or "none" if the day has a report or the cap is reached.
func (r *relay) decide(w http.ResponseWriter, req *http.Request) {
	var asked struct {
		Path     string
		Visitors [][]dayVisit
	}
	err := json.NewDecoder(req.Body).Decode(&asked)
	s := r.tasks[asked.Path]
	if err != nil || s == nil || s.Epochs.Events.IsZero() {
		http.Error(w, fmt.Sprintf("invalid body: want the path of a task with events, and visitors (%v)", err),
			http.StatusBadRequest)
		return
	}
	out := make([][]string, len(asked.Visitors))
	for i, visits := range asked.Visitors {
		if out[i], err = decisions(s.Epochs, visits); err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
			return
		}
	}
	if err := json.NewEncoder(w).Encode(out); err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
	}
}

// decisions replays the visits of one visitor through a ledger whose budget never ends.
func decisions(e task.Epochs, visits []dayVisit) ([]string, error) {
	budget := shufflerclient.Budget{Epsilon: 1e6, Delta: .5, Days: 3650}
	price := shufflerclient.Price{First: compose.Spend{Epsilon: 1e-3, Delta: 1e-9}, Reports: e.Count,
		All: compose.Spend{Epsilon: 1, Delta: 1e-8}, Events: true}
	ledger := &shufflerclient.Ledger{}
	out := make([]string, len(visits))
	for i, v := range visits {
		start := int64(e.Begin(v.Day))
		err := ledger.Spend(budget, "task", price, start, e)
		if errors.Is(err, shufflerclient.ErrCapped) || errors.Is(err, shufflerclient.ErrReported) {
			out[i] = "none"
			continue
		}
		if err != nil {
			return nil, err
		}
		out[i] = "default"
		if v.Event && ledger.Event("task", start, e) == nil {
			out[i] = "event"
		}
	}
	return out, nil
}
