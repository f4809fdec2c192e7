package report

import (
	"io"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/doona-dp/doona/internal/display"
	"github.com/doona-dp/doona/verifier"
	"github.com/doona-dp/doona/wire/task"
)

// Site serves the pages of several tasks: a list, and for each task the page that [Handler] serves. The tasks of a
// stream share an entry of the list. Site is safe for concurrent use.
type Site struct {
	// SignOut is the URL of the page on which to sign out, relative to the list; empty if there is no login.
	SignOut string

	// Results are the published results; nil if the site has no paths for them.
	Results Results

	mu    sync.Mutex // guards the rest
	lines []line
	pages map[string]http.Handler // by task id
}

// line is an entry of the list: a single task, or all tasks of a stream by position.
type line []*verifier.Verifier

// NewSite returns a site with the given tasks. Each task has its own entry.
func NewSite(tasks ...*verifier.Verifier) *Site {
	s := &Site{pages: map[string]http.Handler{}}
	for _, v := range tasks {
		s.Add(v, nil)
	}
	return s
}

// Add adds a task to the entry of after, which is another task of its stream. If after is nil, the task gets a new
// entry.
func (s *Site) Add(v, after *verifier.Verifier) {
	s.mu.Lock()
	defer s.mu.Unlock()
	id := v.Task().ID.String()
	s.pages[id] = http.StripPrefix("/tasks/"+id, pages(v, "../../"))
	at := slices.IndexFunc(s.lines, func(l line) bool { return slices.Contains(l, after) })
	if at < 0 {
		s.lines = append(s.lines, line{v})
		return
	}
	lines := slices.Clone(s.lines) // a request may still be reading the old slice
	lines[at] = append(slices.Clone(lines[at]), v)
	s.lines = lines
}

// Handler serves the list of tasks at /, the list as JSON at /api/tasks, and the pages of each task at /tasks/ID/.
func (s *Site) Handler() http.Handler {
	mux := http.NewServeMux()
	mux.Handle("GET /", files())
	mux.HandleFunc("GET /{$}", func(w http.ResponseWriter, _ *http.Request) {
		respond(w, "text/html; charset=utf-8", s.writeIndex)
	})
	mux.HandleFunc("GET /api/tasks", func(w http.ResponseWriter, _ *http.Request) {
		respond(w, "application/json", s.writeList)
	})
	mux.HandleFunc("GET /tasks/{task}/", s.handlePage)
	if s.Results != nil {
		mux.HandleFunc("GET /api/results", s.handleResults)
		mux.HandleFunc("GET /api/results.csv", s.handleResults)
		mux.HandleFunc("GET /tasks/{task}/api/results", s.handleResults)
		mux.HandleFunc("GET /tasks/{task}/api/results.csv", s.handleResults)
	}
	mux.HandleFunc("GET /tasks/{task}", s.redirectToPage)
	return display.Protect(display.PagePolicy("", ""), mux)
}

func (s *Site) handlePage(w http.ResponseWriter, req *http.Request) {
	_, page := s.page(req)
	if page == nil {
		page = http.NotFoundHandler()
	}
	page.ServeHTTP(w, req)
}

// redirectToPage adds the final slash to the URL of a task's page. [http.ServeMux] would redirect to an absolute path,
// which leaves the folder under which a proxy serves the pages.
func (s *Site) redirectToPage(w http.ResponseWriter, req *http.Request) {
	id, page := s.page(req)
	if page == nil { // any other value could be the address of another site
		http.NotFound(w, req)
		return
	}
	w.Header().Set("Location", id+"/")
	w.WriteHeader(http.StatusTemporaryRedirect)
}

// page returns the task that a request names, and its pages; nil if the site does not have the task.
func (s *Site) page(req *http.Request) (id string, page http.Handler) {
	s.mu.Lock()
	defer s.mu.Unlock()
	id = req.PathValue("task")
	return id, s.pages[id]
}

func (s *Site) now() []line {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.lines
}

// entry is a card of the list: a single task, or the newest task of a stream that has batches, with all tasks of the
// stream.
type entry struct {
	*view
	Stream string
	Tasks  []member // All tasks of the stream, newest first; empty if there is only one.
}

// member is one task of a stream in the stream's entry.
type member struct {
	*verifier.Report
	Position uint64
	From, To string // First and last day in UTC.
}

// index is what the list shows.
type index struct {
	Entries []*entry
	SignOut string
}

func (s *Site) writeIndex(w io.Writer) error {
	var entries []*entry
	for _, l := range s.now() {
		e, err := l.entry()
		if err != nil {
			return err
		}
		entries = append(entries, e)
	}
	return writePage(w, "index.html", index{entries, s.SignOut})
}

// reports returns the reports of an entry's tasks, and the index of the one to show: the newest with batches, or else
// the first.
func (l line) reports() (all []*verifier.Report, shown int, err error) {
	for i, v := range l {
		r, err := v.Report()
		if err != nil {
			return nil, 0, err
		}
		if all = append(all, r); r.Batches > 0 {
			shown = i
		}
	}
	return all, shown, nil
}

func (l line) entry() (*entry, error) {
	all, shown, err := l.reports()
	if err != nil {
		return nil, err
	}
	e := &entry{view: newView(all[shown], "")}
	if len(l) < 2 {
		return e, nil
	}
	e.Stream = l[0].Task().Stream.Name
	for i, r := range slices.Backward(all) {
		t := l[i].Task().Task
		e.Tasks = append(e.Tasks, member{r, t.Stream.Position, day(t.Epochs.Start), day(t.Epochs.Over())})
	}
	return e, nil
}

func day(unix uint64) string { return time.Unix(int64(unix), 0).UTC().Format(time.DateOnly) }

// listed is an entry of the list as JSON. For a stream, users and batches are sums over its tasks. The other fields are
// those of the task shown.
type listed struct {
	Task     string     `json:"task"` // The task's id; its report is at tasks/TASK/api/report.
	Name     string     `json:"name"`
	Query    task.Query `json:"query"`
	Users    uint64     `json:"users"`
	Batches  uint64     `json:"batches"`
	Verdict  string     `json:"verdict"`
	Position *uint64    `json:"position,omitempty"` // Position in the stream; only for a task of a stream.
	Stream   string     `json:"stream,omitempty"`   // Name of the stream.
	Tasks    []listed   `json:"tasks,omitempty"`    // The tasks of the stream, by position.
}

func (s *Site) writeList(w io.Writer) error {
	list := []listed{}
	for _, l := range s.now() {
		e, err := l.listed()
		if err != nil {
			return err
		}
		list = append(list, e)
	}
	return writeJSON(w, list)
}

func (l line) listed() (listed, error) {
	all, shown, err := l.reports()
	if err != nil {
		return listed{}, err
	}
	of := func(r *verifier.Report) listed {
		return listed{Task: r.Task, Name: r.Name, Query: r.Query, Users: r.Users, Batches: r.Batches,
			Verdict: r.Verdict}
	}
	e := of(all[shown])
	if l[0].Task().Stream == nil {
		return e, nil
	}
	e.Stream, e.Users, e.Batches = l[0].Task().Stream.Name, 0, 0
	for i, r := range all {
		t := of(r)
		t.Position = &l[i].Task().Stream.Position
		e.Tasks = append(e.Tasks, t)
		e.Users, e.Batches = e.Users+r.Users, e.Batches+r.Batches
	}
	return e, nil
}
