package report_test

import (
	"encoding/csv"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/doona-dp/doona/internal/testing/relaytest"
	"github.com/doona-dp/doona/planner"
	"github.com/doona-dp/doona/verifier/report"
	"github.com/doona-dp/doona/wire/task"
)

func TestThePageAndItsJSONShowTheReport(t *testing.T) {
	c := newCascade(t)
	v := newVerifier(t, c)
	server := httptest.NewServer(report.Handler(v))
	defer server.Close()
	require.Contains(t, get(t, server.URL+"/"), "No batch has been released yet")
	require.NoError(t, v.Add(chain(t, c, 0, slots(t, c, batchSize))))
	require.Contains(t, get(t, server.URL+"/"), "Everything added up")
	var r struct {
		Users     uint64
		Interval  [2]float64
		Processed struct {
			Estimate       float64
			Interval, Band [2]float64
		}
		Epsilon float64
		Alone   float64 `json:"epsilon_no_honest"`
		Honest  float64 `json:"epsilon_honest"`
	}
	require.NoError(t, json.Unmarshal([]byte(get(t, server.URL+"/api/report")), &r))
	require.Equal(t, r.Epsilon, r.Honest, "the claim needs honest clients")
	require.EqualValues(t, batchSize, r.Users)
	require.Less(t, r.Interval[0], r.Interval[1])
	require.Contains(t, get(t, server.URL+"/page.css"), "font")
	table := get(t, server.URL+"/api/report.csv")
	require.Equal(t, "\ufeff"+table, get(t, server.URL+"/api/report.csv?bom=1"))
	lines := strings.Split(strings.TrimSpace(table), "\n")
	require.Len(t, lines, 3)
	require.Equal(t, "epoch,start,entry,label,from,to,clients,batches,estimate,standard_error,lo,hi,standard_error_worst,"+
		"band_lo,band_hi,reports,missing,usable,unusable_because,override,processed,processed_lo,processed_hi,"+
		"processed_band_lo,processed_band_hi,processing,epsilon,epsilon_no_honest,local_epsilon,epsilon_honest,"+
		"honest_batches", lines[0])
	require.True(t, strings.HasPrefix(lines[1], "all,,0,,,,20,1,") && strings.HasPrefix(lines[2], "0,20"), lines)
	require.True(t, strings.HasSuffix(lines[1], fmt.Sprintf(",%v,%v,%v,%v,%v,clip,%v,%v,%v,%v,1", r.Processed.Estimate,
		r.Processed.Interval[0], r.Processed.Interval[1], r.Processed.Band[0], r.Processed.Band[1], r.Epsilon, r.Alone,
		r.Alone, r.Honest)), lines[1])
}

// TestThePageInOneFileLoadsNothing: the file of `verifier analyze --html` must not refer to another file or address.
func TestThePageInOneFileLoadsNothing(t *testing.T) {
	c := newCascade(t)
	v := newVerifier(t, c)
	require.NoError(t, v.Add(chain(t, c, 0, slots(t, c, batchSize))))
	made, err := v.Report()
	require.NoError(t, err)
	var page strings.Builder
	require.NoError(t, report.WriteHTML(&page, made))
	require.Contains(t, page.String(), "<style>")
	require.Contains(t, page.String(), "aria-label=\"Mean of a client&#39;s value by epoch")
	require.NotRegexp(t, `(?:src|href|action)=|url\(|@import|<script`, page.String())
}

// TestBinsHaveNumericEdges: CSV and JSON must have the edges of a histogram's bins as numbers, and labels that differ.
// Minus signs are in ASCII, and numbers have no thousands separators.
func TestBinsHaveNumericEdges(t *testing.T) {
	for _, lo := range []float64{97, -8, 1000} {
		const bins, width = 16, .5
		draft, err := planner.Draft(planner.Query{Name: "bins", Query: task.Histogram, Lo: lo, Hi: lo + bins*width,
			Bins: bins, Batch: 50, Honest: .9, Epsilon: 1, Delta: 1e-6})
		require.NoError(t, err)
		c := layOut(t, 1, draft)
		v := newVerifier(t, c)
		require.NoError(t, v.Add(wholeBatch(t, c, 0, 0, []float64{lo + 1})))
		made, err := v.Report()
		require.NoError(t, err)
		encoded, err := json.Marshal(made)
		require.NoError(t, err)
		var r struct{ From, To []float64 }
		require.NoError(t, json.Unmarshal(encoded, &r))
		var out strings.Builder
		require.NoError(t, report.WriteCSV(&out, made))
		rows, err := csv.NewReader(strings.NewReader(out.String())).ReadAll()
		require.NoError(t, err)
		labels := map[string]bool{}
		for j, row := range rows[1 : bins+1] {
			from := lo + float64(j)*width
			require.Equal(t, []float64{from, from + width}, []float64{r.From[j], r.To[j]})
			require.Equal(t, []string{fmt.Sprint(from), fmt.Sprint(from + width)}, row[4:6])
			require.Equal(t, fmt.Sprint(from, " to ", from+width), row[3])
			labels[row[3]] = true
		}
		require.Len(t, labels, bins)
		require.NotRegexp(t, `[^\x00-\x7f]`, out.String())
	}
}

// TestPagesUnderASubfolder: behind a proxy that serves the pages under a folder and strips its name, all links, files
// and redirects must stay in that folder.
func TestPagesUnderASubfolder(t *testing.T) {
	const folder = "/stats/"
	c := newCascade(t)
	v := newVerifier(t, c)
	require.NoError(t, v.Add(chain(t, c, 0, slots(t, c, batchSize))))
	server := httptest.NewServer(http.StripPrefix(strings.TrimSuffix(folder, "/"), report.NewSite(v).Handler()))
	defer server.Close()
	task := server.URL + folder + "tasks/" + c.Open.ID.String()
	for _, page := range []string{server.URL + folder, task + "/"} {
		base, err := url.Parse(page)
		require.NoError(t, err)
		links := regexp.MustCompile(`(?:href|src)="([^"]*)"`).FindAllStringSubmatch(get(t, page), -1)
		require.Greater(t, len(links), 3)
		for _, link := range links {
			relative, err := url.Parse(link[1])
			require.NoError(t, err)
			to := base.ResolveReference(relative)
			require.True(t, strings.HasPrefix(to.String(), server.URL+folder), "%s: %s", page, link[1])
			get(t, to.String())
		}
	}
	resp, err := http.Get(task)
	require.NoError(t, err)
	resp.Body.Close()
	require.Equal(t, http.StatusOK, resp.StatusCode)
	require.Equal(t, task+"/", resp.Request.URL.String(), "a link without its final slash")
	resp, err = http.Get(server.URL + folder + "tasks/https:%2f%2fother.example")
	require.NoError(t, err)
	resp.Body.Close()
	require.Equal(t, http.StatusNotFound, resp.StatusCode, "only a known task may be redirected to")
}

// TestTimesAreInUTC: exports and pages must have times in UTC on a machine of any time zone.
func TestTimesAreInUTC(t *testing.T) {
	local := time.Local
	t.Cleanup(func() { time.Local = local })
	time.Local = time.FixedZone("twelve hours ahead", 12*60*60) // where each epoch starts on the next day
	draft, err := planner.Draft(planner.Query{Name: "mean", Query: task.Mean, Hi: 10, Batch: 50, Honest: .9, Epsilon: 1,
		Delta: 1e-6})
	require.NoError(t, err)
	relaytest.InStream()(draft)
	c := layOut(t, 1, draft)
	v := newVerifier(t, c)
	require.NoError(t, v.Add(wholeBatch(t, c, 0, 0, []float64{1})))
	made, err := v.Report()
	require.NoError(t, err)
	var out strings.Builder
	require.NoError(t, report.WriteCSV(&out, made))
	rows, err := csv.NewReader(strings.NewReader(out.String())).ReadAll()
	require.NoError(t, err)
	const start = "2020-09-13T12:26:40Z"
	require.Equal(t, start, rows[2][1])
	encoded, err := json.Marshal(made)
	require.NoError(t, err)
	var r struct {
		Ledger struct{ Epochs []struct{ Start string } }
	}
	require.NoError(t, json.Unmarshal(encoded, &r))
	require.Equal(t, start, r.Ledger.Epochs[0].Start)
	site := report.NewSite(v)
	site.Add(v.Fresh(), v)
	list := httptest.NewRecorder()
	site.Handler().ServeHTTP(list, httptest.NewRequest(http.MethodGet, "/", nil))
	require.Contains(t, list.Body.String(), "2020-09-13 to 2020-09-17")
}
