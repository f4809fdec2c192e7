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

// FeedJunk answers whoever follows the stream of a cascade, whose first relay does not run, with junk of the largest
// size, some kinds one after the other. It requires that the process asks for at most so many bytes between two
// answers, and returns when all kinds have been refused: a party that follows never ends.
func (c *Cascade) FeedJunk(t testing.TB, most uint64, follow func()) {
	t.Helper()
	f := &feeder{done: make(chan struct{})}
	all := fixture.JunkStreams(c.Bundle(t), taskfile.MaxStream)
	for i, one := range all {
		if (len(all)-1-i)%11 == 0 { // who follows waits between two looks; package handover's tests have all
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

// feeder answers with one kind of junk after the other.
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
	_, _ = io.Copy(w, f.all[n].Reader()) // who has read enough hangs up
}
