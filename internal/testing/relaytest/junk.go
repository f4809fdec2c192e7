package relaytest

import (
	"io"
	"net/http"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/doona-dp/doona/internal/testing/fixture"
	"github.com/doona-dp/doona/wire/endpoint"
	"github.com/doona-dp/doona/wire/taskfile"
)

// FeedJunk answers every party that follows the stream of a cascade, whose first relay must not run, with junk of the
// largest size, one kind after another. It requires that the process allocates at most most bytes between two
// answers. It returns when all kinds were refused, as a following party never stops.
func (c *Cascade) FeedJunk(t testing.TB, most uint64, follow func()) {
	t.Helper()
	f := &feeder{done: make(chan struct{})}
	all := fixture.JunkStreams(c.Bundle(t), taskfile.MaxStream)
	for i, one := range all {
		if (len(all)-1-i)%11 == 0 { // a follower waits between two polls; package handover's tests have all kinds
			f.all = append(f.all, one)
		}
	}
	mux := http.NewServeMux()
	mux.HandleFunc("GET "+endpoint.StreamPath, f.serve)
	c.Listen(t, 0, mux)
	follow()
	select {
	case <-f.done:
	case <-time.After(Patience):
		t.Fatal("not all junk was asked for")
	}
	for i, one := range f.all {
		require.LessOrEqual(t, f.after[i]-f.before[i], most, one.Name)
	}
}

// feeder answers with one kind of junk after another.
type feeder struct {
	all  []fixture.Junk
	done chan struct{}

	mu            sync.Mutex // guards the rest
	before, after []uint64   // bytes that were asked for, by kind
}

func (f *feeder) serve(w http.ResponseWriter, _ *http.Request) {
	f.mu.Lock()
	defer f.mu.Unlock()
	now, n := fixture.Allocated(), len(f.before)
	if n > 0 && len(f.after) < n {
		f.after = append(f.after, now)
	}
	if n == len(f.all) {
		select {
		case <-f.done:
		default:
			close(f.done)
		}
		w.WriteHeader(http.StatusNotFound)
		return
	}
	f.before = append(f.before, now)
	_, _ = io.Copy(w, f.all[n].Reader()) // a client that has read enough hangs up
}
