package report

import (
	"bytes"
	"embed"
	"encoding/json"
	"fmt"
	"html/template"
	"io"
	"net/http"

	"github.com/doona-dp/doona/internal/display"
	"github.com/doona-dp/doona/verifier"
)

//go:embed page.html index.html page.css page.js
var assets embed.FS

var templates = template.Must(template.ParseFS(assets, "page.html", "index.html"))

const csvType = "text/csv; charset=utf-8"

// Handler serves a verifier's page, its report as JSON at api/report, and as CSV at api/report.csv. With ?bom=1 the CSV
// begins with a byte order mark, which tells Excel that it is UTF-8. Links are relative, so any path will do.
func Handler(v *verifier.Verifier) http.Handler {
	return display.Protect(display.PagePolicy("", ""), pages(v, ""))
}

// pages serves the pages of one task. home is the URL of the list of tasks; empty if there is none.
func pages(v *verifier.Verifier, home string) http.Handler {
	mux := http.NewServeMux()
	serve := func(path, kind string, write func(io.Writer, *verifier.Report) error) {
		mux.HandleFunc("GET "+path, func(w http.ResponseWriter, req *http.Request) {
			respond(w, kind, func(out io.Writer) error {
				r, err := v.Report()
				if err != nil {
					return err
				}
				if req.URL.Query().Get("bom") == "1" && kind == csvType {
					io.WriteString(out, "\ufeff")
				}
				return write(out, r)
			})
		})
	}
	serve("/{$}", "text/html; charset=utf-8", func(w io.Writer, r *verifier.Report) error {
		return writePage(w, "page.html", newView(r, home))
	})
	serve("/api/report", "application/json", func(w io.Writer, r *verifier.Report) error { return writeJSON(w, r) })
	serve("/api/report.csv", csvType, WriteCSV)
	mux.Handle("GET /", files())
	return mux
}

// files serves the pages' style sheet, script and icon.
func files() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /page.css", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/css; charset=utf-8")
		io.WriteString(w, string(styles()))
	})
	mux.Handle("GET /page.js", http.FileServerFS(assets))
	mux.Handle("GET /icon.svg", http.FileServerFS(display.Files))
	return mux
}

// respond writes a whole response or an error, never a part.
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

// writePage writes a page. It escapes invisible characters in texts from outside.
func writePage(w io.Writer, name string, data any) error {
	return templates.ExecuteTemplate(display.Terminal(w), name, data)
}

// writeJSON writes JSON that is safe to show on a terminal.
func writeJSON(w io.Writer, data any) error {
	out, err := json.Marshal(data)
	if err != nil {
		return err
	}
	_, err = w.Write(append(display.JSON(out), '\n'))
	return err
}

// WriteHTML writes the page as one file, which loads no other file.
func WriteHTML(w io.Writer, r *verifier.Report) error {
	view := newView(r, "")
	view.Styles = styles()
	if err := writePage(w, "page.html", view); err != nil {
		return fmt.Errorf("couldn't write the page: %w", err)
	}
	return nil
}

func styles() template.CSS {
	common, err := display.Files.ReadFile("display.css")
	if err != nil {
		panic("report: internal error: " + err.Error())
	}
	own, err := assets.ReadFile("page.css")
	if err != nil {
		panic("report: internal error: " + err.Error())
	}
	return template.CSS(common) + template.CSS(own)
}
