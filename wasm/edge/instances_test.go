//go:build long && workerd

package edge_test

import (
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestInstancesFollowEachOther: for 10,000 requests, 16 at a time, entry.mjs starts ten instances one after another. No
// report is lost when one replaces another. It logs workerd's memory.
func TestInstancesFollowEachOther(t *testing.T) {
	const requests = 10_000
	o := newOutside(t, truthful())
	config := only(o.entry(nil))
	config["delay"] = 1
	p := o.start(t, config)
	var refused atomic.Int64
	var wait sync.WaitGroup
	for worker := range 16 {
		wait.Go(func() {
			for i := range requests / 16 {
				status, err := quickly(p, body(i%300))
				if err != nil || status != http.StatusNoContent {
					refused.Add(1)
				}
				if worker == 0 && i%25 == 0 {
					t.Log(i*16, p.Memory()>>20, "MiB")
				}
			}
		})
	}
	wait.Wait()
	require.Zero(t, refused.Load())
	o.reports(t, requests/16*16)
	require.GreaterOrEqual(t, strings.Count(string(o.capture()), "GET /v1/tasks/"), requests/1000, "instances")
	require.Empty(t, p.Log())
}
