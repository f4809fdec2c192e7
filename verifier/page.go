package verifier

import (
	"embed"
	"encoding/json"
	"fmt"
	"html/template"
	"net/http"
)

//go:embed page.html page.css
var assets embed.FS

var pageTemplate = template.Must(template.ParseFS(assets, "page.html"))

// view is what the page shows: the report, and its estimates placed on a common axis.
type view struct {
	*Report
	Percent int
	Bars    []bar
}

// bar is one estimate; X, Width and At are in percent of the axis.
type bar struct {
	Label                  string
	Estimate, Half, Lo, Hi float64
	X, Width, At           float64
}

// Handler serves the verifier's page, and the report as JSON at /api/report.
func (v *Verifier) Handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /{$}", v.serve(func(w http.ResponseWriter, r *Report) error {
		w.Header().Set("Content-Type", "text/html; charset=utf-8")
		return pageTemplate.Execute(w, newView(r))
	}))
	mux.HandleFunc("GET /api/report", v.serve(func(w http.ResponseWriter, r *Report) error {
		w.Header().Set("Content-Type", "application/json")
		return json.NewEncoder(w).Encode(r)
	}))
	mux.Handle("GET /page.css", http.FileServerFS(assets))
	return mux
}

func (v *Verifier) serve(write func(http.ResponseWriter, *Report) error) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Security-Policy", "default-src 'self'")
		w.Header().Set("Cache-Control", "no-store")
		r, err := v.Report()
		if err == nil {
			err = write(w, r)
		}
		if err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
		}
	}
}

func newView(r *Report) view {
	out := view{Report: r, Percent: int(100 * r.Confidence)}
	if len(r.Interval) == 0 {
		return out
	}
	lo, hi := r.Interval[0][0], r.Interval[0][1]
	for _, i := range r.Interval {
		lo, hi = min(lo, i[0]), max(hi, i[1])
	}
	place := func(x float64) float64 { return 100 * (x - lo) / (hi - lo) }
	for j, estimate := range r.Estimate {
		b := bar{Label: r.Query, Estimate: estimate, Lo: r.Interval[j][0], Hi: r.Interval[j][1]}
		if len(r.Estimate) > 1 {
			b.Label = fmt.Sprintf("bin %d", j)
		}
		b.Half, b.X, b.At = b.Hi-estimate, place(b.Lo), place(estimate)
		b.Width = place(b.Hi) - b.X
		out.Bars = append(out.Bars, b)
	}
	return out
}
