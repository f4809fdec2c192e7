package verifier

import (
	"bytes"
	"embed"
	"encoding/json"
	"fmt"
	"html/template"
	"io"
	"net/http"

	"github.com/doona-dp/doona/internal/look"
	"github.com/doona-dp/doona/wire/task"
)

//go:embed page.html index.html page.css page.js
var assets embed.FS

var templates = template.Must(template.ParseFS(assets, "page.html", "index.html"))

// Handler serves the verifier's page; the report as JSON at api/report and as CSV at
// api/report.csv. Its links are relative, so that it may stand anywhere.
func (v *Verifier) Handler() http.Handler {
	return look.Protect(look.Policy("", ""), v.pages(""))
}

// Handler serves the pages of tasks, each as [Verifier.Handler] does at tasks/ID/, and a list of them, as
// JSON at api/tasks.
func Handler(tasks ...*Verifier) http.Handler {
	mux := http.NewServeMux()
	mux.Handle("GET /", files())
	mux.HandleFunc("GET /{$}", func(w http.ResponseWriter, _ *http.Request) {
		respond(w, "text/html; charset=utf-8", func(out io.Writer) error { return writeIndex(out, tasks) })
	})
	mux.HandleFunc("GET /api/tasks", func(w http.ResponseWriter, _ *http.Request) {
		respond(w, "application/json", func(out io.Writer) error { return writeList(out, tasks) })
	})
	for _, v := range tasks {
		prefix := "/tasks/" + v.open.ID.String()
		mux.Handle("GET "+prefix+"/", http.StripPrefix(prefix, v.pages("../../")))
	}
	return look.Protect(look.Policy("", ""), mux)
}

// pages serves one task; home is where the list of tasks is, if there is one.
func (v *Verifier) pages(home string) http.Handler {
	mux := http.NewServeMux()
	serve := func(path, kind string, write func(io.Writer, *Report) error) {
		mux.HandleFunc("GET "+path, func(w http.ResponseWriter, _ *http.Request) {
			respond(w, kind, func(out io.Writer) error {
				r, err := v.Report()
				if err != nil {
					return err
				}
				return write(out, r)
			})
		})
	}
	serve("/{$}", "text/html; charset=utf-8", func(w io.Writer, r *Report) error {
		return templates.ExecuteTemplate(w, "page.html", newView(r, home))
	})
	serve("/api/report", "application/json", func(w io.Writer, r *Report) error { return json.NewEncoder(w).Encode(r) })
	serve("/api/report.csv", "text/csv; charset=utf-8",
		func(w io.Writer, r *Report) error { return r.WriteCSV(w, v.open.Task) })
	mux.Handle("GET /", files())
	return mux
}

// files serves what the pages load.
func files() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /page.css", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/css; charset=utf-8")
		io.WriteString(w, string(styles()))
	})
	mux.Handle("GET /page.js", http.FileServerFS(assets))
	mux.Handle("GET /icon.svg", http.FileServerFS(look.Files))
	return mux
}

// respond writes the whole answer or an error, never half of one.
func respond(w http.ResponseWriter, kind string, write func(io.Writer) error) {
	var body bytes.Buffer
	w.Header().Set("Cache-Control", "no-store")
	if err := write(&body); err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", kind)
	w.Write(body.Bytes())
}

// WriteHTML writes the page as one file that loads nothing.
func (v *Verifier) WriteHTML(w io.Writer) error {
	r, err := v.Report()
	if err != nil {
		return err
	}
	view := newView(r, "")
	view.Styles = styles()
	if err := templates.ExecuteTemplate(w, "page.html", view); err != nil {
		return fmt.Errorf("couldn't write the page: %w", err)
	}
	return nil
}

// styles returns the pages' style sheet.
func styles() template.CSS {
	common, err := look.Files.ReadFile("look.css")
	if err != nil {
		panic("verifier: internal error: " + err.Error())
	}
	own, err := assets.ReadFile("page.css")
	if err != nil {
		panic("verifier: internal error: " + err.Error())
	}
	return template.CSS(common) + template.CSS(own)
}

// writeIndex lists the tasks with their last estimates.
func writeIndex(w io.Writer, tasks []*Verifier) error {
	var views []*view
	for _, v := range tasks {
		r, err := v.Report()
		if err != nil {
			return err
		}
		views = append(views, newView(r, ""))
	}
	return templates.ExecuteTemplate(w, "index.html", views)
}

// listed is a task in the list of tasks.
type listed struct {
	Task    string     `json:"task"` // Its report is at tasks/TASK/api/report.
	Name    string     `json:"name"`
	Query   task.Query `json:"query"`
	Users   uint64     `json:"users"`
	Batches uint64     `json:"batches"`
	Verdict string     `json:"verdict"`
}

// writeList writes the list of tasks as JSON.
func writeList(w io.Writer, tasks []*Verifier) error {
	list := []listed{}
	for _, v := range tasks {
		r, err := v.Report()
		if err != nil {
			return err
		}
		list = append(list, listed{r.Task, r.Name, r.Query, r.Users, r.Batches, r.Verdict})
	}
	return json.NewEncoder(w).Encode(list)
}
