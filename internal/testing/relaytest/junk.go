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

// FeedJunk answers the parties that follow a stream with junk of the largest size, one kind after another, in place of
// the first relay. follow starts the party under test. Between two answers, the process may allocate at most most
// bytes. FeedJunk returns when the party has asked for all kinds.
func (c *Cascade) FeedJunk(t testing.TB, most uint64, follow func()) {
	t.Helper()
	f := &feeder{done: make(chan struct{})}
	all := fixture.JunkStreams(c.Bundle(t), taskfile.MaxStream)
	for i, one := range all {
		// The party waits between polls, so use every 11th kind. The tests of package handover use all.
		if (len(all)-1-i)%11 == 0 {
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
		t.Fatal("timed out: the party did not ask for all kinds of junk")
	}
	for i, one := range f.all {
		require.LessOrEqual(t, f.after[i]-f.before[i], most, one.Name)
	}
}

// feeder answers each request with the next kind of junk.
type feeder struct {
	all  []fixture.Junk
	done chan struct{}

	mu            sync.Mutex // guards the fields below
	before, after []uint64   // bytes allocated before each answer, and by the next request
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
	_, _ = io.Copy(w, f.all[n].Reader()) // an error means that the client hung up early, which is allowed
}
