//go:build workerd

package edge_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/doona-dp/doona/internal/testing/workerd"
	"github.com/doona-dp/doona/wire/task"
)

// TestPageScript runs the built page script in Chromium, and the worker in workerd. A browser must report once per
// epoch, whatever the number of calls and tabs and whatever its clock says. It must record the report before it sends
// anything. It must not report in another site's frame, or on a page that nobody has viewed.
func TestPageScript(t *testing.T) {
	o := newOutside(t, truthful())
	short := newOutsideIn(t, truthful(), task.Epochs{Start: uint64(time.Now().Unix()) - 1, Length: 3, Count: 100})
	o.Handler.(*http.ServeMux).HandleFunc("/", servePage)
	changes := map[string]any{"source": "page", "quota": 10, "maxEpsilon": 1000}
	p := o.start(t, only(o.entry(changes)), visitors)
	inShort := short.start(t, map[string]any{"delay": 0, "tasks": map[string]any{"short": short.entry(changes)}}, visitors)

	said := drivePage(t, cloudflare(t, p, inShort))
	require.Equal(t, []any{true, false, false, false, 2., false}, said["again"])
	require.ElementsMatch(t, []any{true, false}, said["atOnce"])
	require.Contains(t, said["lost"].([]any)[0], "TypeError")
	require.Equal(t, false, said["lost"].([]any)[1])
	require.Contains(t, said["inFrame"], "in a frame of another site")
	require.Equal(t, []any{0., true}, said["prerendered"])
	got := o.reports(t, 3)
	require.Equal(t, 1, category(t, got[0]))
	require.Equal(t, 12, category(t, got[2]))
	require.Contains(t, []int{6, 7}, category(t, got[1]))
	got = short.reports(t, 2)
	require.NotEqual(t, got[0].head, got[1].head, "the two reports must be of different epochs")
	require.Empty(t, p.Log()+inShort.Log())
}

func servePage(w http.ResponseWriter, r *http.Request) {
	if r.URL.Path != "/" {
		http.ServeFile(w, r, filepath.Join(pages, filepath.Base(r.URL.Path)))
		return
	}
	w.Header().Set("Content-Type", "text/html")
	fmt.Fprint(w, "<!doctype html><link rel=icon href=data:,>", scriptTag)
}

// cloudflare starts a proxy before two workers that adds the header with the client's address. Requests for task short
// go to the second worker.
func cloudflare(t *testing.T, p, short *workerd.Process) (address string) {
	t.Helper()
	front := httptest.NewServer(&httputil.ReverseProxy{Rewrite: func(r *httputil.ProxyRequest) {
		to := p
		if strings.HasPrefix(r.In.URL.Path, "/doona/short") {
			to = short
		}
		at, err := url.Parse(to.URL)
		if err != nil {
			panic(err) // worker URLs are valid
		}
		r.SetURL(at)
		r.Out.Host = r.In.Host
		r.Out.Header.Set("CF-Connecting-IP", "192.0.2.1")
	}})
	t.Cleanup(front.Close)
	return front.URL
}

// drivePage runs www/test/edge-page.mjs against a site and returns the JSON that it prints.
func drivePage(t *testing.T, site string) (said map[string]any) {
	t.Helper()
	frame := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/html")
		fmt.Fprintf(w, "<!doctype html><link rel=icon href=data:,><iframe src=%q></iframe>", site)
	}))
	t.Cleanup(frame.Close)
	drive := exec.Command("node", "edge-page.mjs", site, strings.Replace(frame.URL, "127.0.0.1", "localhost", 1))
	drive.Dir, drive.Stderr = filepath.Join("..", "..", "www", "test"), os.Stderr
	text, err := drive.Output()
	require.NoError(t, err)
	require.NoError(t, json.Unmarshal(text, &said))
	return said
}
